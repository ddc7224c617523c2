//! Which starts of the gate are certainly over, seen from another (DESIGN §3, "Restart").

use oncegate_core::claim::{Boot, NodeNumber};

fn boot(node: u32, start: u32) -> Boot {
    Boot { node: NodeNumber(node), start }
}

#[test]
fn only_an_earlier_start_of_the_same_node_is_over() {
    let numbers = [0, 1, 2, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1, u32::MAX];
    let boots: Vec<Boot> = numbers.iter().flat_map(|n| numbers.iter().map(|s| boot(*n, *s))).collect();
    for a in &boots {
        for b in &boots {
            let over = a.node == b.node && a.start < b.start;
            assert_eq!(a.is_over(*b), over, "{a:?} seen from {b:?}");
            assert_eq!(b.over().contains(&a.to_i64()), over, "{a:?} in the range of {b:?}");
        }
    }
}

#[test]
fn a_boot_is_one_number_and_back() {
    for number in [0, 1, 7, 1 << 32, (1 << 32) + 5, i64::MAX, i64::MIN, -1] {
        assert_eq!(Boot::from_i64(number).to_i64(), number);
    }
    // What was written before there were nodes.
    assert_eq!(Boot::from_i64(7), Boot::alone(7));
    assert_eq!(boot(1, 1).to_i64(), (1 << 32) + 1);
}
