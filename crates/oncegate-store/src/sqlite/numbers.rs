//! Names of columns and parameters, turned into their numbers once. By name SQLite looks for each among all of a
//! statement's, for every row; a fifth of the writer's time went there.

/// A column of a list like `c.id, c.note, a.name`.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// Where it stands, from 0.
    pub(super) at: usize,
    /// Its name without the table's, for people.
    pub(super) name: &'static str,
}

impl Column {
    /// To be called in a `const` block: a name that is not in the list does not build.
    pub(super) const fn named(list: &str, name: &'static str) -> Self {
        let (list, wanted) = (list.as_bytes(), name.as_bytes());
        let (mut at, mut i) = (0, 0);
        while i < list.len() {
            if list[i] == b',' {
                at += 1;
            }
            let end = i + 1 + wanted.len();
            if list[i] == b'.' && ends_at(list, end) && same(list, i + 1, wanted) {
                return Self { at, name };
            }
            i += 1;
        }
        panic!("the list has no such column")
    }
}

const fn ends_at(list: &[u8], end: usize) -> bool {
    end == list.len() || (end < list.len() && list[end] == b',')
}

const fn same(list: &[u8], from: usize, wanted: &[u8]) -> bool {
    let mut n = 0;
    while n < wanted.len() {
        if list[from + n] != wanted[n] {
            return false;
        }
        n += 1;
    }
    true
}

/// The number of a parameter, from 1. Names are written in this program alone: one that is unknown does not build in a
/// `const` block, and in a statement fails the first test that uses it.
pub(super) const fn number(names: &[&str], name: &str) -> usize {
    let mut at = 0;
    while at < names.len() {
        let known = names[at].as_bytes();
        if known.len() == name.len() && same(known, 0, name.as_bytes()) {
            return at + 1;
        }
        at += 1;
    }
    panic!("no parameter has this name")
}

/// The statement with `?n` for each `:name`.
pub(super) fn numbered(names: &[&str], sql: &str) -> String {
    let mut pieces = sql.split(':');
    let mut numbered = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(piece.len());
        let (name, rest) = piece.split_at(end);
        numbered.push_str(&format!("?{}{rest}", number(names, name)));
    }
    numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_their_numbers() {
        const LIST: &str = "c.id, c.state, c.state_since, a.name";
        let at = |name| Column::named(LIST, name).at;
        assert_eq!((at("id"), at("state"), at("state_since"), at("name")), (0, 1, 2, 3));
        let names = ["id", "state", "state_since"];
        let sql = "UPDATE t SET s = :state, at = CASE WHEN :state_since > 0 THEN :state END WHERE i = :id";
        let by_number = "UPDATE t SET s = ?2, at = CASE WHEN ?3 > 0 THEN ?2 END WHERE i = ?1";
        assert_eq!(numbered(&names, sql), by_number);
    }
}
