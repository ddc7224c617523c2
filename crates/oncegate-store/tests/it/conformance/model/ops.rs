//! What may happen in a run of the model, and how often.

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Claim {
        key: usize,
        who: Who,
        record: Option<usize>,
        payload: Option<bool>,
        correction: bool,
    },
    Finish {
        key: usize,
        token: usize,
        call: Call,
    },
    Act {
        key: usize,
        act: Act,
    },
    Begin {
        key: usize,
        token: usize,
    },
    End {
        key: usize,
        call: usize,
        outcome: StepOutcome,
    },
    Live(u64),
    /// Without ticks.
    Jump(u64),
    SetBack(u64),
    Pause(bool),
    Reopen,
    Reap,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Who {
    Caller(Option<usize>),
    Runner,
    Queue,
}

pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || 0..KEYS.len();
    let who = prop_oneof![
        3 => prop::option::of(0..2usize).prop_map(Who::Caller),
        2 => Just(Who::Runner),
        1 => Just(Who::Queue),
    ];
    let claim =
        (key(), who, prop::option::of(0..2usize), prop::option::of(any::<bool>()), prop::bool::weighted(0.1))
            .prop_map(|(key, who, record, payload, correction)| Op::Claim {
                key,
                who,
                record,
                payload,
                correction,
            });
    let defer = Call::Defer { until: MORNING.after(HOUR), note: "429".into() };
    let unknown = Call::Error { failure: Failed::Unknown, note: "no answer".into() };
    let calls = vec![
        Call::Done,
        failed(),
        failed_for_good(),
        unknown,
        Call::Heartbeat,
        Call::HandBack,
        Call::HandOver,
        defer,
    ];
    let named = |name: &str| Act::Reset { run_now: true, confirm_holder: Some(name.into()), verified: true };
    let acts = vec![
        reset(),
        named("attempt-1"),
        named("runner-attempt-2"),
        Act::MarkError { note: "n".into() },
        Act::MarkDone,
        Act::Dismiss,
    ];
    let outcomes = vec![StepOutcome::Succeeded, StepOutcome::Failed, StepOutcome::Unknown];
    let token = || prop_oneof![3 => Just(0usize), 1 => 0..4usize];
    let op = prop_oneof![
        12 => claim,
        8 => (key(), token(), prop::sample::select(calls))
            .prop_map(|(key, token, call)| Op::Finish { key, token, call }),
        4 => (key(), prop::sample::select(acts)).prop_map(|(key, act)| Op::Act { key, act }),
        3 => (key(), token()).prop_map(|(key, token)| Op::Begin { key, token }),
        3 => (key(), 0..3usize, prop::sample::select(outcomes))
            .prop_map(|(key, call, outcome)| Op::End { key, call, outcome }),
        5 => prop::sample::select(vec![1u64, 31, 300, 900]).prop_map(Op::Live),
        2 => prop::sample::select(vec![60u64, 7_300, 91 * 86_400]).prop_map(Op::Jump),
        1 => Just(7_200u64).prop_map(Op::SetBack),
        1 => any::<bool>().prop_map(Op::Pause),
        1 => Just(Op::Reopen),
        1 => Just(Op::Reap),
    ];
    prop::collection::vec(op, 1..50)
}
