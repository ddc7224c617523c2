//! `oncegate claim … -- COMMAND`: claims, runs the command, keeps the lease alive, and tells how it ended. What cron
//! and systemd timers want.
//!
//! The gate hears `done` only after the command ended well; if the gate is away at that moment, it is told again and
//! again, because the effect has happened. If this process is killed, nothing is told: the claim goes stale after its
//! TTL and stands in the stuck list.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use oncegate_runner::entropy;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};

use super::super::ending::Failure;
use super::super::term;
use super::super::term::text::clean;
use super::claim::stop_line;
use super::finish::Holder;
use super::gate::{Answer, Gate};
use super::trouble::Trouble;

/// How to run a command once.
pub(super) struct Once {
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// A failure surely did nothing.
    pub(super) retryable: bool,
    /// The exit status for stop.
    pub(super) stop_exit: u8,
    pub(super) quiet: bool,
    /// Between two heartbeats. Far below the shortest TTL, so that some may get lost.
    pub(super) heartbeat: Duration,
    /// How long the end is told to a gate that does not answer.
    pub(super) tell_for: Duration,
}

/// Pauses before the claim is asked again because its answer was lost. Its own `run_id` makes that harmless.
const ASK_AGAIN: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// After a signal, how long an answer that may have granted the run is waited for, so as to hand it back.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(3);
/// Pauses between two tries to tell how it ended grow up to this.
const TELL_PAUSE_MAX: Duration = Duration::from_secs(15);

/// Exit status for a program that is not there, and for one that cannot be run: a shell's own.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

pub(super) async fn run(gate: &Gate, mut fields: Value, once: Once) -> Result<u8, Failure> {
    if fields["run_id"].is_null() {
        fields["run_id"] = format!("cli:{}", data_encoding::HEXLOWER.encode(&entropy::bytes::<16>())).into();
    }
    // Listened for before anything can run, so that no signal is missed.
    let mut signals = Signals::listen()?;
    let (asked, signal) = listening(ask(gate, &fields), &mut signals).await;
    let answer = match (asked, signal) {
        (Some(Ok(answer)), _) if answer.body["decision"] != "run" => {
            if !once.quiet {
                term::tell(stop_line(&answer.body));
            }
            return Ok(once.stop_exit);
        }
        (Some(Ok(answer)), None) => answer,
        (Some(Ok(answer)), Some(signal)) => {
            let note = "interrupted before the command was started";
            // The lease ends by itself if this does not arrive.
            let _ = holder(&answer)?.say(gate, "error", &json!({ "note": note, "retryable": true })).await;
            return Ok(of_signal(signal));
        }
        (_, Some(signal)) => return Ok(of_signal(signal)),
        (Some(Err(trouble)), None) => return Err(Failure::from(trouble).hint("the command was not run")),
        (None, None) => return Err(Failure::from("the claim was not answered".to_owned())),
    };
    let holder = holder(&answer)?;
    let child = match spawn(&once.command, &answer.body) {
        Ok(child) => child,
        Err(error) => return Ok(not_started(gate, &holder, &once, &error, &mut signals).await),
    };
    let status = attend(gate, &holder, child, once.heartbeat, &mut signals).await?;
    ended(gate, &holder, &once, status, &mut signals, &answer.body).await
}

/// What was answered, unless a signal came first and nothing was within a moment after it.
async fn listening<T>(asking: impl Future<Output = T>, signals: &mut Signals) -> (Option<T>, Option<Signal>) {
    tokio::pin!(asking);
    tokio::select! {
        answer = &mut asking => (Some(answer), None),
        signal = signals.next() => (tokio::time::timeout(LAST_ANSWER_MAX, asking).await.ok(), Some(signal)),
    }
}

async fn ask(gate: &Gate, fields: &Value) -> Result<Answer, Trouble> {
    let mut pauses = ASK_AGAIN.iter();
    loop {
        match gate.post(&["v1", "claims"], fields).await {
            Err(trouble) if trouble.is_passing() => match pauses.next() {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return Err(trouble),
            },
            said => return said,
        }
    }
}

fn holder(answer: &Answer) -> Result<Holder, Failure> {
    let url = answer.body["done_url"].as_str().and_then(|url| url.parse().ok());
    url.map(Holder::Url).ok_or_else(|| Failure::from("the gate said run, but gave no done_url".to_owned()))
}

fn spawn(command: &[String], claim: &Value) -> std::io::Result<Child> {
    let (program, arguments) = match command.split_first() {
        Some((program, arguments)) => (program.as_str(), arguments),
        None => ("", command),
    };
    let text = |name: &str| claim[name].as_str().unwrap_or_default();
    Command::new(program)
        .args(arguments)
        .env("ONCEGATE_CLAIM_ID", text("claim_id"))
        .env("ONCEGATE_IDEMPOTENCY_KEY", text("idempotency_key"))
        .env("ONCEGATE_RUN_REASON", text("reason"))
        .env("ONCEGATE_ATTEMPT", claim["attempt"].to_string())
        .env("ONCEGATE_DONE_URL", text("done_url"))
        .env("ONCEGATE_ERROR_URL", text("error_url"))
        .env("ONCEGATE_HEARTBEAT_URL", text("heartbeat_url"))
        .spawn()
}

/// Waits for the command. Meanwhile signals are passed on to it and the gate hears that it lives.
async fn attend(
    gate: &Gate,
    holder: &Holder,
    mut child: Child,
    every: Duration,
    signals: &mut Signals,
) -> Result<ExitStatus, Failure> {
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    // Not yet waited for, so the number still means this child.
    let pass_on = |signal| pid.map(|pid| kill_process(pid, signal));
    let beats = beat(gate, holder, every);
    tokio::pin!(beats);
    let mut beating = true;
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return status.map_err(|e| format!("the command cannot be waited for: {e}").into()),
            signal = signals.next() => {
                if signal != Signal::INT || !signals.interrupted_by_terminal {
                    pass_on(signal);
                }
            }
            ended = &mut beats, if beating => {
                beating = false;
                if ended.code() == "lost_claim" {
                    term::tell(format_args!("{ended}\n  → the command is asked to stop (SIGTERM): somebody else may run it"));
                    pass_on(Signal::TERM);
                }
            }
        }
    }
}

/// Says again and again that the command runs, until that makes no sense any more.
async fn beat(gate: &Gate, holder: &Holder, every: Duration) -> Trouble {
    let mut silent = false;
    loop {
        tokio::time::sleep(every).await;
        match holder.say(gate, "heartbeat", &json!({})).await {
            Ok(_) => silent = false,
            Err(trouble) if trouble.is_passing() => {
                if !silent {
                    term::tell(format_args!("{trouble}\n  → the command goes on; the gate is told again"));
                }
                silent = true;
            }
            Err(trouble) => return trouble,
        }
    }
}

/// Nothing has happened, so whoever comes next may run it.
async fn not_started(
    gate: &Gate,
    holder: &Holder,
    once: &Once,
    error: &std::io::Error,
    signals: &mut Signals,
) -> u8 {
    let name = clean(once.command.first().map_or("", String::as_str));
    term::tell(format_args!("`{name}` cannot be started: {error}"));
    let fields = json!({ "note": format!("`{name}` cannot be started: {error}"), "retryable": true });
    if let Err(trouble) = told(gate, holder, "error", &fields, once.tell_for, signals).await {
        term::tell(format_args!("the gate could not be told: {trouble}"));
    }
    if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE }
}

async fn ended(
    gate: &Gate,
    holder: &Holder,
    once: &Once,
    status: ExitStatus,
    signals: &mut Signals,
    claim: &Value,
) -> Result<u8, Failure> {
    if status.success() {
        let Err(trouble) = told(gate, holder, "done", &json!({}), once.tell_for, signals).await else {
            return Ok(0);
        };
        let id = clean(claim["claim_id"].as_str().unwrap_or_default());
        let passing = trouble.is_passing();
        let failure = Failure::from(trouble).hint("the command has succeeded, and the gate does not know it");
        return Err(match passing {
            true => failure.hint(format!(
                "when it answers: oncegate mark-error {id} --tag not-told --reason '…', then oncegate mark-done {id} --reason '…'"
            )),
            false => failure.hint(format!("look at it: oncegate show {id}")),
        });
    }
    // Arguments may hold secrets: only the program is named.
    let name = clean(once.command.first().map_or("", String::as_str));
    let (code, how) = match (status.code(), status.signal()) {
        (Some(code), _) => (u8::try_from(code).unwrap_or(1), format!("ended with exit status {code}")),
        (None, Some(signal)) => {
            (128 | u8::try_from(signal).unwrap_or(0), format!("was ended by signal {signal}"))
        }
        (None, None) => (1, "ended without a status".to_owned()),
    };
    let fields = json!({ "note": format!("`{name}` {how}"), "retryable": once.retryable });
    if let Err(trouble) = told(gate, holder, "error", &fields, once.tell_for, signals).await {
        term::tell(format_args!("the command failed, and the gate could not be told: {trouble}"));
    }
    Ok(code)
}

/// Tells how it ended until the gate answers, `within` has passed, or somebody wants this process to end.
async fn told(
    gate: &Gate,
    holder: &Holder,
    verb: &str,
    fields: &Value,
    within: Duration,
    signals: &mut Signals,
) -> Result<Answer, Trouble> {
    let deadline = tokio::time::sleep(within);
    tokio::pin!(deadline);
    let mut pause = Duration::from_secs(1);
    loop {
        let trouble = match holder.say(gate, verb, fields).await {
            Err(trouble) if trouble.is_passing() => trouble,
            said => return said,
        };
        if deadline.is_elapsed() {
            return Err(trouble);
        }
        let words = term::age::words(within);
        if pause == Duration::from_secs(1) {
            term::tell(format_args!("{trouble}\n  → it is told `{verb}` again, for up to {words}"));
        }
        tokio::select! {
            _ = signals.next() => return Err(trouble),
            () = tokio::time::sleep(pause) => {}
            () = &mut deadline => return Err(trouble),
        }
        pause = (pause * 2).min(TELL_PAUSE_MAX);
    }
}

fn of_signal(signal: Signal) -> u8 {
    128 | u8::try_from(signal.as_raw()).unwrap_or(0)
}

/// The signals by which a process is asked to end.
struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hangup: unix::Signal,
    /// Ctrl-C reaches the command by itself: the terminal sends it to all that run in the foreground.
    interrupted_by_terminal: bool,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let on =
            |kind| unix::signal(kind).map_err(|e| Failure::from(format!("cannot listen for signals: {e}")));
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
            interrupted_by_terminal: std::io::IsTerminal::is_terminal(&std::io::stdin()),
        })
    }

    /// The next one.
    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.hangup.recv() => Signal::HUP,
        }
    }
}
