//! What many callers do, made up at random.
//!
//! A history is made before it is known what becomes of it, so its verbs point at tasks by numbers that stand
//! for "one of those that run", say. `resolved` puts an id in their place when the verb is asked. So a history
//! from which proptest has taken something still makes sense.

use crate::machine::{Machine, State, Task};
use crate::verbs::*;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{RngAlgorithm, TestRng};

pub const TYPES: [Name; 2] = ["mail", "report"];
pub const QUEUES: [Name; 2] = ["default", "bulk"];
const KEYS: [Name; 2] = ["k", "l"];
const GROUPS: [Name; 2] = ["g", "h"];

/// One transaction.
#[derive(Clone, Debug)]
pub struct Turn {
    pub verbs: Vec<Verb>,
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Commit,
    Rollback,
    /// Rolls back to a savepoint, then commits.
    RollbackToSavepoint,
}

pub type History = Vec<Turn>;

/// The random numbers of one thread of a test.
pub fn random(seed: u64, thread: u64) -> TestRng {
    let mixed = |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    TestRng::from_seed(RngAlgorithm::XorShift, &[mixed(seed), mixed(thread ^ seed << 32)].concat())
}

pub fn history() -> impl Strategy<Value = History> {
    let turns = prop_oneof![24 => turn().prop_map(|turn| vec![turn]), 1 => behind_another()];
    vec(turns, 1..22).prop_map(|turns| turns.concat())
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![2 => Just(End::Commit), 1 => Just(End::Rollback), 1 => Just(End::RollbackToSavepoint)]
}

fn turn() -> BoxedStrategy<Turn> {
    let alone = |verb: BoxedStrategy<Verb>| {
        verb.prop_map(|verb| Turn { verbs: vec![verb], end: End::Commit }).boxed()
    };
    prop_oneof![
        20 => alone(verb()),
        3 => alone(setting()),
        1 => (limit(), end()).prop_map(|(limit, end)| Turn { verbs: vec![limit], end }),
        4 => (vec(prop_oneof![3 => verb(), 1 => setting()], 1..4), end()).prop_map(|(verbs, end)| Turn { verbs, end }),
    ]
    .boxed()
}

/// A task that waits for another one of its group is replaced, if nobody has taken either meanwhile. They have a group and
/// a key that no others have, and the same priority, lest the other one be claimed first.
fn behind_another() -> BoxedStrategy<Vec<Turn>> {
    let alone = |verb| Turn { verbs: vec![verb], end: End::Commit };
    (new_task(), new_task(), new_task(), end())
        .prop_map(move |(first, second, third, end)| {
            let NewTask { task_type, queue, .. } = first;
            let (key, group, priority) = ("behind", Some("behind"), Some(0));
            let unique =
                |on_conflict| Some(Unique { key, until: Until::Finished, kept_for: None, on_conflict });
            let first = NewTask { group, priority, unique: None, when: When::Now, ..first };
            let second = NewTask {
                task_type,
                queue,
                group,
                priority,
                when: When::Now,
                unique: unique(OnConflict::Ignore),
                ..second
            };
            let third = NewTask { task_type, unique: unique(OnConflict::Replace), ..third };
            vec![
                alone(Verb::EnqueueMany(vec![first, second])),
                alone(Verb::Claim { n: 5, queues: None, lease: None, also: vec![0] }),
                Turn { verbs: vec![Verb::Enqueue(third)], end },
            ]
        })
        .boxed()
}

/// What producers, workers and the keeper do, and the time.
fn verb() -> BoxedStrategy<Verb> {
    let seconds = || select(vec![1, 20, 30, 60, 61, 300, 900]);
    let leases = || vec(lease(), 1..4);
    prop_oneof![
        7 => new_task().prop_map(Verb::Enqueue),
        2 => vec(new_task(), 0..5).prop_map(Verb::EnqueueMany),
        9 => (n(), queues(), weighted(0.3, seconds()), any::<u8>())
            .prop_map(|(n, queues, lease, also)| Verb::Claim { n, queues, lease, also: vec![also.into()] }),
        3 => (lease(), weighted(0.3, 0..9i64)).prop_map(|(lease, result)| Verb::Complete(lease, result)),
        1 => leases().prop_map(Verb::CompleteMany),
        4 => (lease(), weighted(0.3, seconds()), any::<u8>())
            .prop_map(|(lease, retry_in, retry)| Verb::Fail { lease, retry_in, retry: retry < 220 }),
        1 => leases().prop_map(Verb::FailMany),
        2 => (lease(), weighted(0.5, seconds()), weighted(0.5, 0..9i64))
            .prop_map(|(lease, seconds, progress)| Verb::Extend { lease, seconds, progress }),
        2 => (lease(), weighted(0.5, prop_oneof![Just(0), seconds()])).prop_map(|(lease, delay)| Verb::Release(lease, delay)),
        3 => (any::<u8>(), weighted(0.5, Just("unwanted")), any::<bool>())
            .prop_map(|(id, reason, force)| Verb::Cancel { id: id.into(), reason, force }),
        1 => (select(&KEYS[..]), weighted(0.5, seconds())).prop_map(|(key, keep_for)| Verb::Once { key, keep_for }),
        2 => Just(Verb::Recover),
        1 => Just(Verb::RunSchedules),
        7 => prop_oneof![seconds(), select(vec![1_800, 4_000, 90_000])].prop_map(Verb::Pass),
    ]
    .boxed()
}

/// Not together with other verbs in a transaction: limits count from their commit on.
fn limit() -> BoxedStrategy<Verb> {
    let limit = prop_oneof![
        3 => weighted(0.8, 0..4i64).prop_map(QueueSetting::MaxRunning),
        2 => any::<bool>().prop_map(QueueSetting::Rate),
    ];
    (select(&QUEUES[..]), limit).prop_map(|(queue, setting)| Verb::ConfigureQueue(queue, setting)).boxed()
}

/// What else operators do.
fn setting() -> BoxedStrategy<Verb> {
    let of_queue = prop_oneof![
        1 => weighted(0.6, 20..40i64).prop_map(QueueSetting::Lease),
        1 => any::<bool>().prop_map(QueueSetting::Kept),
    ];
    let of_type = prop_oneof![
        weighted(0.7, select(&QUEUES[..])).prop_map(TypeSetting::Queue),
        weighted(0.7, -1..2i32).prop_map(TypeSetting::Priority),
        weighted(0.7, 0..3i32).prop_map(TypeSetting::MaxRetries),
        weighted(0.7, 20..40i64).prop_map(TypeSetting::Lease),
        weighted(0.7, prop_oneof![Just(0), Just(7), Just(20_000)]).prop_map(TypeSetting::BackoffBase),
    ];
    let of_what = || (weighted(0.3, select(&QUEUES[..])), weighted(0.3, select(&TYPES[..])));
    let states = select(vec!["dead", "succeeded", "cancelled", "scheduled", "ready", "running"]);
    let redrive = (
        prop_oneof![2 => Just(Some("*")), 1 => weighted(0.7, select(&QUEUES[..]))],
        weighted(0.2, select(&TYPES[..])),
        weighted(0.4, vec(any::<u8>().prop_map(Id::from), 0..3)),
        weighted(0.2, -1..3i32),
        any::<bool>(),
    );
    let plan =
        (select(vec!["s", "t"]), select(vec![10, 30, 60]), select(&TYPES[..]), 0..3i64, 0..3u8, any::<u8>());
    prop_oneof![
        2 => select(&QUEUES[..]).prop_map(Verb::Pause),
        2 => select(&QUEUES[..]).prop_map(Verb::Resume),
        2 => (select(&QUEUES[..]), of_queue).prop_map(|(queue, setting)| Verb::ConfigureQueue(queue, setting)),
        2 => (select(&TYPES[..]), of_type).prop_map(|(task_type, setting)| Verb::ConfigureType(task_type, setting)),
        4 => redrive.prop_map(|(queue, task_type, ids, max_tasks, one_per_second)| {
            Verb::Redrive { queue, task_type, ids, max_tasks, one_per_second }
        }),
        2 => (states, of_what(), weighted(0.3, select(vec![0, 60, 3_600])))
            .prop_map(|(state, (queue, task_type), older_than)| Verb::Purge { state, queue, task_type, older_than }),
        2 => plan.prop_map(|(name, minutes, task_type, payload, missed, paused)| {
            let missed = [Missed::RunOnce, Missed::Skip, Missed::RunAll][usize::from(missed)];
            Verb::Schedule(Plan { name, minutes, task_type, payload, missed, paused: paused > 230 })
        }),
        1 => select(vec!["s", "t"]).prop_map(Verb::Unschedule),
    ]
    .boxed()
}

fn n() -> impl Strategy<Value = i32> {
    prop_oneof![8 => Just(1), 6 => 2..6i32, 1 => -1..1i32]
}

fn queues() -> impl Strategy<Value = Option<Vec<Name>>> {
    weighted(0.3, vec(select(&QUEUES[..]), 0..3))
}

/// Of a task that runs, mostly, and with its token, mostly: see `resolved`.
fn lease() -> impl Strategy<Value = Lease> {
    (any::<u8>(), any::<u8>()).prop_map(|(id, token)| Lease { id: id.into(), token: token.into() }).boxed()
}

fn new_task() -> BoxedStrategy<NewTask> {
    let when = prop_oneof![
        6 => Just(When::Now),
        2 => select(vec![-1, 0, 30, 60, 3_600]).prop_map(When::Delay),
        2 => select(vec![-3_600, 0, 60, 600, 5_000]).prop_map(When::RunAt),
    ];
    let on_conflict = prop_oneof![
        2 => Just(OnConflict::Ignore),
        1 => Just(OnConflict::Skip),
        2 => Just(OnConflict::Replace),
        1 => Just(OnConflict::Error),
    ];
    let until = prop_oneof![Just(Until::Finished), Just(Until::Started)];
    let unique = (select(&KEYS[..]), until, weighted(0.4, select(vec![60, 3_600])), on_conflict)
        .prop_map(|(key, until, kept_for, on_conflict)| Unique { key, until, kept_for, on_conflict });
    let headers = weighted(0.2, 0..9i64).prop_map(|given| given.map_or(Headers::None, Headers::Given));
    (
        (
            select(&TYPES[..]),
            0..9i64,
            headers,
            weighted(0.2, select(&QUEUES[..])),
            weighted(0.3, select(vec![-100, -1, 1, 100, 101])),
        ),
        (when, weighted(0.5, -1..3i32), weighted(0.5, unique), weighted(0.35, select(&GROUPS[..]))),
    )
        .prop_map(|((task_type, payload, headers, queue, priority), (when, max_retries, unique, group))| {
            NewTask { task_type, payload, headers, queue, priority, when, max_retries, unique, group }
        })
        .boxed()
}

/// The verb with ids and tokens in the place of numbers that stand for them.
pub fn resolved(verb: &Verb, machine: &Machine) -> Verb {
    let lease = |lease: &Lease| {
        let id = one_of(lease.id, machine, Task::runs);
        let token = machine.tasks.get(&id).map_or(0, |task| task.token);
        Lease {
            id,
            token: if lease.token < 225 {
                token
            } else if lease.token < 240 {
                token + 1
            } else {
                token.saturating_sub(1)
            },
        }
    };
    let mut verb = verb.clone();
    match &mut verb {
        Verb::Claim { also, .. } => {
            let over = |task: &&Task| matches!(task.state, State::Running { lease_expires_at, .. } if lease_expires_at <= machine.now);
            let over = machine.tasks.values().filter(over).map(|task| task.id);
            *also =
                over.enumerate().filter(|(at, _)| also[0] >> (at % 8) & 1 == 1).map(|(_, id)| id).collect();
        }
        Verb::Complete(given, _)
        | Verb::Fail { lease: given, .. }
        | Verb::Extend { lease: given, .. }
        | Verb::Release(given, _) => {
            *given = lease(given);
        }
        Verb::CompleteMany(given) | Verb::FailMany(given) => {
            given.iter_mut().for_each(|given| *given = lease(given))
        }
        Verb::Cancel { id, .. } => *id = one_of(*id, machine, Task::unfinished),
        Verb::Redrive { ids: Some(ids), .. } => {
            ids.iter_mut()
                .for_each(|id| *id = one_of(*id, machine, |task| matches!(task.state, State::Dead { .. })));
        }
        Verb::Enqueue(new) => new.when = since(new.when, machine.now),
        Verb::EnqueueMany(new) => new.iter_mut().for_each(|new| new.when = since(new.when, machine.now)),
        _ => {}
    }
    verb
}

/// A task like that, mostly; else any, also one that is forgotten or was never there.
fn one_of(number: u32, machine: &Machine, like: impl Fn(&Task) -> bool) -> Id {
    let such: Vec<Id> = machine.tasks.values().filter(|task| like(task)).map(|task| task.id).collect();
    if number < 220 && !such.is_empty() {
        such[number as usize % such.len()]
    } else {
        number % (machine.ids + 1) + 1
    }
}

fn since(when: When, now: Seconds) -> When {
    if let When::RunAt(at) = when { When::RunAt(now + at) } else { when }
}
