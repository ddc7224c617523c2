//! Puts the parts together: store, gatekeeper, engine, server; and takes them apart again in the right order.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oncegate_connect::{Caller, Mailer};
use oncegate_core::access::WorkspaceName;
use oncegate_core::key::{AutomationName, sha256};
use oncegate_core::secret::Secret;
use oncegate_runner::book::Book;
use oncegate_runner::engine::{self, Engine};
use oncegate_runner::entropy;
use oncegate_runner::flow::Action;
use oncegate_runner::gatekeeper::Gatekeeper;
use oncegate_runner::poller::Polled;
use oncegate_runner::scheduler::Scheduled;
use oncegate_runner::targets;
use oncegate_store::access::{self, Preset};
use oncegate_store::api::{Recovery, Renamed, Store, Workspace};
use oncegate_store::clock::Clock;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::backups::Backups;
use crate::config::{Config, Declared, Polling, Source, Timed};
pub use crate::http::server::Limits;
use crate::http::{AppState, Doors, api_tokens, router, server};
use crate::metrics::Metrics;
pub use crate::place::StoreUrl;
use crate::place::{Opening, open_store};

/// How to start.
pub struct Options {
    /// What is declared.
    pub config: Config,
    /// Where the store lies.
    pub store: StoreUrl,
    /// What this node is called, on a store that several share.
    pub node: String,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Accept a directory that does not last.
    pub ephemeral: bool,
    /// The first admin token, if somebody chose it; otherwise one is made.
    pub admin_token: Option<Secret>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Whether `clock` also stands in for that of a database: for tests, which turn it by hand.
    pub simulated: bool,
    /// Largest size of the database in bytes; `None` is the disk's.
    pub max_bytes: Option<u64>,
    /// What callers are granted.
    pub limits: Limits,
}

/// Why it does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store.
    #[error(transparent)]
    Store(#[from] oncegate_store::StoreError),
    /// The port.
    #[error("cannot listen on {address}: {message}; choose another address with --listen")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        message: String,
    },
    /// The HTTP client.
    #[error("cannot make outside calls: {0}")]
    Caller(String),
    /// The mail server's certificate could never be checked.
    #[error("mails cannot be sent: {0}; check `smtp` in oncegate.yaml")]
    Mail(String),
    /// A step whose calls would be refused.
    #[error("automation `{automation}`, step `{step}`: {message}")]
    Target {
        /// Which automation.
        automation: String,
        /// Which step.
        step: String,
        /// Why, and how to mend it.
        message: String,
    },
    /// A poll whose calls would be refused.
    #[error("poll `{poll}`: {message}")]
    Poll {
        /// Which source.
        poll: String,
        /// Why, and how to mend it.
        message: String,
    },
    /// The chosen admin token.
    #[error(
        "ONCEGATE_ADMIN_TOKEN is shorter than 16 characters; choose a longer one, or unset it to have one made"
    )]
    WeakToken,
    /// The chosen admin token is another one's.
    #[error(
        "ONCEGATE_ADMIN_TOKEN is known as a token for something else, and keeps its role; choose a value of its own, \
         or unset it"
    )]
    OtherToken,
}

/// A gate that runs.
pub struct Running {
    /// Where it answers.
    pub address: SocketAddr,
    /// The admin token, if it was made at this start: this is the only time it can be seen.
    pub new_token: Option<String>,
    /// The recovery that the store is in, if it is: nothing runs.
    pub recovery: Option<Recovery>,
    /// The use-cases, for those who hold the gate in their own process.
    pub gate: Arc<Gatekeeper>,
    engine: Engine,
    server: JoinHandle<()>,
    uses: JoinHandle<()>,
    nightly: Option<JoinHandle<()>>,
    stop: watch::Sender<bool>,
    state: Arc<AppState>,
    drain_notice: Duration,
}

/// How long requests in flight may take to end at shutdown, before work is drained.
const REQUESTS_DRAIN: Duration = Duration::from_secs(3);

/// Starts a gate. It answers when this returns.
///
/// # Errors
/// The store, the port or the settings.
pub async fn start(options: Options) -> Result<Running, StartError> {
    let caller = caller(&options.config)?;
    let Config {
        public_url,
        default,
        workspaces,
        trusted_proxies,
        allow_private: _,
        mail,
        concurrency,
        backup,
        metrics_public,
    } = options.config;
    // Before anything is written: a token made by a start that fails for its port would never be seen.
    let unusable = |e: std::io::Error| StartError::Listen { address: options.listen, message: e.to_string() };
    let listener = TcpListener::bind(options.listen).await.map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    let book = Arc::new(Book::default());
    let metrics = Arc::new(Metrics::new());
    metrics.started(options.clock.read().wall);
    let opening = Opening {
        node: options.node,
        clock: Arc::clone(&options.clock),
        simulated: options.simulated,
        policies: Arc::clone(&book) as _,
        ephemeral: options.ephemeral,
        max_bytes: options.max_bytes,
    };
    let store = open_store(&options.store, opening, Arc::clone(&metrics) as _).await?;
    let recovery = store.recovery().await?;
    if let Some(recovery) = &recovery {
        tracing::warn!(
            backup_at = %recovery.gap.backup_at,
            open_claims = recovery.open_claims,
            "IN RECOVERY: this store was restored from a backup, and NOTHING RUNS until a person ends the recovery"
        );
    }
    let backups = match &options.store {
        StoreUrl::Sqlite(data) => {
            let workspaces = store.workspaces().await?;
            let made_at = workspaces.first().map_or_else(|| store.now().wall, |w| w.created_at);
            let random = u32::from_be_bytes(entropy::bytes());
            Some(Arc::new(Backups::new(data, backup, Arc::clone(&options.clock), made_at, random)))
        }
        // The database's own are the only ones that can be made of it.
        StoreUrl::Postgres(_) => None,
    };
    let concurrency = concurrency.unwrap_or(CONCURRENCY);
    // Half of the runner, so that one slow target leaves the other half to the others.
    let mut targets = targets::Declared {
        shared: HashMap::new(),
        own: HashMap::new(),
        concurrency: (concurrency / 2).max(1),
    };
    let doors = declare(store.as_ref(), &book, &mut targets, default, workspaces).await?;
    let (new_token, preset_token) = first_token(store.as_ref(), options.admin_token.as_ref()).await?;
    if public_url.is_none() && !address.ip().is_loopback() {
        tracing::warn!(
            "listening on {address} without `public_url`: the URLs in answers begin with http://{address}, and what \
             is sent is not encrypted; set public_url in oncegate.yaml and put a TLS proxy in front"
        );
    }
    let mailer = mail.map(|server| Mailer::new(server.smtp)).transpose().map_err(StartError::Mail)?;
    let base_url = public_url.unwrap_or_else(|| format!("http://{address}"));
    let gate = Arc::new(Gatekeeper::new(store, book, options.clock, targets));
    gate.hello().await?;
    let engine = Engine::start(
        Arc::clone(&gate),
        engine::Options {
            concurrency,
            base_url: base_url.clone(),
            caller,
            mailer,
            schedules: Arc::clone(&doors.schedules),
            polls: Arc::clone(&doors.polls),
        },
    );
    let (stop, stopped) = watch::channel(false);
    let state = Arc::new(AppState::new(
        Arc::clone(&gate),
        doors,
        base_url,
        trusted_proxies,
        preset_token,
        metrics,
        backups.clone(),
    ));
    let uses = tokio::spawn(write_uses(Arc::clone(&state), stopped.clone()));
    let nightly = backups.map(|backups| tokio::spawn(backups.nightly(stopped.clone())));
    let router = router(Arc::clone(&state), metrics_public);
    let server = tokio::spawn(server::run(listener, router, options.limits, stopped));
    let drain_notice = options.limits.drain_notice;
    Ok(Running {
        address,
        new_token,
        recovery,
        gate,
        engine,
        server,
        uses,
        nightly,
        stop,
        state,
        drain_notice,
    })
}

/// What makes outside calls, once every target that is spelt out has been looked at: a typing error or a private
/// address that nobody allowed is told before the first event, not by it.
///
/// # Errors
/// No trusted roots, or a target that would be refused.
pub fn caller(config: &Config) -> Result<Caller, StartError> {
    let options =
        oncegate_connect::Options { allow_private: config.allow_private.clone(), ..Default::default() };
    let caller = Caller::new(&options).map_err(|e| StartError::Caller(e.to_string()))?;
    for (name, polling) in config.all().flat_map(|d| &d.polls) {
        let url = polling.call.sample(&polling.poll);
        let checked = url.and_then(|url| caller.check_url(&url).map_err(|e| e.to_string()));
        checked.map_err(|message| StartError::Poll { poll: name.clone(), message })?;
    }
    for (automation, declared) in config.all().flat_map(|d| &d.automations) {
        if let Some(hook) = &declared.retrigger {
            let url = String::from_utf8_lossy(hook.url.expose());
            caller.check_url(&url).map_err(|e| StartError::Target {
                automation: automation.to_string(),
                step: "retrigger".to_owned(),
                message: e.to_string(),
            })?;
        }
        for step in declared.flow.iter().flat_map(|flow| &flow.steps) {
            let url = match &step.action {
                Action::Http(http) => Some(&http.url),
                Action::Forward(forward) => Some(&forward.url),
                Action::Message(message) => Some(&message.url),
                Action::Email(_) | Action::Wait(_) | Action::Review(_) => None,
            };
            let looked_at = step.lookup.as_ref().map(|lookup| &lookup.request.url);
            // What a template becomes is known only when it runs.
            for url in
                url.into_iter().chain(looked_at).filter(|url| !url.contains("{{") && !url.contains("{%"))
            {
                caller.check_url(url).map_err(|e| StartError::Target {
                    automation: automation.to_string(),
                    step: step.name.clone(),
                    message: e.to_string(),
                })?;
            }
        }
    }
    Ok(caller)
}

/// Claims worked on at the same time unless declared: steps wait for others, they do not compute.
const CONCURRENCY: usize = 64;

/// Makes the workspaces that are declared, and hands each part what is declared for it. What changed since the last
/// start stands in the audit.
async fn declare(
    store: &dyn Store,
    book: &Book,
    targets: &mut targets::Declared,
    default: Declared,
    others: Vec<(WorkspaceName, Declared)>,
) -> Result<Doors, StartError> {
    let (mut doors, mut automations, mut known) = (Doors::default(), HashMap::new(), vec![]);
    let (mut schedules, mut polls) = (vec![], vec![]);
    for (name, declared) in std::iter::once((WorkspaceName::default(), default)).chain(others) {
        let (workspace, made) = store.add_workspace(name.clone(), "start".into()).await?;
        if made {
            tracing::info!("the workspace `{name}` is new");
        }
        rename(store, workspace, &declared.renamed).await?;
        for change in store.note_declared(workspace, marks(&declared)).await? {
            tracing::debug!("{name}: {change}");
        }
        match workspace {
            Workspace::DEFAULT => targets.shared = declared.targets,
            _ => targets.own.extend(declared.targets.into_iter().map(|(name, t)| ((workspace, name), t))),
        }
        automations.extend(declared.automations.into_iter().map(|(name, a)| ((workspace, name), a)));
        schedules.extend(declared.schedules.into_iter().map(|(source, Timed { automation, schedule })| {
            Scheduled { workspace, source, automation, schedule }
        }));
        for (source, Polling { source: what, poll, call }) in declared.polls {
            let Source { automation, rules, environment, .. } = what.clone();
            polls.push(Polled {
                workspace,
                source: source.clone(),
                automation,
                poll,
                call,
                rules,
                environment,
            });
            doors.add_polled(workspace, source, what);
        }
        doors.add(name, workspace, declared.sources);
        known.push(workspace);
    }
    for row in store.workspaces().await? {
        // Another node may declare what this one does not: it is not this one's to take away.
        if !known.contains(&row.workspace) && !store.is_shared() {
            store.note_declared(row.workspace, access::Declared::new()).await?;
        }
    }
    book.declare(automations);
    doors.schedules = schedules.into();
    doors.polls = polls.into();
    Ok(doors)
}

/// What tells one declaration from another. Secrets do not print, so that a new one is no change of the source.
fn marks(declared: &Declared) -> access::Declared {
    let mark = |shown: String| data_encoding::HEXLOWER.encode(&sha256(shown.as_bytes())[..8]);
    let automations = declared
        .automations
        .iter()
        .map(|(name, automation)| (format!("automation {name}"), mark(format!("{automation:?}"))));
    let sources =
        declared.sources.iter().map(|(name, source)| (format!("source {name}"), mark(format!("{source:?}"))));
    let schedules =
        declared.schedules.iter().map(|(name, timed)| (format!("source {name}"), mark(format!("{timed:?}"))));
    let polls =
        declared.polls.iter().map(|(name, polling)| (format!("source {name}"), mark(format!("{polling:?}"))));
    automations.chain(sources).chain(schedules).chain(polls).collect()
}

/// Renaming an automation never forgets what was done (DESIGN §2).
async fn rename(
    store: &dyn Store,
    workspace: Workspace,
    renamed: &[(AutomationName, AutomationName)],
) -> Result<(), StartError> {
    for (from, to) in renamed {
        match store.rename_automation(workspace, from.clone(), to.clone()).await? {
            Renamed::Written => {
                tracing::info!("the automation `{from}` is called `{to}` now; what it did is remembered")
            }
            Renamed::Nothing => {}
            Renamed::BothKnown => tracing::warn!(
                "`{to}` was `{from}`, but both have run: what was done under `{from}` is not known to `{to}`"
            ),
        }
    }
    Ok(())
}

/// Makes the first admin token, or takes the chosen one; the new one, and the number of the chosen one.
async fn first_token(
    store: &dyn Store,
    chosen: Option<&Secret>,
) -> Result<(Option<String>, Option<i64>), StartError> {
    if let Some(chosen) = chosen {
        if chosen.expose().len() < 16 {
            return Err(StartError::WeakToken);
        }
        let preset = store.preset_token(api_tokens::first(chosen.expose())).await?;
        match preset {
            Preset::Made(_) | Preset::Good(_) => {}
            // Whoever left it in the environment by mistake must come to know.
            Preset::Restored(id) => tracing::warn!(
                "token {id} was revoked or had expired; ONCEGATE_ADMIN_TOKEN makes it good again. If it has leaked, \
                 change ONCEGATE_ADMIN_TOKEN and revoke it"
            ),
            Preset::Other => return Err(StartError::OtherToken),
        }
        return Ok((None, preset.id()));
    }
    // Whoever is left without a good one sets ONCEGATE_ADMIN_TOKEN.
    if !store.tokens(Workspace::DEFAULT).await?.is_empty() {
        return Ok((None, None));
    }
    let token = api_tokens::fresh();
    store.add_token(api_tokens::first(token.as_bytes())).await?;
    Ok((Some(token), None))
}

/// How often it is written down when tokens were last used.
const USES_WRITTEN: Duration = Duration::from_secs(60);

async fn write_uses(state: Arc<AppState>, mut stopped: watch::Receiver<bool>) {
    loop {
        let ends = tokio::select! {
            () = state.gate.clock().sleep(USES_WRITTEN) => false,
            _ = stopped.changed() => true,
        };
        if let Err(error) = state.write_uses(ends).await {
            tracing::warn!(%error, "could not write down how tokens were used");
        }
        if ends {
            return;
        }
    }
}

impl Running {
    /// Says that it is about to stop, for as long as was asked for; then stops taking requests, drains what runs, hands
    /// back what is left, closes the store.
    pub async fn stop(self) {
        self.state.health.drain();
        if !self.drain_notice.is_zero() {
            tokio::time::sleep(self.drain_notice).await;
        }
        let _ = self.stop.send(true);
        let mut server = self.server;
        if tokio::time::timeout(REQUESTS_DRAIN, &mut server).await.is_err() {
            server.abort();
        }
        // Nobody loses more by it than a minute of `last_used_at`.
        let _ = self.uses.await;
        // One that is being made is left unfinished, under a name that no restore takes.
        if let Some(nightly) = self.nightly {
            nightly.abort();
        }
        self.engine.drain().await;
        self.gate.store().close().await;
    }
}
