//! The scripts of examples/, each as its platform calls it, against a gate and a receiver that counts.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::json;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{gate, token};
use crate::harness::{Gate, Hold, Receiver, Reply, mins};

/// A recipe, and the key of submission `8812` by it.
struct Recipe {
    name: &'static str,
    key: &'static str,
}

const RECIPES: [Recipe; 5] = [
    Recipe { name: "curl", key: "form=contact-form:submission=8812" },
    Recipe { name: "zapier", key: "form=contact-form:submission=8812" },
    Recipe { name: "hubspot", key: "form=HubSpot 1:submission=CONTACT 4 8812" },
    Recipe { name: "apps-script-form", key: "form=contact-form:submission=8812" },
    Recipe { name: "apps-script-sheet", key: "form=contact-sheet 0:submission=row 7 8812" },
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The one on the path, or the one that scripts/official.sh got where there was none.
fn node() -> Command {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    Command::new(FOUND.get_or_init(|| {
        let fits = |program: &PathBuf| {
            let said = Command::new(program).arg("--version").output().map(|said| said.stdout);
            let version = String::from_utf8(said.unwrap_or_default()).unwrap();
            let major =
                version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
            major.is_some_and(|major| major >= 20)
        };
        let known = ["node".into(), root().join("target/official/venv/bin/node")];
        let found = known.into_iter().find(fits);
        found.expect(
            "the recipes run on Node 20 or later: install it, or let scripts/official.sh --install get one",
        )
    }))
}

/// What a run wrote, and whether its platform would show it as failed.
struct Ran {
    said: String,
    failed: bool,
}

impl Ran {
    #[track_caller]
    fn says(&self, words: &str, failed: bool) {
        assert!(
            self.said.contains(words) && self.failed == failed,
            "{words} {failed}: {} {}",
            self.failed,
            self.said
        );
    }
}

/// What a recipe is told of its gate.
struct Door {
    url: String,
    token: String,
}

/// With a token that can claim keys of this automation, and nothing else.
async fn door(gate: &Gate) -> Door {
    Door { url: gate.api.base().to_owned(), token: token(gate).await }
}

/// Begins to run a recipe for a submission.
fn start(recipe: &Recipe, door: &Door, receiver: &Receiver, submission: &str) -> JoinHandle<Ran> {
    let crm = format!("{}/crm", receiver.url());
    let mut command = if recipe.name == "curl" {
        let mut sh = Command::new("sh");
        sh.arg("examples/curl/gate.sh").args(["welcome mail", "contact-form", submission, "--"]);
        sh.args(["curl", "--silent", "--show-error", "--fail", "--request", "POST", &crm]);
        sh.env("GATE_STEP", "add to CRM").env("GATE_PAUSES", "0");
        sh
    } else {
        let mut node = node();
        node.arg("scripts/recipes/play.mjs").args([recipe.name, submission]);
        node
    };
    command.current_dir(root());
    command.env("GATE_URL", &door.url).env("GATE_TOKEN", &door.token).env("CRM_URL", crm);
    spawn_blocking(move || {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        // A stop is a status of its own, for those who branch on it.
        Ran { said, failed: !matches!(status.code(), Some(0 | 3)) }
    })
}

/// Runs a recipe once for a submission.
async fn run(recipe: &Recipe, door: &Door, receiver: &Receiver, submission: &str) -> Ran {
    start(recipe, door, receiver, submission).await.unwrap()
}

async fn claim_of(gate: &Gate, recipe: &Recipe) -> Option<serde_json::Value> {
    gate.api.find("welcome mail", recipe.key).await
}

#[tokio::test]
async fn a_submission_that_comes_five_times_has_one_effect() {
    for recipe in &RECIPES {
        let (receiver, name) = (Receiver::start().await, recipe.name);
        let gate = gate(&receiver).await;
        let door = door(&gate).await;
        let started: Vec<_> = (0..4).map(|_| start(recipe, &door, &receiver, "8812")).collect();
        let mut at_once = vec![];
        for one in started {
            at_once.push(one.await.unwrap());
        }
        assert_eq!(receiver.to("/crm").len(), 1, "{name}");
        assert_eq!(at_once.iter().filter(|ran| ran.said.contains("stop: ")).count(), 3, "{name}");
        assert!(at_once.iter().all(|ran| !ran.failed), "{name}: a duplicate is no error");
        run(recipe, &door, &receiver, "8812").await.says("stop: duplicate", false);
        assert_eq!(receiver.to("/crm").len(), 1, "{name}");
        let claim = claim_of(&gate, recipe).await.unwrap_or_else(|| panic!("{name}: another key"));
        assert_eq!(
            (&claim["processing_state"], &claim["stopped"]["count"]),
            (&json!("done"), &json!(4)),
            "{name}"
        );
        run(recipe, &door, &receiver, "8813").await;
        assert_eq!(receiver.to("/crm").len(), 2, "{name}: another submission is another effect");
    }
}

#[tokio::test]
async fn a_step_that_fails_is_in_the_list_of_errors_by_its_name_and_is_not_done_again() {
    for recipe in &RECIPES {
        let (receiver, name) = (Receiver::start().await, recipe.name);
        receiver.script("/crm", [Reply::status(500)]);
        let gate = gate(&receiver).await;
        let door = door(&gate).await;
        run(recipe, &door, &receiver, "8812").await;
        let claim = claim_of(&gate, recipe).await.unwrap_or_else(|| panic!("{name}: another key"));
        assert_eq!(
            (&claim["processing_state"], &claim["inbox"]),
            (&json!("error"), &json!("error")),
            "{name}"
        );
        let note = claim["note"].as_str().unwrap();
        assert!(note.starts_with("add to CRM: ") && note.contains("500"), "{name}: {note}");
        run(recipe, &door, &receiver, "8812").await.says("stop: needs_review", false);
        assert_eq!(receiver.to("/crm").len(), 1, "{name}");
        // A person has looked, and replays it in the tool.
        gate.api.reset(claim["claim_id"].as_str().unwrap()).await.ok();
        run(recipe, &door, &receiver, "8812").await;
        assert_eq!(receiver.to("/crm").len(), 2, "{name}");
        assert_eq!(claim_of(&gate, recipe).await.unwrap()["processing_state"], "done", "{name}");
    }
}

#[tokio::test]
async fn without_the_gate_nothing_is_done_and_after_it_came_back_once() {
    for recipe in &RECIPES {
        let receiver = Receiver::start().await;
        let mut gate = gate(&receiver).await;
        let door = door(&gate).await;
        gate.stop().await;
        let ran = run(recipe, &door, &receiver, "8812").await;
        ran.says("not answer", true);
        assert!(receiver.requests().is_empty(), "{}", recipe.name);
        gate.reopen().await;
        for _ in 0..2 {
            run(recipe, &door, &receiver, "8812").await;
        }
        assert_eq!(receiver.to("/crm").len(), 1, "{}", recipe.name);
    }
}

#[tokio::test]
async fn work_of_which_the_gate_could_not_be_told_is_said_and_not_done_again() {
    for recipe in &RECIPES {
        let (receiver, hold, name) = (Receiver::start().await, Hold::new(), recipe.name);
        receiver.script("/crm", [Reply::held(&hold)]);
        let mut gate = gate(&receiver).await;
        let door = door(&gate).await;
        let running = start(recipe, &door, &receiver, "8812");
        receiver.got("/crm", 1).await;
        gate.stop().await;
        hold.let_go();
        let ran = running.await.unwrap();
        assert!(ran.failed && ran.said.contains("could not be told"), "{name}: {}", ran.said);
        gate.reopen().await;
        // Nobody may take it for dead and do it again: after its TTL a person looks.
        gate.advance(mins(6)).await;
        run(recipe, &door, &receiver, "8812").await.says("stop: needs_review", false);
        assert_eq!(receiver.to("/crm").len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_submission_that_names_itself_not_is_not_worked_on() {
    for recipe in &RECIPES {
        let receiver = Receiver::start().await;
        let gate = gate(&receiver).await;
        let door = door(&gate).await;
        let ran = run(recipe, &door, &receiver, "").await;
        ran.says("missing or blank", true);
        ran.says("nothing was", true);
        assert!(receiver.requests().is_empty() && gate.api.list("").await.is_empty(), "{}", recipe.name);
    }
    let receiver = Receiver::start().await;
    let gate = gate(&receiver).await;
    let door = door(&gate).await;
    let by_hand = Recipe { name: "apps-script-by-hand", key: "" };
    run(&by_hand, &door, &receiver, "").await.says("names no submission", true);
    assert!(receiver.requests().is_empty());
}

#[tokio::test]
async fn a_200_that_is_no_answer_of_a_gate_is_an_error_and_nothing_is_done() {
    for recipe in &RECIPES {
        for answer in ["{}", "null", "<h1>Welcome</h1>"] {
            let (receiver, mistaken) = (Receiver::start().await, Receiver::start().await);
            mistaken.always("/v1/claims", Reply::Status(200, vec![], answer.to_owned()));
            let door = Door { url: mistaken.url(), token: "oga_of_another".to_owned() };
            run(recipe, &door, &receiver, "8812").await.says("not the answer of a gate", true);
            assert!(receiver.requests().is_empty(), "{}", recipe.name);
            mistaken.got("/v1/claims", 1).await;
            assert_eq!(mistaken.requests().len(), 1, "{}", recipe.name);
        }
    }
}
