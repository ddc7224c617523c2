//! An embedded store moves to PostgreSQL: every row once, counted and summed on both sides, and never two stores that
//! both run.
//!
//! The directory is locked, and the database is marked before its first row: until the move is over no node starts on
//! it. Rows are copied some thousand at a time, one table and one workspace after the other, then read back and
//! compared with what was read. Only then is the directory marked as moved, and after that the database's mark is taken
//! away. So whoever is interrupted, at any point, is left with at most one store that starts, and calls the same again.

use oncegate_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::StoreError;
use crate::postgres::{Arriving, Options};
use crate::sqlite::Leaving;

/// Rows that travel together, and bytes from which on no more join them.
const PIECE: (usize, usize) = (4_096, 8 << 20);
/// Pieces that wait for the database.
const AHEAD: usize = 2;

/// A value on its way, as both stores can hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Bool(bool),
    Text(String),
    Bytes(Vec<u8>),
}

/// A row on its way.
pub(crate) type Cells = Vec<Cell>;

/// What a column of the database holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Int,
    /// A number that fits into 32 bits.
    Int32,
    Bool,
    Text,
    Bytes,
}

/// A column of the database.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether the database gives out its numbers.
    pub(crate) is_numbered: bool,
}

/// How many rows, and what they hold: the sum, over all rows, of the first half of the SHA-256 of each. The order of
/// the rows does not matter, and a row that is missing, doubled or different is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    rows: u64,
    sum: u128,
}

impl Tally {
    pub(crate) fn add(&mut self, row: &[Cell]) {
        let mut hash = Sha256::new();
        for cell in row {
            // What a value is and how long it is goes before it, so that no two rows read alike.
            match cell {
                Cell::Null => hash.update([0]),
                Cell::Int(n) => {
                    hash.update([1]);
                    hash.update(n.to_be_bytes());
                }
                Cell::Bool(yes) => hash.update([2, u8::from(*yes)]),
                Cell::Text(text) => {
                    hash.update([3]);
                    hash.update((text.len() as u64).to_be_bytes());
                    hash.update(text);
                }
                Cell::Bytes(bytes) => {
                    hash.update([4]);
                    hash.update((bytes.len() as u64).to_be_bytes());
                    hash.update(bytes);
                }
            }
        }
        let half = hash.finalize().first_chunk::<16>().copied().unwrap_or_default();
        self.rows += 1;
        self.sum = self.sum.wrapping_add(u128::from_be_bytes(half));
    }

    fn join(&mut self, other: Self) {
        self.rows += other.rows;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// What a database that is being moved into says of it, and what a directory says that was moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Tells moves apart: a directory that was moved belongs to the one database whose mark has the same.
    pub(crate) id: String,
    /// Tells stores apart: the first half of the SHA-256 of the secret, in hexadecimal.
    pub(crate) store: String,
    pub(crate) at: Timestamp,
    /// The directory, or the database without its user and password.
    pub(crate) other: String,
}

/// What a store knows of itself, besides its rows.
pub(crate) struct Carried {
    pub(crate) secret: [u8; 32],
    pub(crate) lease: i64,
    pub(crate) wall: i64,
    /// JSON: the restores that it went through, and the recovery that it is in.
    pub(crate) restores: Option<String>,
    pub(crate) recovery: Option<String>,
}

impl Carried {
    fn store(&self) -> String {
        let hash = Sha256::digest(self.secret);
        data_encoding::HEXLOWER.encode(hash.get(..16).unwrap_or_default())
    }
}

/// A table that was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedTable {
    /// Its name in the database.
    pub name: &'static str,
    /// Its rows, the same number on both sides.
    pub rows: u64,
    /// The sum over its rows, the same on both sides: 32 hexadecimal digits.
    pub checksum: String,
}

/// A move that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Every table, in the order of the move. Empty: all was moved before, and nothing was left to do.
    pub tables: Vec<MovedTable>,
    /// Zero characters, which PostgreSQL cannot hold in a text and which were replaced by U+FFFD.
    pub replaced: u64,
    /// The database, without its user and password.
    pub to: String,
}

/// Moves the store in a data directory into an empty database, and tells of each table as it is done. What was
/// interrupted begins anew: call it again.
///
/// # Errors
/// The directory is in use or was moved elsewhere; the database is not empty; either fails; or what was read back is
/// not what was sent.
pub async fn move_store(
    from: &std::path::Path,
    to: &Options,
    mut told: impl FnMut(&MovedTable),
) -> Result<Moved, StoreError> {
    let now = to.clock.read().wall;
    let mut leaving = Leaving::open(from, now)?;
    let carried = leaving.carried()?;
    let mut arriving = Arriving::connect(to).await?;
    let mut id = data_encoding::HEXLOWER.encode(to.fresh_secret.get(..16).unwrap_or_default());
    if let Some(earlier) = leaving.moved()? {
        if arriving.arrived().await?.is_some_and(|arrived| arrived.id == earlier.id) {
            let to = arriving.name().to_owned();
            return Ok(Moved { tables: Vec::new(), replaced: 0, to });
        }
        // The same store may have been on its way into other databases, which were given up.
        if arriving.mark().await?.is_none_or(|there| there.id != earlier.id) {
            return Err(leaving.refusal(&earlier));
        }
        id = earlier.id;
    }
    let mark = Mark { id, store: carried.store(), at: now, other: from.display().to_string() };
    arriving.begin(&mark).await?;
    let mut moved = Moved { tables: Vec::new(), replaced: 0, to: arriving.name().to_owned() };
    let workspaces = leaving.workspaces()?;
    let tables = leaving.tables();
    for table in tables {
        let columns = arriving.columns(table).await?;
        leaving.fits(table, &columns)?;
        let mut sent = Tally::default();
        let mut highest = vec![0; columns.len()];
        for workspace in workspaces.clone() {
            let (back, tally) =
                copy(leaving, &mut arriving, table, &columns, workspace, &mut highest).await?;
            leaving = back;
            let found = arriving.tally(table, &columns, workspace).await?;
            if found != tally {
                return Err(differs(table, workspace, tally, found));
            }
            sent.join(tally);
        }
        let (left, total) = (leaving.left_over(table)?, arriving.count(table).await?);
        if let Some(rows) = leaving.count(table)?
            && rows != sent.rows + left
        {
            return Err(StoreError::Inconsistent(format!(
                "{} of {rows} rows of `{table}` were found by what they belong to; nothing was moved",
                sent.rows + left
            )));
        }
        if left > 0 {
            tracing::warn!(table, left, "rows that belong to nothing any more were left behind");
        }
        if total != sent.rows {
            return Err(StoreError::Inconsistent(format!(
                "{} rows of `{table}` were sent and the database holds {total}; call the same again",
                sent.rows
            )));
        }
        if let Some(i) = columns.iter().position(|column| column.is_numbered) {
            let given = leaving.numbers_given(table)?.max(highest.get(i).copied().unwrap_or_default());
            arriving.go_on_from(table, &columns[i].name, given).await?;
        }
        let done = MovedTable { name: table, rows: sent.rows, checksum: format!("{:032x}", sent.sum) };
        told(&done);
        moved.tables.push(done);
    }
    moved.replaced = leaving.replaced();
    let there = Mark { other: moved.to.clone(), ..mark.clone() };
    arriving.is_ours().await?;
    // From here on the directory does not start any more, and the database not yet.
    leaving.mark_moved(&there)?;
    arriving.finish(&mark, &carried, &detail(&moved)).await?;
    Ok(moved)
}

/// Takes a move back, as long as no node has started on the database: the directory is the store again, and the
/// database is none.
///
/// # Errors
/// The directory was not moved there, a node has started there, or either fails.
pub async fn take_back(from: &std::path::Path, to: &Options) -> Result<(), StoreError> {
    let now = to.clock.read().wall;
    let leaving = Leaving::open(from, now)?;
    let carried = leaving.carried()?;
    let mut arriving = Arriving::connect(to).await?;
    let Some(moved) = leaving.moved()? else {
        return Err(StoreError::Refused(format!("{} was not moved; nothing was changed", from.display())));
    };
    let mark = Mark { id: moved.id, store: carried.store(), at: now, other: from.display().to_string() };
    // The database first: it never happens that both start.
    arriving.shut(&mark).await?;
    leaving.unmark()
}

fn detail(moved: &Moved) -> String {
    let rows = |name: &str| moved.tables.iter().find(|t| t.name == name).map_or(0, |t| t.rows);
    let all: u64 = moved.tables.iter().map(|t| t.rows).sum();
    format!("{all} rows of {} tables, among them {} claims", moved.tables.len(), rows("claims"))
}

fn differs(table: &str, workspace: i64, sent: Tally, found: Tally) -> StoreError {
    StoreError::Inconsistent(format!(
        "what the database holds of `{table}` (workspace {workspace}) is not what was sent: {} rows with the sum \
         {:032x} were sent, {} with {:032x} are there. The directory is as it was, and no node starts on the database; \
         call the same again",
        sent.rows, sent.sum, found.rows, found.sum
    ))
}

/// Copies a table's rows of one workspace. Reading goes on while the database writes.
async fn copy(
    mut leaving: Leaving,
    arriving: &mut Arriving,
    table: &'static str,
    columns: &[Column],
    workspace: i64,
    highest: &mut [i64],
) -> Result<(Leaving, Tally), StoreError> {
    let (pieces, mut arrived) = mpsc::channel::<Vec<Cells>>(AHEAD);
    let wanted = columns.to_vec();
    let reading = tokio::task::spawn_blocking(move || {
        let mut tally = Tally::default();
        let (mut piece, mut bytes) = (Vec::new(), 0);
        let read = leaving.read(table, &wanted, workspace, &mut |row| {
            tally.add(&row);
            bytes += row.iter().map(size).sum::<usize>();
            piece.push(row);
            if piece.len() < PIECE.0 && bytes < PIECE.1 {
                return true;
            }
            bytes = 0;
            // Nobody takes it any more: the database has failed, and says why.
            pieces.blocking_send(std::mem::take(&mut piece)).is_ok()
        });
        if !piece.is_empty() {
            let _ = pieces.blocking_send(piece);
        }
        read.map(|()| (leaving, tally))
    });
    let mut sending = Ok(());
    while let Some(piece) = arrived.recv().await {
        for row in &piece {
            for (highest, cell) in highest.iter_mut().zip(row) {
                if let Cell::Int(n) = cell {
                    *highest = (*highest).max(*n);
                }
            }
        }
        sending = arriving.insert(table, columns, &piece).await;
        if sending.is_err() {
            break;
        }
    }
    drop(arrived);
    let read = reading.await.map_err(|e| StoreError::Database(format!("reading `{table}` ended: {e}")))?;
    sending?;
    read
}

fn size(cell: &Cell) -> usize {
    match cell {
        Cell::Text(text) => text.len(),
        Cell::Bytes(bytes) => bytes.len(),
        Cell::Null | Cell::Int(_) | Cell::Bool(_) => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(rows: &[&[Cell]]) -> Tally {
        let mut tally = Tally::default();
        rows.iter().for_each(|row| tally.add(row));
        tally
    }

    #[test]
    fn a_tally_tells_what_is_there_and_not_in_which_order() {
        let text = |t: &str| Cell::Text(t.to_owned());
        let (a, b): (&[Cell], &[Cell]) = (&[text("a"), Cell::Null], &[text("b"), Cell::Int(1)]);
        assert_eq!(tally(&[a, b]), tally(&[b, a]));
        let base = tally(&[a, b]);
        for (other, what) in [
            (tally(&[a]), "one is missing"),
            (tally(&[a, b, b]), "one is doubled"),
            (tally(&[a, a]), "one is another"),
            (tally(&[a, &[text("b"), Cell::Int(2)]]), "a number differs"),
            (tally(&[a, &[Cell::Bytes(b"b".into()), Cell::Int(1)]]), "a kind differs"),
            (tally(&[&[text(""), text("a")], b]), "a value stands elsewhere"),
            (tally(&[&[text("a"), text("")], b]), "nothing is not empty"),
            (tally(&[&[text("a"), Cell::Bool(false)], b]), "nothing is not false"),
        ] {
            assert_ne!(base, other, "{what}");
        }
        assert_ne!(tally(&[&[text("ab"), text("c")]]), tally(&[&[text("a"), text("bc")]]));
    }
}
