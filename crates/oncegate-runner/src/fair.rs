//! Whose work is next, of many workspaces: those at whose work fewer places are come first, and one alone never has all
//! places.

use std::collections::HashMap;

use oncegate_core::key::Workspace;
use oncegate_store::api::Due;

/// Claims that are worked on, by workspace.
pub(crate) type AtWork = HashMap<Workspace, usize>;

/// Of every so many places one is kept from whoever has the others, so that who comes next finds one free.
pub(crate) const KEPT_FREE: usize = 8;

/// Orders what is due, in whose order the claims of each workspace stay as they are.
pub(crate) fn in_turn(due: Vec<Due>, at_work: &AtWork) -> Vec<Due> {
    let mut places = at_work.clone();
    let mut placed: Vec<(usize, Due)> = due
        .into_iter()
        .map(|due| {
            let place = places.entry(due.id.workspace).or_default();
            *place += 1;
            (*place, due)
        })
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, due)| due).collect()
}

/// How many places one workspace may have, of all; with no other there is nobody to leave one to.
pub(crate) fn share(concurrency: usize, workspaces: usize) -> usize {
    match workspaces {
        0 | 1 => concurrency,
        _ => (concurrency - concurrency.div_ceil(KEPT_FREE)).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncegate_core::key::{AutomationName, ClaimId, ClaimRef};

    fn due(of: &[i64]) -> Vec<Due> {
        let automation = AutomationName::try_from("a").unwrap();
        let one = |(n, workspace): (usize, &i64)| Due {
            id: ClaimRef { workspace: Workspace(*workspace), id: ClaimId([n as u8; 16]) },
            automation: automation.clone(),
            is_new: true,
        };
        of.iter().enumerate().map(one).collect()
    }

    #[test]
    fn whoever_has_fewer_places_comes_first_and_the_order_within_a_workspace_stays() {
        /// Due in this order; places at work by workspace; in whose turn they start.
        type Turns<'a> = (&'a [i64], &'a [(i64, usize)], &'a [u8]);
        let table: &[Turns<'_>] = &[
            (&[1, 1, 1], &[], &[0, 1, 2]),
            (&[1, 1, 1, 2, 3], &[], &[0, 3, 4, 1, 2]),
            (&[1, 1, 2, 2], &[(1, 2)], &[2, 3, 0, 1]),
            (&[1, 2, 1, 2], &[(1, 1), (2, 1)], &[0, 1, 2, 3]),
            (&[1, 2, 2, 2], &[(1, 2), (2, 1)], &[1, 0, 2, 3]),
            (&[], &[(1, 5)], &[]),
        ];
        for (of, at_work, turns) in table {
            let at_work = at_work.iter().map(|(workspace, n)| (Workspace(*workspace), *n)).collect();
            let found: Vec<u8> = in_turn(due(of), &at_work).iter().map(|due| due.id.id.0[0]).collect();
            assert_eq!(found, *turns, "{of:?} {at_work:?}");
        }
    }

    #[test]
    fn one_of_many_leaves_places_to_the_others() {
        for (concurrency, workspaces, expected) in
            [(16, 1, 16), (16, 2, 14), (64, 30, 56), (1, 1, 1), (1, 2, 1), (2, 2, 1), (8, 2, 7), (9, 2, 7)]
        {
            assert_eq!(share(concurrency, workspaces), expected, "{concurrency} {workspaces}");
        }
    }
}
