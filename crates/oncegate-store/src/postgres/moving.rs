//! A database as what an embedded store arrives in: marked before the first row, so that no node starts on half of it.

use bytes::BytesMut;
use deadpool_postgres::{GenericClient, Object, Transaction};
use oncegate_core::key::Workspace;
use tokio_postgres::Row;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::clock::WALL_SQL;
use super::context::TRIES;
use super::error::{Fault, unreadable};
use super::migrations::{self, fatal};
use super::options::{Limits, Options, Target};
use super::pool;
use super::row::storable;
use crate::StoreError;
use crate::moving::{Carried, Cell, Cells, Column, Kind, Mark, Tally};

/// Tables that are not copied row by row: what they hold is made anew, or of no use here.
const OF_THE_CLUSTER: [&str; 3] = ["meta", "clock", "nodes"];
/// The mark's name in `meta`, and its name once the move is over.
pub(super) const MOVING: &str = "moving";
const MOVED_FROM: &str = "moved_from";
/// Rows that are read back at a time.
const READ_BACK: i32 = 4_096;
/// Reading a large table back is one statement.
const STATEMENT: std::time::Duration = std::time::Duration::from_secs(3_600);

/// A database that a store is moved into, or was.
pub(crate) struct Arriving {
    client: Object,
    name: String,
    simulated: Option<i64>,
    /// The mark as it was written: somebody else's may come in its place.
    own: String,
}

impl Arriving {
    /// Connects, and makes the schema.
    pub(crate) async fn connect(options: &Options) -> Result<Self, StoreError> {
        let target = Target::parse(&options.url)?;
        let name = target.name();
        let limits = Limits { connections: 1, statement: STATEMENT, ..options.limits };
        let pool = pool::make(target, &options.node, &limits)?;
        migrations::migrate(&pool).await?;
        let client = pool.get().await.map_err(|error| fatal(error.into()))?;
        let simulated = options.simulated.then(|| options.clock.read().wall.as_millis());
        Ok(Self { client, name, simulated, own: String::new() })
    }

    /// The database, without its user and password.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The mark of a move that is not over.
    pub(crate) async fn mark(&self) -> Result<Option<Mark>, StoreError> {
        let text = mark(&self.client).await.map_err(fatal)?;
        text.map(|text| serde_json::from_str(&text)).transpose().map_err(|e| fatal(unreadable(e)))
    }

    /// The mark of the move that made the store that is here.
    pub(crate) async fn arrived(&self) -> Result<Option<Mark>, StoreError> {
        let text = value(&self.client, MOVED_FROM).await.map_err(fatal)?;
        text.map(|text| serde_json::from_str(&text)).transpose().map_err(|e| fatal(unreadable(e)))
    }

    /// Another move, of a copy of the same directory, may have begun in the same database.
    ///
    /// # Errors
    /// It has.
    pub(crate) async fn is_ours(&self) -> Result<(), StoreError> {
        let mark = self::mark(&self.client).await.map_err(fatal)?;
        if mark.as_ref() == Some(&self.own) { Ok(()) } else { Err(self.taken()) }
    }

    fn taken(&self) -> StoreError {
        StoreError::Refused(format!(
            "another `oncegate move` has begun in {} meanwhile, from a copy of the same directory; this one stops, and \
             opens nothing. Keep one of the two, and move that one into an empty database",
            self.name
        ))
    }

    /// Marks an empty database; in one that this store was being moved into already, what arrived is cleared away.
    pub(crate) async fn begin(&mut self, mark: &Mark) -> Result<(), StoreError> {
        let name = self.name.clone();
        let text = serde_json::to_string(mark).map_err(|e| fatal(unreadable(e)))?;
        self.own = text.clone();
        let begun = async {
            let tx = alone(&mut self.client).await?;
            match self::mark(&tx).await? {
                None => {
                    let used = "SELECT EXISTS (SELECT 1 FROM meta WHERE name = 'secret') \
                                OR EXISTS (SELECT 1 FROM workspaces)";
                    if tx.query_one(used, &[]).await?.get(0) {
                        return Err(StoreError::Refused(format!(
                            "there is a store in {name} already: a move never adds to one. Name an empty database, or \
                             drop the schema `oncegate` in this one if nobody needs it"
                        ))
                        .into());
                    }
                }
                Some(earlier) => {
                    let earlier: Mark = serde_json::from_str(&earlier).map_err(unreadable)?;
                    if earlier.store != mark.store {
                        return Err(StoreError::Refused(format!(
                            "the move of another store, {}, into {name} is not over; end that one, or name an empty \
                             database",
                            earlier.other
                        ))
                        .into());
                    }
                    let tables: Vec<String> =
                        tables(&tx).await?.into_iter().map(|table| format!("\"{table}\"")).collect();
                    tx.batch_execute(&format!("TRUNCATE {}", tables.join(", "))).await?;
                }
            }
            // Also what a recovery left here, or an earlier move.
            tx.execute("DELETE FROM meta WHERE name <> 'schema'", &[]).await?;
            set(&tx, MOVING, &text).await?;
            Ok::<_, Fault>(tx.commit().await?)
        };
        begun.await.map_err(fatal)
    }

    /// The columns of a table, in their order.
    pub(crate) async fn columns(&self, table: &str) -> Result<Vec<Column>, StoreError> {
        let sql = "SELECT a.attname::text, a.atttypid::regtype::text, a.attidentity <> '' FROM pg_attribute a \
                   WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
        let found = self.client.query(sql, &[&format!("oncegate.\"{table}\"")]).await;
        let found = found.map_err(|error| fatal(error.into()))?;
        found.iter().map(|r| column(table, r)).collect()
    }

    /// Adds rows: one statement, and a transaction of its own.
    pub(crate) async fn insert(
        &mut self,
        table: &str,
        columns: &[Column],
        rows: &[Cells],
    ) -> Result<(), StoreError> {
        let sql = format!("COPY \"{table}\" ({}) FROM STDIN (FORMAT binary)", listed(columns));
        let types: Vec<Type> = columns.iter().map(|column| type_of(column.kind)).collect();
        let copied = async {
            let tx = self.client.transaction().await?;
            let ours = "SELECT 1 FROM meta WHERE name = $1 AND value = $2 FOR SHARE";
            if tx.query_opt(ours, &[&MOVING, &self.own]).await?.is_none() {
                return Ok::<_, Fault>(false);
            }
            let sink = tx.copy_in(&sql).await?;
            let mut writer = std::pin::pin!(BinaryCopyInWriter::new(sink, &types));
            for row in rows {
                let row: Vec<&(dyn ToSql + Sync)> = row.iter().map(|cell| cell as _).collect();
                writer.as_mut().write(&row).await?;
            }
            writer.finish().await?;
            tx.commit().await?;
            Ok(true)
        };
        let ours = copied.await.map_err(|fault| match fatal(fault) {
            StoreError::Inconsistent(why) | StoreError::Database(why) => {
                StoreError::Inconsistent(format!("a row of `{table}` does not fit into the database: {why}"))
            }
            other => other,
        })?;
        if ours { Ok(()) } else { Err(self.taken()) }
    }

    /// Reads a workspace's rows of a table back.
    pub(crate) async fn tally(
        &mut self,
        table: &str,
        columns: &[Column],
        workspace: i64,
    ) -> Result<Tally, StoreError> {
        let of = if table == "workspaces" { "id" } else { "workspace_id" };
        let list: Vec<String> = columns.iter().map(|c| format!("\"{}\"{}", c.name, cast(c.kind))).collect();
        let sql = format!("SELECT {} FROM \"{table}\" WHERE \"{of}\" = $1", list.join(", "));
        let read = async {
            let tx = self.client.transaction().await?;
            let portal = tx.bind(&sql, &[&workspace]).await?;
            let mut tally = Tally::default();
            loop {
                let some = tx.query_portal(&portal, READ_BACK).await?;
                for r in &some {
                    tally.add(&cells(r, columns)?);
                }
                if some.len() < READ_BACK.unsigned_abs() as usize {
                    return Ok::<_, Fault>(tally);
                }
            }
        };
        read.await.map_err(fatal)
    }

    /// Rows of a table, of all workspaces.
    pub(crate) async fn count(&self, table: &str) -> Result<u64, StoreError> {
        let found = self.client.query_one(&format!("SELECT count(*) FROM \"{table}\""), &[]).await;
        let rows: i64 = found.map_err(|error| fatal(error.into()))?.get(0);
        Ok(rows.unsigned_abs())
    }

    /// The next number that a column gives out is above this one.
    pub(crate) async fn go_on_from(&self, table: &str, column: &str, given: i64) -> Result<(), StoreError> {
        let sql =
            "SELECT setval(pg_get_serial_sequence(format('oncegate.%I', $1::text), $2::text), $3, true)";
        // A sequence begins with 1, or with 2 where 1 is given out by hand; what was not given out yet is not left out.
        if given < 1 {
            return Ok(());
        }
        self.client.query_one(sql, &[&table, &column, &given]).await.map_err(|error| fatal(error.into()))?;
        Ok(())
    }

    /// Makes it a store: from the commit of this on, nodes start on it.
    pub(crate) async fn finish(
        &mut self,
        mark: &Mark,
        carried: &Carried,
        detail: &str,
    ) -> Result<(), StoreError> {
        let mut tries = 0;
        loop {
            match self.try_finish(mark, carried, detail).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(self.taken()),
                // A node that starts at this moment wants the same rows, and is refused after that.
                Err(Fault::Again(_)) if tries < TRIES => tries += 1,
                Err(fault) => return Err(fatal(fault)),
            }
        }
    }

    /// Whether the database was still ours.
    async fn try_finish(&mut self, mark: &Mark, carried: &Carried, detail: &str) -> Result<bool, Fault> {
        let simulated = self.simulated;
        let own = self.own.clone();
        let tx = alone(&mut self.client).await?;
        let now = time(&tx, simulated).await?;
        let values = [
            ("secret", Some(hex(carried))),
            ("restores", carried.restores.clone()),
            ("recovery", carried.recovery.clone()),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                set(&tx, name, &value).await?;
            }
        }
        // What passed since the last tick did not count. A clock that is behind the one that was left is one that
        // was set back: the first tick sees it, and due times go with it.
        tx.execute(
                "INSERT INTO clock (id, lease, wall) VALUES (1, $1, greatest($2::bigint, $3::bigint)) ON CONFLICT (id) DO UPDATE SET \
                 lease = excluded.lease, wall = excluded.wall, set_back = 0, doubtful_until = 0",
                &[&carried.lease, &carried.wall, &now],
            )
            .await?;
        tx.execute(
            "INSERT INTO audit (workspace_id, at, actor, action, subject, reason, detail) \
                 VALUES ($1, $2, 'command line', 'move_store', $3, 'oncegate move', $4)",
            &[&Workspace::DEFAULT.0, &now, &storable(&mark.other), &detail],
        )
        .await?;
        let sql = "UPDATE meta SET name = $2 WHERE name = $1 AND value = $3";
        if tx.execute(sql, &[&MOVING, &MOVED_FROM, &own]).await? != 1 {
            return Ok(false);
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Makes it no store again, unless a node has started on it.
    pub(crate) async fn shut(&mut self, mark: &Mark) -> Result<(), StoreError> {
        let name = self.name.clone();
        let shut = async {
            let tx = alone(&mut self.client).await?;
            let (moving, arrived) = (self::mark(&tx).await?, value(&tx, MOVED_FROM).await?);
            let is_over = moving.is_none();
            let there: Option<Mark> =
                moving.or(arrived).map(|text| serde_json::from_str(&text)).transpose().map_err(unreadable)?;
            if there.is_none_or(|there| there.id != mark.id) {
                let words =
                    format!("this store was not moved into {name}, but elsewhere; nothing was changed");
                return Err(StoreError::Refused(words).into());
            }
            if is_over {
                let first: Option<String> = tx
                    .query_opt("SELECT name FROM nodes ORDER BY number LIMIT 1", &[])
                    .await?
                    .map(|r| r.get(0));
                if let Some(first) = first {
                    return Err(StoreError::Refused(format!(
                        "node `{first}` has started on {name}: what it did is known there only, so the directory must \
                         not start again; nothing was changed"
                    ))
                    .into());
                }
                tx.execute("DELETE FROM meta WHERE name <> 'schema'", &[]).await?;
            }
            set(&tx, MOVING, &serde_json::to_string(mark).map_err(unreadable)?).await?;
            Ok::<_, Fault>(tx.commit().await?)
        };
        shut.await.map_err(fatal)
    }
}

/// Begins a transaction in which nobody joins the cluster: who does holds this row, too.
async fn alone(client: &mut Object) -> Result<Transaction<'_>, Fault> {
    let tx = client.transaction().await?;
    tx.execute("INSERT INTO clock (id, lease, wall) VALUES (1, 0, 0) ON CONFLICT DO NOTHING", &[]).await?;
    tx.query_one("SELECT 1 FROM clock WHERE id = 1 FOR UPDATE", &[]).await?;
    Ok(tx)
}

async fn time(tx: &Transaction<'_>, simulated: Option<i64>) -> Result<i64, Fault> {
    let now = tx.query_one(&format!("SELECT coalesce($1::bigint, {WALL_SQL})"), &[&simulated]).await?;
    Ok(now.get(0))
}

/// The mark of a move that is not over, as it stands in `meta`.
pub(super) async fn mark(db: &impl GenericClient) -> Result<Option<String>, Fault> {
    value(db, MOVING).await
}

/// What a node is told that starts on such a database.
pub(super) fn unfinished(text: &str) -> StoreError {
    let from = serde_json::from_str(text).map_or_else(|_| "DIR".to_owned(), |mark: Mark| mark.other);
    StoreError::Refused(format!(
        "a store is being moved into this database and is not whole yet; call `oncegate move` again, with --from \
         sqlite:{from}, or start the gate on the directory, if the move was taken back"
    ))
}

async fn value(db: &impl GenericClient, name: &str) -> Result<Option<String>, Fault> {
    let row = db.query_opt("SELECT value FROM oncegate.meta WHERE name = $1", &[&name]).await?;
    Ok(row.map(|r| r.get(0)))
}

async fn set(tx: &Transaction<'_>, name: &str, value: &str) -> Result<(), Fault> {
    let sql = "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    tx.execute(sql, &[&name, &value]).await?;
    Ok(())
}

fn hex(carried: &Carried) -> String {
    data_encoding::HEXLOWER.encode(&carried.secret)
}

/// The tables whose rows arrive.
async fn tables(tx: &Transaction<'_>) -> Result<Vec<String>, Fault> {
    let sql = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = 'oncegate' AND c.relkind IN ('r', 'p')";
    let all = tx.query(sql, &[]).await?;
    Ok(all
        .iter()
        .map(|r| r.get(0))
        .filter(|name: &String| !OF_THE_CLUSTER.contains(&name.as_str()))
        .collect())
}

fn column(table: &str, r: &Row) -> Result<Column, StoreError> {
    let (name, words): (String, String) = (r.get(0), r.get(1));
    let kind = match words.as_str() {
        "bigint" => Kind::Int,
        "integer" => Kind::Int32,
        "boolean" => Kind::Bool,
        "text" => Kind::Text,
        "bytea" => Kind::Bytes,
        other => {
            return Err(StoreError::Inconsistent(format!(
                "`{table}.{name}` is of type {other}, which a move does not know"
            )));
        }
    };
    Ok(Column { name, kind, is_numbered: r.get(2) })
}

fn listed(columns: &[Column]) -> String {
    let names: Vec<String> = columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
    names.join(", ")
}

fn type_of(kind: Kind) -> Type {
    match kind {
        Kind::Int => Type::INT8,
        Kind::Int32 => Type::INT4,
        Kind::Bool => Type::BOOL,
        Kind::Text => Type::TEXT,
        Kind::Bytes => Type::BYTEA,
    }
}

/// Small numbers are read back as large ones.
fn cast(kind: Kind) -> &'static str {
    if kind == Kind::Int32 { "::bigint" } else { "" }
}

fn cells(r: &Row, columns: &[Column]) -> Result<Cells, Fault> {
    let each = |(i, column): (usize, &Column)| {
        Ok::<_, Fault>(match column.kind {
            Kind::Int | Kind::Int32 => r.try_get::<_, Option<i64>>(i)?.map_or(Cell::Null, Cell::Int),
            Kind::Bool => r.try_get::<_, Option<bool>>(i)?.map_or(Cell::Null, Cell::Bool),
            Kind::Text => r.try_get::<_, Option<String>>(i)?.map_or(Cell::Null, Cell::Text),
            Kind::Bytes => r.try_get::<_, Option<Vec<u8>>>(i)?.map_or(Cell::Null, Cell::Bytes),
        })
    };
    columns.iter().enumerate().map(each).collect()
}

impl ToSql for Cell {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(n) if *ty == Type::INT4 => i32::try_from(*n)?.to_sql(ty, out),
            Self::Int(n) => n.to_sql(ty, out),
            Self::Bool(yes) => yes.to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
            Self::Bytes(bytes) => bytes.to_sql(ty, out),
        }
    }

    /// What is read from the other store is checked against the column's kind there.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
