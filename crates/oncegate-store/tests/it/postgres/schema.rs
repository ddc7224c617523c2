//! The schema: made once, by however many nodes, on a database that can be trusted; and fit to be distributed.

use oncegate_store::access::Access;
use oncegate_store::postgres::PgStore;
use oncegate_store::{Store, StoreError};
use oncegate_testing::Postgres;

use super::Cluster;

#[tokio::test]
async fn nodes_that_open_an_empty_database_at_once_all_join_one_cluster() {
    let cluster = Cluster::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| cluster.options(name));
    let opened = tokio::join!(PgStore::open(&a), PgStore::open(&b), PgStore::open(&c), PgStore::open(&d));
    let nodes = [opened.0.unwrap(), opened.1.unwrap(), opened.2.unwrap(), opened.3.unwrap()];
    let mut boots: Vec<_> = nodes.iter().map(|node| node.boot().to_i64()).collect();
    boots.sort_unstable();
    boots.dedup();
    assert_eq!(boots.len(), 4, "each is known by a number of its own");
    assert_eq!(cluster.sql("SELECT value FROM oncegate.meta WHERE name = 'schema'"), "6");
    for node in &nodes {
        let names: Vec<_> = node.workspaces().await.unwrap().into_iter().map(|w| w.name).collect();
        assert_eq!(names, ["default"]);
    }
}

#[tokio::test]
async fn a_schema_of_a_newer_version_is_left_alone() {
    let cluster = Cluster::new();
    drop(PgStore::open(&cluster.options("a")).await.unwrap());
    cluster.sql("UPDATE oncegate.meta SET value = '99' WHERE name = 'schema'");
    let error = PgStore::open(&cluster.options("b")).await.err().unwrap();
    assert!(
        matches!(&error, StoreError::Refused(why) if why.contains("schema 99, this one knows 6")),
        "{error}"
    );
    assert!(error.to_string().contains("the database was written by a newer oncegate"), "{error}");
    assert_eq!(cluster.sql("SELECT name FROM oncegate.nodes"), "a", "nothing was written");
}

/// A server that acknowledges what is not on its disk would lose what we have acknowledged.
#[tokio::test]
async fn a_database_that_commits_before_it_has_written_is_refused_with_the_way_to_mend_it() {
    let cluster = Cluster::new();
    cluster.sql(&format!(
        "ALTER DATABASE {} SET synchronous_commit = off",
        cluster.sql("SELECT current_database()")
    ));
    let server = Postgres::own(&[("synchronous_commit", "off")]);
    let other = Cluster::of(&server);
    for cluster in [&cluster, &other] {
        let error = PgStore::open(&cluster.options("a")).await.err().unwrap();
        assert!(matches!(error, StoreError::Refused(_)), "{error}");
        let said = error.to_string();
        assert!(said.contains("synchronous_commit=off") && said.contains("ALTER DATABASE"), "{said}");
        assert_eq!(cluster.sql("SELECT to_regclass('oncegate.meta') IS NULL"), "t", "nothing was made");
    }
    // As it says.
    cluster.sql(&format!(
        "ALTER DATABASE {} SET synchronous_commit = on",
        cluster.sql("SELECT current_database()")
    ));
    PgStore::open(&cluster.options("a")).await.unwrap();
}

/// What a database needs that distributes its tables by workspace: the workspace in every key, and first in the primary
/// one; nothing that reaches from one row into another's workspace.
#[tokio::test]
async fn every_key_of_every_table_begins_with_the_workspace() {
    const OF_ALL: [&str; 4] = ["clock", "meta", "nodes", "workspaces"];
    let cluster = Cluster::new();
    drop(PgStore::open(&cluster.options("a")).await.unwrap());
    let keys = cluster.sql(
        "SELECT c.relname, i.indisprimary, i.indkey[0] = w.attnum, w.attnum = ANY (i.indkey), w.attnum IS NULL \
         FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
         LEFT JOIN pg_attribute w ON w.attrelid = c.oid AND w.attname = 'workspace_id' \
         WHERE n.nspname = 'oncegate' AND i.indisunique",
    );
    let tables = cluster.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'oncegate'");
    let mut primary = 0;
    for line in keys.lines() {
        let [table, is_primary, first, within, none] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!()
        };
        primary += usize::from(is_primary == "t");
        match OF_ALL.contains(&table) {
            true => assert_eq!(none, "t", "{line}"),
            false => assert!(within == "t" && (is_primary == "f" || first == "t"), "{line}"),
        }
    }
    assert_eq!(primary, tables.lines().count(), "every table has a primary key:\n{keys}");
    let outward = "SELECT conname FROM pg_constraint k JOIN pg_namespace n ON n.oid = k.connamespace \
         WHERE n.nspname = 'oncegate' AND k.contype IN ('f', 't', 'x') \
         UNION ALL SELECT tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'oncegate'";
    assert_eq!(cluster.sql(outward), "", "no foreign keys, no triggers");
}
