//! A real disk that is really full, under the real program.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::dice::say;
use crate::wire;
use crate::world::{Gate, Ground, Receiver, SECRET, Site, until};

/// A small disk of its own. To mount one takes a right that some containers do not have.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf, size: &str) -> Result<Self, String> {
        std::fs::create_dir_all(&at).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&at)
            .output();
        match mount {
            Ok(ended) if ended.status.success() => Ok(Self(at)),
            other => Err(format!("{other:?}")),
        }
    }

    /// Somebody else takes the rest, to the last byte.
    fn fill(&self) {
        let mut ballast = File::create(self.0.join("ballast")).unwrap();
        for size in [1 << 16, 1 << 9, 1] {
            let block = vec![1u8; size];
            while ballast.write_all(&block).is_ok() {}
        }
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn deliver(gate: &Gate, key: &str) -> (u16, Value) {
    let headers =
        [("content-type", "application/json"), ("x-shared-secret", SECRET), ("idempotency-key", key)];
    let body = json!({ "order": key, "note": "x".repeat(8_000) }).to_string();
    let answer = wire::call(gate.at, "POST", "/in/once", &headers, body.as_bytes()).unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

#[test]
fn on_a_full_disk_nothing_is_acknowledged_or_claimed_and_with_room_again_each_event_runs_once() {
    let ground = Ground::new("full_disk");
    let disk = match Disk::mount(ground.path("data"), "96m") {
        Ok(disk) => disk,
        // Said past the test runner: what did not run must not look as if it had.
        Err(why) => {
            return say(&format!("NOT TESTED on a real full disk: this machine lets us mount none ({why})"));
        }
    };
    let receiver = Receiver::start(&ground, "once", &[]);
    let config = format!(
        "outgoing:\n  allow_private: ['127.0.0.1']\nsources:\n  once: {{ provider: zapier, secret: 'env:LAB_SECRET', \
         automation: once }}\nautomations:\n  once:\n    steps:\n      - {{ name: write, http: {{ url: \
         'http://{}/once' }}, repeat: by_key }}\n",
        receiver.at
    );
    let site = Site::new(&ground, &config);
    let gate = site.start(None);
    assert_eq!(deliver(&gate, "before").0, 200);
    until("the effect of the first", || (receiver.arrivals().len() == 1).then_some(()));

    disk.fill();
    for key in ["new-1", "new-2", "new-1"] {
        let (status, said) = deliver(&gate, key);
        assert_eq!((status, &said["code"]), (503, &json!("store_unavailable")), "{said}");
        assert!(said["detail"].as_str().unwrap().contains("free"), "{said}");
    }
    let claim = json!({ "automation": "by hand", "idempotency_key": "k" });
    assert_eq!(gate.refused("/v1/claims", &claim), 503);
    let listed = gate.get("/v1/claims");
    let keys: Vec<_> = listed["claims"].as_array().unwrap().iter().map(|c| &c["idempotency_key"]).collect();
    assert_eq!(keys.len(), 1, "nothing new was claimed: {keys:?}");
    assert_eq!(receiver.arrivals().len(), 1, "and nothing ran");

    // Killed on the full disk, and started with room again.
    gate.kill();
    disk.empty();
    let gate = site.start(None);
    for (key, words) in [
        ("new-1", "accepted"),
        ("new-2", "accepted"),
        ("new-1", "already accepted"),
        ("before", "already accepted"),
    ] {
        let (status, said) = deliver(&gate, key);
        assert_eq!((status, &said["status"]), (200, &json!(words)), "{key}");
    }
    until("each has its effect", || (receiver.arrivals().len() == 3).then_some(()));
    until("all are done", || {
        (gate.get("/v1/claims?state=done")["claims"].as_array().unwrap().len() == 3).then_some(())
    });
    assert_eq!(receiver.arrivals().iter().filter(|arrival| arrival.did == "effect").count(), 3);
}
