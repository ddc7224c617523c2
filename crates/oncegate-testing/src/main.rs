//! `cargo run -p oncegate-testing` starts a PostgreSQL with an empty database, prints its URL, and takes both away when
//! its input ends. `… -- version` says which PostgreSQL the tests would use, and where it lies.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::process::ExitCode;

use oncegate_testing::{Binaries, Postgres};

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => {
            let server = Postgres::own(&[]);
            println!("{}", server.database().url());
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            ExitCode::SUCCESS
        }
        Some("version") => match Binaries::find() {
            Ok(found) => {
                println!("{} in {}", found.version(), found.dir().display());
                ExitCode::SUCCESS
            }
            Err(missing) => {
                eprintln!("{missing}");
                ExitCode::FAILURE
            }
        },
        Some(other) => {
            eprintln!("`{other}` is nothing this knows; give it nothing, or `version`");
            ExitCode::FAILURE
        }
    }
}
