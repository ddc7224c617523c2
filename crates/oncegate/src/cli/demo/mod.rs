//! `oncegate demo`: the promise, shown. A form is delivered, repeated and raced while the gate is killed under it;
//! then the receiver's own file is held against the gate's history. If the two books disagree, it says so and fails.

mod books;
mod relay;
mod scenes;
mod stage;
mod table;

use std::time::Duration;

use oncegate_store::clock::{Clock, SystemClock};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use stage::Stage;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print the table as JSON, and nothing else.
    #[arg(long)]
    json: bool,
    /// Break the receiver, to see that the demo notices.
    #[cfg(debug_assertions)]
    #[arg(long, hide = true, value_enum)]
    sabotage: Option<Sabotage>,
}

/// How a debug build can make the two books disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(debug_assertions, derive(clap::ValueEnum))]
enum Sabotage {
    /// The receiver knows no keys.
    NoDedupe,
    /// A line of the receiver's file is lost.
    LoseLine,
}

impl Args {
    #[cfg(debug_assertions)]
    fn sabotage(&self) -> Option<Sabotage> {
        self.sabotage
    }

    #[cfg(not(debug_assertions))]
    fn sabotage(&self) -> Option<Sabotage> {
        None
    }
}

/// Long enough for a slow machine; it takes a few seconds on a usual one.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) async fn run(args: Args) -> Result<(), String> {
    tokio::select! {
        ended = play(&args) => ended,
        () = tokio::time::sleep(LONGEST) => {
            Err(format!("the demo did not end within {} s; this machine may be very busy", LONGEST.as_secs()))
        }
        // Whatever ends first, the others are dropped, and with the play its processes and their directory.
        stopped = told_to_stop() => stopped.and(Err("interrupted; nothing was left behind".to_owned())),
    }
}

/// ^C, a closed terminal, or somebody's `kill`.
async fn told_to_stop() -> Result<(), String> {
    let listen = |kind| signal(kind).map_err(|e| format!("cannot listen for signals: {e}"));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let mut terminate = listen(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = hangup.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

async fn play(args: &Args) -> Result<(), String> {
    let clock = SystemClock::new();
    let sabotage = args.sabotage();
    let tell = Narrator { quiet: args.json };
    tell.line("");
    tell.line("  One event, one effect, whatever breaks.");
    let mut stage = Stage::open(sabotage == Some(Sabotage::NoDedupe)).await?;
    stage.start_gate().await?;
    tell.line("  A gate and a receiver that counts are running, each in a process of its own.");
    tell.line("  In the end its file is compared with the gate's audit (history and calls).");
    let scenes = scenes::play(&mut stage, &tell).await?;
    if sabotage == Some(Sabotage::LoseLine) {
        stage.lose_a_line()?;
    }
    let books = books::compare(&stage, &scenes).await?;
    drop(stage);
    let seconds = clock.read().monotonic.as_secs_f64();
    match args.json {
        true => super::say(json!({
            "agree": books.disagreements.is_empty(),
            "scenarios": books.rows,
            "disagreements": books.disagreements,
            "notes": books.notes,
            "seconds": (seconds * 10.0).round() / 10.0,
        })),
        false => super::say(table::show(&books, seconds)),
    }
    match books.disagreements.len() {
        0 => Ok(()),
        n => Err(format!("the demo failed: {n} thing(s) are not as they must be, see above")),
    }
}

/// Says what happens while it happens.
struct Narrator {
    quiet: bool,
}

impl Narrator {
    fn line(&self, text: &str) {
        if !self.quiet {
            super::say(text);
        }
    }

    fn scene(&self, number: usize, title: &str) {
        self.line(&format!("\n  {number}. {title}"));
    }

    fn tell(&self, text: &str) {
        self.line(&format!("     {text}"));
    }
}
