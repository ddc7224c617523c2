//! The program itself, as a service manager starts it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{ADMIN, Client};

pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_oncegate");

/// A started program, with what it says.
pub(super) struct Program {
    child: Child,
    pub(super) api: Client,
    out: std::thread::JoinHandle<String>,
    err: std::thread::JoinHandle<String>,
}

impl Program {
    /// `oncegate serve` on a directory with an `oncegate.yaml` in it.
    pub(super) fn serve(dir: &Path, args: &[&str], vars: &[(&str, &str)]) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--data", "data"])
            .args(args)
            .current_dir(dir)
            .env("ONCEGATE_ADMIN_TOKEN", ADMIN)
            .envs(vars.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let err = std::thread::spawn(move || {
            let mut all = String::new();
            stderr.read_to_string(&mut all).unwrap();
            all
        });
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        stdout.read_line(&mut first).unwrap();
        let Some((_, base)) = first.trim().split_once("listening on ") else {
            panic!("it did not start: {first}{}", err.join().unwrap())
        };
        let api = Client::new(base, ADMIN);
        let out = std::thread::spawn(move || {
            stdout.read_to_string(&mut first).unwrap();
            first
        });
        Self { child, api, out, err }
    }

    /// Sends SIGTERM and waits for the end; what it wrote to stdout and stderr.
    pub(super) fn stop(mut self) -> (String, String) {
        let id = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(id, Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        (self.out.join().unwrap(), self.err.join().unwrap())
    }
}

/// `oncegate doctor`, in a directory, on its `data`.
pub(super) fn doctor(dir: &Path, args: &[&str]) -> Output {
    doctor_with(dir, args, &[])
}

/// The same, with variables of the environment.
pub(super) fn doctor_with(dir: &Path, args: &[&str], vars: &[(&str, &str)]) -> Output {
    Command::new(PROGRAM)
        .args(["doctor", "--data", "data"])
        .args(args)
        .current_dir(dir)
        .env_remove("ONCEGATE_URL")
        .envs(vars.iter().copied())
        .output()
        .unwrap()
}
