//! What is measured, what each is held against, and what came of it.

use std::collections::BTreeMap;

use crate::load::Measured;

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    /// A handler that reads the same bodies and does nothing.
    Empty,
    /// Claims of random keys.
    Claims,
    /// A claim and its done.
    Cycles,
    /// Claims of keys that are done.
    Duplicates,
    /// Claims in a store that is full already.
    Existing,
    /// Claims on one connection.
    OneConnection,
    /// Claims, 500 in a call, on one connection.
    Batches,
    /// SQLite alone.
    GroupCommit,
    /// Redis, every answer synced.
    Redis,
    /// PostgreSQL with a bare upsert.
    PgBench,
    /// Claims in a PostgreSQL store.
    Postgres,
}

impl Row {
    /// In the order of the table.
    pub(crate) const ALL: [Self; 11] = [
        Self::Empty,
        Self::Claims,
        Self::Cycles,
        Self::Duplicates,
        Self::Existing,
        Self::OneConnection,
        Self::Batches,
        Self::GroupCommit,
        Self::Redis,
        Self::PgBench,
        Self::Postgres,
    ];

    /// In words.
    pub(crate) fn what(self, existing: u64) -> String {
        match self {
            Self::Empty => "empty axum handler".into(),
            Self::Claims => "claims".into(),
            Self::Cycles => "full cycles (claim, done)".into(),
            Self::Duplicates => "duplicates of what is done".into(),
            Self::Existing => format!("claims beside {} that are done", millions(existing)),
            Self::OneConnection => "claims, one connection".into(),
            Self::Batches => "claims, 500 in a call, one connection".into(),
            Self::GroupCommit => "bare SQLite, 64 rows in a commit".into(),
            Self::Redis => "Redis SET NX PX, appendfsync always".into(),
            Self::PgBench => "pgbench, bare upsert".into(),
            Self::Postgres => "claims, PostgreSQL".into(),
        }
    }

    /// Not ours: what the machine and the parts reach.
    pub(crate) const fn is_ceiling(self) -> bool {
        matches!(self, Self::Empty | Self::GroupCommit | Self::Redis | Self::PgBench)
    }
}

fn millions(rows: u64) -> String {
    match rows.is_multiple_of(1_000_000) {
        true => format!("{} million", rows / 1_000_000),
        false => rows.to_string(),
    }
}

/// A ratio that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) of: Row,
    pub(crate) to: Row,
    pub(crate) least: f64,
    pub(crate) stretch: Option<f64>,
}

/// The targets, each a ratio within one run.
pub(crate) const WANTED: [Wanted; 6] = [
    Wanted { of: Row::Claims, to: Row::Empty, least: 0.40, stretch: Some(0.55) },
    Wanted { of: Row::Claims, to: Row::Redis, least: 0.55, stretch: Some(0.80) },
    Wanted { of: Row::Cycles, to: Row::Empty, least: 0.20, stretch: Some(0.30) },
    Wanted { of: Row::Duplicates, to: Row::Empty, least: 0.80, stretch: None },
    Wanted { of: Row::Existing, to: Row::Claims, least: 0.50, stretch: Some(0.70) },
    Wanted { of: Row::Postgres, to: Row::PgBench, least: 1.50, stretch: None },
];

/// The 99th percentile of a claim, as a multiple of the empty handler's.
pub(crate) const P99_MOST: f64 = 2.5;
/// Bytes that a claim takes up once it is done, tables and indexes.
pub(crate) const BYTES_MOST: f64 = 450.0;

/// What was measured: a figure for each round, or why there is none.
#[derive(Debug, Default)]
pub(crate) struct Results {
    rounds: BTreeMap<Row, Vec<Measured>>,
    missing: BTreeMap<Row, String>,
}

impl Results {
    pub(crate) fn add(&mut self, row: Row, measured: Result<Measured, String>) {
        match measured {
            Ok(measured) => self.rounds.entry(row).or_default().push(measured),
            Err(why) => {
                self.missing.insert(row, why);
            }
        }
    }

    /// Why there is no figure; `None` if there is one.
    pub(crate) fn missing(&self, row: Row) -> Option<&str> {
        match (self.rounds.get(&row), self.missing.get(&row)) {
            (_, Some(why)) => Some(why),
            (None, None) => Some("not asked for"),
            (Some(_), None) => None,
        }
    }

    /// The median of one figure.
    pub(crate) fn median(&self, row: Row, figure: fn(&Measured) -> f64) -> Option<f64> {
        let rounds = self.rounds.get(&row).filter(|_| self.missing(row).is_none())?;
        Some(median(&rounds.iter().map(figure).collect::<Vec<_>>()))
    }

    /// Least, median and most of the ratios of each round.
    pub(crate) fn ratio(&self, of: Row, to: Row, figure: fn(&Measured) -> f64) -> Option<[f64; 3]> {
        if self.missing(of).or(self.missing(to)).is_some() {
            return None;
        }
        let (of, to) = (self.rounds.get(&of)?, self.rounds.get(&to)?);
        let mut ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| figure(of) / figure(to)).collect();
        ratios.sort_by(f64::total_cmp);
        Some([*ratios.first()?, median(&ratios), *ratios.last()?])
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Claims, cycles or whatever the row is about, in a second.
pub(crate) fn rate(measured: &Measured) -> f64 {
    measured.per_second
}

/// In milliseconds.
pub(crate) fn p50(measured: &Measured) -> f64 {
    measured.p50.as_secs_f64() * 1e3
}

/// In milliseconds.
pub(crate) fn p99(measured: &Measured) -> f64 {
    measured.p99.as_secs_f64() * 1e3
}
