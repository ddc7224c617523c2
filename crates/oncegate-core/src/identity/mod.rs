//! Identity (DESIGN §4): from the declared fields of an event or a call to its key, its likeness to others, and what it
//! says its record is. One implementation: the gate API, webhook sources, templates and `key preview` all call it.
//!
//! A key is computed once, at the door, and stored as text; nothing later computes it anew. What a rule does to a value
//! is frozen under its name: a rule that has to change gets a new name, so that no upgrade gives an event another key
//! than the one that stands in the store ([`VERSION`]; the vectors in `tests/it/folding.rs` notice).

mod caller;
mod date;
mod email;
mod field;
mod number;
mod part;
mod rule;
mod subject;
mod unfilled;

pub use self::caller::{CallerRules, Sent};
pub use self::date::DateForm;
pub use self::email::{EmailFolding, fold_domain};
pub use self::field::{KeyField, MemberRule};
pub use self::number::canonical_number;
pub use self::part::{Folded, Part, join};
pub use self::rule::{Rule, Unfit};
pub use self::subject::{IdentityPrint, Likeness, Repeat, Subject};
pub use self::unfilled::{Hole, hole, is_unfilled};

/// The version of what the rules do, all together. It stays as long as every stored key can be computed again; a rule
/// that changed under its old name would make it 2, and doors would have to ask for the keys of both.
pub const VERSION: u8 = 1;
