//! placeholder
#[derive(Debug, clap::Args)]
pub(super) struct Args {}
pub(super) async fn run(_args: Args) -> Result<(), String> {
    Err("not yet".into())
}
