//! Breadth first, so that the first broken promise comes with a shortest way to it.

use std::collections::HashSet;
use std::fmt;

use oncegate_store::transition::Rules;

use crate::apply::Search;
use crate::enabled::moves;
use crate::ghost::Broken;
use crate::moves::Move;
use crate::scope::Scope;
use crate::shape::shape;
use crate::tally::Tally;
use crate::world::World;

/// What a search found.
#[derive(Debug)]
pub struct Found {
    /// States with a shape of their own.
    pub states: usize,
    /// Moves made.
    pub moves: usize,
    /// Moves on the longest of the shortest ways.
    pub depth: usize,
    /// What was reached.
    pub tally: Tally,
    /// The first promise that was broken.
    pub broken: Option<Trace>,
    /// Every state within the bounds was visited.
    pub exhausted: bool,
}

/// A way to a broken promise.
#[derive(Debug)]
pub struct Trace {
    /// The moves, in order.
    pub moves: Vec<Move>,
    /// What broke.
    pub broken: Broken,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, made) in (1..).zip(&self.moves) {
            writeln!(f, "  {number}. {made}")?;
        }
        write!(f, "  {}", self.broken)
    }
}

/// Searches all that can happen in a scope under some rules, up to a number of states.
pub fn search(scope: &Scope, rules: Rules, states_max: usize) -> Found {
    let mut search = Search { scope, rules, tally: Tally::default() };
    let mut seen = HashSet::from([shape(scope, &scope.start)]);
    // How each state was reached first: from which, by what.
    let mut came: Vec<(u32, Option<Move>)> = vec![(0, None)];
    let mut frontier: Vec<(u32, World)> = vec![(0, scope.start.clone())];
    let (mut made, mut depth) = (0, 0);
    let mut broken = None;
    'search: while !frontier.is_empty() && seen.len() < states_max {
        let mut next = Vec::new();
        for (from, world) in frontier {
            for step in moves(scope, &world) {
                made += 1;
                let mut after = world.clone();
                if let Err(how) = search.make(&mut after, step) {
                    let mut way = vec![step];
                    way.extend(way_to(&came, from));
                    way.reverse();
                    broken = Some(Trace { moves: way, broken: how });
                    frontier = Vec::new();
                    break 'search;
                }
                if seen.insert(shape(scope, &after)) {
                    let number = u32::try_from(came.len()).unwrap_or(u32::MAX);
                    came.push((from, Some(step)));
                    next.push((number, after));
                }
            }
        }
        depth += usize::from(!next.is_empty());
        frontier = next;
    }
    let exhausted = broken.is_none() && frontier.is_empty();
    Found { states: seen.len(), moves: made, depth, tally: search.tally, broken, exhausted }
}

/// The moves that led there, last first.
fn way_to(came: &[(u32, Option<Move>)], mut at: u32) -> Vec<Move> {
    let mut way = Vec::new();
    while let Some((from, Some(step))) = came.get(at as usize) {
        way.push(*step);
        at = *from;
    }
    way
}
