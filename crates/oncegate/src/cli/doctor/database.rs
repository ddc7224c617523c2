//! The checks of a store on PostgreSQL.

use std::time::Duration;

use oncegate_core::limits;
use oncegate_core::policy::in_words;
use oncegate_store::postgres::Inspection;

use super::checks::bytes_in_words;
use super::report::Finding;

/// What was seen of the database, or why nothing was.
pub(super) type Seen = Result<Inspection, String>;

pub(super) fn findings(seen: &Seen) -> Vec<Finding> {
    let i = match seen {
        Ok(inspection) => inspection,
        Err(why) => {
            return vec![Finding::problem(
                "database",
                why.clone(),
                "mend that, and run doctor with the environment of the service",
            )];
        }
    };
    vec![
        database(i),
        durability(i),
        schema(i),
        store(i),
        encryption(i),
        clock(i),
        nodes(i),
        connections(i),
        backup(),
    ]
}

fn database(i: &Inspection) -> Finding {
    let said = format!("PostgreSQL {}, {}", i.version, bytes_in_words(i.database_bytes));
    match i.is_standby {
        false => Finding::ok("database", said),
        true => Finding::problem(
            "database",
            format!("{said}: a standby, which cannot be written to"),
            "name the primary in --store, or an address that follows it",
        ),
    }
}

fn durability(i: &Inspection) -> Finding {
    let said = format!("synchronous_commit={}, fsync={}", i.synchronous_commit, i.fsync);
    match i.fsync.as_str() {
        "off" => Finding::problem(
            "durability",
            format!("{said}: a crash of the database's machine may lose or damage everything"),
            "set fsync = on in postgresql.conf and restart the server",
        ),
        _ => Finding::ok("durability", format!("{said}: an answer means that the database has it on disk")),
    }
}

fn schema(i: &Inspection) -> Finding {
    const NAME: &str = "schema";
    let Some(schema) = i.schema else {
        return Finding::skipped(NAME, "there is no store in this database yet; the first node makes it");
    };
    let said = format!("the database has schema {schema}, this program knows {}", i.schema_known);
    match schema.cmp(&i.schema_known) {
        std::cmp::Ordering::Equal => Finding::ok(NAME, format!("{schema}, as this program has it")),
        std::cmp::Ordering::Less => Finding::warn(
            NAME,
            said,
            "the next node that starts brings it up to date, and nodes of the version before cannot start again; make a \
             backup first",
        ),
        std::cmp::Ordering::Greater => Finding::problem(
            NAME,
            said,
            "run the newer oncegate that wrote it; this one refuses to start on it",
        ),
    }
}

fn store(i: &Inspection) -> Finding {
    const NAME: &str = "store";
    match (i.schema, i.unfinished_move, i.recovering) {
        (_, true, _) => Finding::problem(
            NAME,
            "a store is being moved into this database, or that was taken back: no node starts on it",
            "call `oncegate move` again with the same --from and --to; or start the gate where the store still is",
        ),
        (None, false, _) => Finding::skipped(NAME, "there is none yet"),
        (Some(_), false, true) => super::checks::in_recovery(),
        (Some(_), false, false) => Finding::ok(NAME, "in use: neither in recovery nor being moved"),
    }
}

fn encryption(i: &Inspection) -> Finding {
    match i.encrypted {
        true => Finding::ok("encryption", "TLS, with the server's certificate checked"),
        false => Finding::warn(
            "encryption",
            "what is sent to the database is not encrypted; good on this machine, or on a network that you trust",
            "write sslmode=verify-full in the store's URL, with sslrootcert=FILE for an authority of your own",
        ),
    }
}

fn clock(i: &Inspection) -> Finding {
    const NAME: &str = "clock and database";
    let way = Duration::from_millis(i.way_ms.unsigned_abs());
    let apart = Duration::from_millis(i.ahead_ms.unsigned_abs());
    match apart > limits::CLOCK_SLACK + way {
        false => Finding::ok(NAME, format!("{} ms apart; the database's counts", i.ahead_ms.unsigned_abs())),
        true => Finding::warn(
            NAME,
            format!(
                "the database's clock is {} {} this machine's; the database's counts, but logs will not fit together",
                in_words(apart),
                if i.ahead_ms > 0 { "ahead of" } else { "behind" }
            ),
            "set both right by time synchronisation (NTP)",
        ),
    }
}

fn nodes(i: &Inspection) -> Finding {
    const NAME: &str = "nodes";
    let alive: Vec<&str> = i.nodes.iter().filter(|n| n.alive).map(|n| n.name.as_str()).collect();
    if i.nodes.is_empty() {
        return Finding::skipped(NAME, "none has been here yet");
    }
    let mut versions: Vec<&str> = i.nodes.iter().filter(|n| n.alive).map(|n| n.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    match (alive.is_empty(), versions.len()) {
        (true, _) => Finding::warn(
            NAME,
            format!("none of {} is alive: nothing runs, and nothing is taken", i.nodes.len()),
            "start one; with --url doctor asks whether it answers",
        ),
        (false, 0 | 1) => Finding::ok(NAME, format!("alive: {}", alive.join(", "))),
        (false, _) => Finding::warn(
            NAME,
            format!("alive: {}; of different versions: {}", alive.join(", "), versions.join(", ")),
            "good while you upgrade one after the other; then all should be the same",
        ),
    }
}

fn connections(i: &Inspection) -> Finding {
    let alive = i64::try_from(i.nodes.iter().filter(|n| n.alive).count()).unwrap_or(i64::MAX).max(1);
    let wanted = alive.saturating_mul(i.connections_of_a_node);
    let said =
        format!("{alive} node(s) make up to {wanted} connections; the server takes {}", i.connections_max);
    match wanted <= i.connections_max {
        true => Finding::ok("connections", said),
        false => Finding::warn(
            "connections",
            said,
            "raise max_connections: under load some calls would be told 503",
        ),
    }
}

fn backup() -> Finding {
    Finding::skipped(
        "backup",
        "oncegate makes none of PostgreSQL; see that pg_dump or your provider does (docs/postgresql.md)",
    )
}

#[cfg(test)]
mod tests {
    use oncegate_core::time::Timestamp;
    use oncegate_store::nodes::NodeRow;

    use super::super::report::Mark;
    use super::*;

    fn node(name: &str, alive: bool, version: &str) -> NodeRow {
        let seen_at = Timestamp::from_secs(0);
        NodeRow { name: name.into(), start: 1, seen_at, alive, version: version.into(), is_me: false }
    }

    fn well() -> Inspection {
        Inspection {
            version: "15.4".into(),
            is_standby: false,
            synchronous_commit: "on".into(),
            fsync: "on".into(),
            encrypted: true,
            ahead_ms: -12,
            way_ms: 1,
            schema: Some(1),
            schema_known: 1,
            connections_max: 97,
            connections_of_a_node: 16,
            recovering: false,
            unfinished_move: false,
            database_bytes: 1 << 30,
            nodes: vec![node("a", true, "1"), node("b", true, "1")],
        }
    }

    /// A check, what it says of a change, and the change.
    type Case = (&'static str, Mark, &'static str, fn(&mut Inspection));

    #[test]
    fn each_check_of_a_database() {
        let cases: [Case; 17] = [
            ("database", Mark::Problem, "standby", |i| i.is_standby = true),
            ("durability", Mark::Problem, "fsync=off", |i| i.fsync = "off".into()),
            ("schema", Mark::Skipped, "no store", |i| i.schema = None),
            ("schema", Mark::Warn, "schema 1, this program knows 2", |i| i.schema_known = 2),
            ("schema", Mark::Problem, "schema 2, this program knows 1", |i| i.schema = Some(2)),
            ("store", Mark::Problem, "no node starts", |i| i.unfinished_move = true),
            ("store", Mark::Warn, "in recovery", |i| i.recovering = true),
            ("encryption", Mark::Warn, "not encrypted", |i| i.encrypted = false),
            ("clock and database", Mark::Warn, "3 min ahead of", |i| i.ahead_ms = 180_000),
            ("clock and database", Mark::Warn, "3 min behind", |i| i.ahead_ms = -180_000),
            ("clock and database", Mark::Ok, "180000 ms", |i| (i.ahead_ms, i.way_ms) = (180_000, 180_000)),
            ("nodes", Mark::Skipped, "none", |i| i.nodes.clear()),
            ("nodes", Mark::Warn, "none of 2 is alive", |i| i.nodes.iter_mut().for_each(|n| n.alive = false)),
            ("nodes", Mark::Warn, "different versions: 1, 2", |i| i.nodes.push(node("c", true, "2"))),
            ("nodes", Mark::Ok, "alive: a, b", |i| i.nodes.push(node("c", false, "2"))),
            ("connections", Mark::Warn, "up to 32 connections", |i| i.connections_max = 31),
            ("backup", Mark::Skipped, "pg_dump", |_| ()),
        ];
        for (check, mark, word, change) in cases {
            let mut inspection = well();
            change(&mut inspection);
            let found = findings(&Ok(inspection)).into_iter().find(|f| f.check == check).unwrap();
            assert_eq!(found.mark, mark, "{found:?}");
            assert!(found.said.contains(word), "{word}: {found:?}");
            assert_eq!(found.mend.is_some(), matches!(mark, Mark::Warn | Mark::Problem), "{found:?}");
        }
        let all = findings(&Ok(well()));
        assert!(all.iter().all(|f| matches!(f.mark, Mark::Ok | Mark::Skipped)), "{all:?}");
        let [away] = &findings(&Err("away".into()))[..] else { panic!("one") };
        assert_eq!((away.mark, away.said.as_str()), (Mark::Problem, "away"));
    }
}
