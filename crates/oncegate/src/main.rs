//! `oncegate`: a self-hosted gate that makes business automations run once.

fn main() -> std::process::ExitCode {
    oncegate::cli::main()
}
