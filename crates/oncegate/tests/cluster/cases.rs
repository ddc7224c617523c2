//! The real reports of the binary `it`, on two nodes: all but those about the embedded store's file.

#[path = "../it/cases/answers.rs"]
mod answers;
#[path = "../it/cases/claims.rs"]
mod claims;
#[path = "../it/cases/doors.rs"]
mod doors;
#[path = "../it/cases/guards.rs"]
mod guards;
#[path = "../it/cases/identity.rs"]
mod identity;
#[path = "../it/cases/load.rs"]
mod load;
#[path = "../it/cases/paths.rs"]
mod paths;
#[path = "../it/cases/people.rs"]
mod people;
#[path = "../it/cases/polls.rs"]
mod polls;
#[path = "../it/cases/resets.rs"]
mod resets;
#[path = "../it/cases/runner.rs"]
mod runner;
#[path = "../it/cases/schedules.rs"]
mod schedules;
#[path = "../it/cases/time.rs"]
mod time;
