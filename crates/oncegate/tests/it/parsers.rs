//! Whatever bytes come, each parser keeps its promises. The same functions are fed by `make fuzz`.

use oncegate::parsers::{ALL, Parser};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestCaseError;

/// One change of a text.
#[derive(Clone, Debug)]
enum Change {
    Insert(Index, Vec<u8>),
    Remove(Index, Index),
    Repeat(Index, Index, usize),
    Replace(Index, u8),
}

impl Change {
    fn make(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        match self {
            Self::Insert(at, piece) => {
                let at = at.index(len + 1);
                bytes.splice(at..at, piece.iter().copied());
            }
            _ if len == 0 => {}
            Self::Replace(at, byte) => bytes[at.index(len)] = *byte,
            Self::Remove(a, b) | Self::Repeat(a, b, _) => {
                let (a, b) = (a.index(len), b.index(len));
                let range = a.min(b)..a.max(b) + 1;
                let piece = match self {
                    Self::Repeat(_, _, times) => bytes[range.clone()].repeat(*times),
                    _ => vec![],
                };
                bytes.splice(range, piece);
            }
        }
    }
}

/// Texts at which parsers stumble.
const PIECES: [&[u8]; 30] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"=",
    b"&",
    b"%",
    b"%00",
    b"%ff",
    b"\0",
    b"\r\n",
    b"\t",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"-0",
    b"1e400",
    b"18446744073709551616",
    b"null",
    b"{{",
    b"}}",
    b"&x *x",
    b"\xe2\x80\x8b",
    b"\xcc\x81",
    b"'",
];

fn change() -> impl Strategy<Value = Change> {
    let piece = prop_oneof![
        2 => select(&PIECES[..]).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 1..6),
    ];
    prop_oneof![
        3 => (any::<Index>(), piece).prop_map(|(at, piece)| Change::Insert(at, piece)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Change::Remove(a, b)),
        1 => (any::<Index>(), any::<Index>(), 2_usize..200).prop_map(|(a, b, times)| Change::Repeat(a, b, times)),
        1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Replace(at, byte)),
    ]
}

/// Bytes of the kind that a parser takes, with changes; or any bytes at all.
fn bytes(seeds: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let changed = (select(seeds), prop::collection::vec(change(), 0..6)).prop_map(|(seed, changes)| {
        let mut bytes = seed.as_bytes().to_vec();
        changes.iter().for_each(|change| change.make(&mut bytes));
        // A repetition of a repetition.
        bytes.truncate(20_000);
        bytes
    });
    prop_oneof![4 => changed, 1 => prop::collection::vec(any::<u8>(), 0..300)]
}

#[test]
fn every_parser_keeps_its_promises_on_any_bytes() {
    let names: Vec<&str> = ALL.iter().map(|parser| parser.name).collect();
    assert!(names.iter().all(|name| names.iter().filter(|other| *other == name).count() == 1), "{names:?}");
    for Parser { name, holds, seeds } in ALL {
        for seed in seeds {
            holds(seed.as_bytes()).unwrap_or_else(|broken| panic!("{name} on its own seed {seed}: {broken}"));
        }
        // A failure prints the bytes, made as small as can be, and how to find them again.
        proptest!(|(bytes in bytes(seeds))| {
            holds(&bytes).map_err(|broken| TestCaseError::fail(format!("{name}: {broken}")))?;
        });
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "this test reads the repository")]
fn every_parser_has_its_fuzz_target_and_every_target_its_parser() {
    let fuzz = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let bins = manifest.split("[[bin]]").skip(1).map(|bin| bin.split('"').nth(1).unwrap().to_owned());
    let files = std::fs::read_dir(fuzz.join("fuzz_targets")).unwrap();
    let files = files.map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned());
    let sorted = |names: Vec<String>| {
        let mut names = names;
        names.sort();
        names
    };
    let parsers = sorted(ALL.iter().map(|parser| parser.name.to_owned()).collect());
    assert_eq!(sorted(bins.collect()), parsers, "the targets of fuzz/Cargo.toml");
    assert_eq!(sorted(files.collect()), parsers, "the files in fuzz/fuzz_targets");
    for name in parsers {
        let target = std::fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(
            target.contains(&format!("parsers::feed(\"{name}\", bytes)")),
            "{name} feeds another:\n{target}"
        );
        assert!(
            manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")),
            "{name} is another's target"
        );
    }
}
