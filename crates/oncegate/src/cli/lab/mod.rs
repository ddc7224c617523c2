//! `oncegate lab`: processes that stand for the outside world in the demo and in the tests. They keep their own
//! files, so that what the gate says about itself can be held against what others saw.

pub(super) mod ledger;
mod mood;
mod receiver;
mod sender;
pub(super) mod wire;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// A receiver that counts effects by `Idempotency-Key`.
    Receiver(receiver::Args),
    /// A sender that repeats a webhook until it is acknowledged.
    Sender(sender::Args),
}

pub(super) async fn run(args: Args) -> Result<(), String> {
    match args.part {
        Part::Receiver(args) => receiver::run(args).await,
        Part::Sender(args) => sender::run(args).await,
    }
}
