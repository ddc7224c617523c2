//! Every state that the scopes can reach, under the rules as they are.

use oncegate_model::scope::scopes;
use oncegate_model::search::search;
use oncegate_model::tally::Tally;
use oncegate_store::transition::Rules;

/// More than any scope has; a search that runs into it has bounds that do not hold.
const STATES_MAX: usize = 1_500_000;

#[test]
fn nothing_that_can_happen_breaks_a_promise() {
    let (mut states, mut tally) = (0, Tally::default());
    for scope in scopes() {
        let started = std::time::Instant::now();
        let found = search(&scope, Rules::CORE, STATES_MAX);
        println!(
            "{}: {} states, {} moves, {} deep, {:?}",
            scope.name,
            found.states,
            found.moves,
            found.depth,
            started.elapsed()
        );
        if let Some(trace) = &found.broken {
            println!("in \"{}\":\n{trace}", scope.name);
        }
        if !found.exhausted {
            println!("{}: not exhausted", scope.name);
        }
        states += found.states;
        tally.add(&found.tally);
    }
    println!("{states} states\n{:#?}", tally.0);
    assert!(states >= 100_000, "only {states} states");
}
