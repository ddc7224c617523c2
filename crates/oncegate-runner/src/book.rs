//! What is declared about automations: their policies and flows. Read by the store and the engine, replaced as a
//! whole when the configuration changes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, RwLock};

use oncegate_connect::TargetName;
use oncegate_core::identity::CallerRules;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::limits;
use oncegate_core::policy::Policy;
use oncegate_store::api::PolicyBook;
use oncegate_store::nodes::{Abilities, Names};

use crate::flow::Flow;
use crate::nudger::Hook;

/// One declared automation.
#[derive(Clone, Debug, Default)]
pub struct Automation {
    /// What it allows.
    pub policy: Arc<Policy>,
    /// What oncegate does for it; `None` if only callers of the gate API do its work.
    pub flow: Option<Arc<Flow>>,
    /// Template of the record its events touch.
    pub record: Option<String>,
    /// What names the effects that its callers claim.
    pub callers: Arc<CallerRules>,
    /// What is called when the caller of a stopped claim may try again.
    pub retrigger: Option<Arc<Hook>>,
}

/// Whom the first call of an automation is for, by workspace and name.
pub(crate) type FirstTargets = HashMap<Workspace, HashMap<AutomationName, TargetName>>;

/// All declared automations.
#[derive(Debug, Default)]
pub struct Book {
    automations: RwLock<HashMap<(Workspace, AutomationName), Automation>>,
}

impl Book {
    /// Declares them, in place of all that was declared before.
    pub fn declare(&self, automations: HashMap<(Workspace, AutomationName), Automation>) {
        *self.automations.write().unwrap_or_else(std::sync::PoisonError::into_inner) = automations;
    }

    /// Whether it is declared.
    pub fn declares(&self, workspace: Workspace, name: &AutomationName) -> bool {
        let book = self.automations.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        book.contains_key(&(workspace, name.clone()))
    }

    /// How many workspaces have work that oncegate itself does.
    pub(crate) fn workspaces(&self) -> usize {
        let book = self.automations.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let working = book.iter().filter(|(_, automation)| automation.flow.is_some());
        working.map(|((workspace, _), _)| workspace).collect::<HashSet<_>>().len()
    }

    /// What a node with this book can do.
    pub fn abilities(&self) -> Abilities {
        let book = self.automations.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let names = |fits: fn(&Automation) -> bool| -> Names {
            book.iter().filter(|(_, automation)| fits(automation)).map(|(name, _)| name.clone()).collect()
        };
        Abilities {
            declares: names(|_| true),
            runs: names(|automation| automation.flow.is_some()),
            calls_back: names(|automation| automation.retrigger.is_some()),
        }
    }

    /// Whom the first call of each is for, where that is the same for all of its events.
    pub(crate) fn first_targets(&self) -> FirstTargets {
        let book = self.automations.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut firsts = FirstTargets::new();
        for ((workspace, name), automation) in &*book {
            // What soon is a person's business must be seen to soon.
            let may_wait = automation.policy.sla > limits::WAITS_UNSEEN_MAX;
            let target = automation.flow.as_ref().filter(|_| may_wait).and_then(|flow| flow.first_target());
            if let Some(target) = target {
                firsts.entry(*workspace).or_default().insert(name.clone(), target);
            }
        }
        firsts
    }

    /// The declared automation, or one with defaults and no flow.
    pub fn automation(&self, workspace: Workspace, name: &AutomationName) -> Automation {
        let book = self.automations.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        book.get(&(workspace, name.clone())).cloned().unwrap_or_default()
    }
}

impl PolicyBook for Book {
    fn policy(&self, workspace: Workspace, automation: &AutomationName) -> Arc<Policy> {
        self.automation(workspace, automation).policy
    }

    fn declared(&self, workspace: Workspace) -> Vec<AutomationName> {
        let book = self.automations.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        book.keys().filter(|(of, _)| *of == workspace).map(|(_, name)| name.clone()).collect()
    }
}
