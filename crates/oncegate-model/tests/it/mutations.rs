//! The search notices every guard that is missing.

use oncegate_model::mutants::mutants;
use oncegate_model::scope::scopes;
use oncegate_model::search::search;

/// Each is noticed after far fewer; one that is not noticed by then counts as missed.
const STATES_MAX: usize = 200_000;

#[test]
fn every_guard_that_is_taken_out_is_noticed() {
    let scopes = scopes();
    let mut missed = Vec::new();
    for (mutant, rules) in mutants() {
        let Some(scope) = scopes.iter().find(|scope| scope.name == mutant.scope) else {
            panic!("\"{}\": there is no scope \"{}\"", mutant.name, mutant.scope);
        };
        let found = search(scope, rules, STATES_MAX);
        let seen = found.broken.as_ref().map(|trace| format!("{:?}", trace.broken.promise));
        let moves = found.broken.as_ref().map_or(0, |trace| trace.moves.len());
        println!(
            "line {}, {}: {} after {moves} moves, {} states",
            mutant.line,
            mutant.name,
            seen.as_deref().unwrap_or("MISSED"),
            found.states
        );
        if seen.as_deref() != Some(mutant.breaks) {
            let trace = found.broken.map(|trace| format!(":\n{trace}")).unwrap_or_default();
            missed.push(format!("{} (expected {}){trace}", mutant.name, mutant.breaks));
        }
    }
    assert!(missed.is_empty(), "{} guards:\n{}", missed.len(), missed.join("\n"));
}
