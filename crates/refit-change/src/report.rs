//! What a change is, and what it says about itself when it ends.

use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

/// Number of a change within its instance, in the order of their beginning; starts at 1.
pub type ChangeId = u64;

/// Where in its life a change is. The words are those of the design; a swap forwards calls while it is in
/// `Install` and blocks them while it is in `Quiesce` (Soules 2003, §4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The new part is built; nothing has been touched.
    Prepare,
    /// The indirection is in place; calls are forwarded to the old part and tracked.
    Install,
    /// New calls wait; tracked calls drain.
    Quiesce,
    /// State moves from the old part to the new one.
    Transfer,
    /// The new part takes over; waiting calls go on.
    Commit,
    /// The old part takes over again, as if nothing had happened.
    RollBack,
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "end", content = "why")]
pub enum End {
    /// The new part serves.
    Committed,
    /// It was begun and taken back; the old part serves; the reason.
    RolledBack(String),
    /// It was not begun; the reason.
    Refused(String),
}

/// Who stood in the way of a change at its deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// Linux thread id.
    pub tid: u32,
    /// Name of the thread as the kernel knows it.
    pub thread: String,
    /// Object in which the thread is, `interface:instance`.
    pub object: String,
    /// Method of the object.
    pub method: String,
    /// For how long at least, in microseconds.
    pub age_us: u64,
}

/// A change as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its number.
    pub id: ChangeId,
    /// The mechanism: `swap`.
    pub mechanism: String,
    /// What is changed, e.g. `fcm:/logs/a`.
    pub target: String,
    /// What served before, e.g. `shared`.
    pub from: String,
    /// What is to serve, e.g. `partitioned`.
    pub to: String,
    /// Who asked, e.g. `uid 0, pid 4711`.
    pub owner: String,
    /// When it began, microseconds since 1970.
    pub began_us: u64,
}

/// One phase and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTime {
    /// Which.
    pub phase: Phase,
    /// How long, in nanoseconds.
    pub ns: u64,
}

/// What a change says about itself when it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What was asked for.
    pub change: Change,
    /// The phases that were reached, in order, with their times.
    pub phases: Vec<PhaseTime>,
    /// How it ended.
    #[serde(flatten)]
    pub end: End,
    /// Calls that were forwarded and tracked.
    pub forwarded: u64,
    /// Calls that had to wait.
    pub blocked: u64,
    /// Longest wait of a blocked call, in nanoseconds.
    pub longest_block_ns: u64,
    /// Who stood in the way; empty unless a deadline was missed.
    pub blockers: Vec<Blocker>,
}

impl Report {
    /// Time from the beginning of the first phase to the end of the last, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.phases.iter().map(|p| p.ns).sum()
    }

    /// Whether the new part serves.
    pub fn committed(&self) -> bool {
        self.end == End::Committed
    }
}

/// Microseconds since 1970 now; 0 if the clock stands before.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Change {
    /// A change that begins now.
    pub fn new(
        id: ChangeId,
        mechanism: &str,
        target: &str,
        from: &str,
        to: &str,
        owner: &str,
    ) -> Self {
        Change {
            id,
            mechanism: mechanism.into(),
            target: target.into(),
            from: from.into(),
            to: to.into(),
            owner: owner.into(),
            began_us: now_us(),
        }
    }
}

/// The stop-watch of a change: which phase it is in, and how long the earlier ones took.
///
/// A change moves forward through the phases, or from any of them to [`Phase::RollBack`]; anything else is a
/// mistake of the mechanism and panics in debug builds.
#[derive(Debug)]
pub struct Timeline {
    phase: Phase,
    since: Instant,
    done: Vec<PhaseTime>,
}

impl Timeline {
    /// Starts in [`Phase::Prepare`].
    pub fn begin() -> Self {
        Timeline { phase: Phase::Prepare, since: Instant::now(), done: Vec::with_capacity(6) }
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Ends the present phase and enters `next`.
    pub fn enter(&mut self, next: Phase) {
        debug_assert!(next as u8 > self.phase as u8, "{:?} does not follow {:?}", next, self.phase);
        let now = Instant::now();
        self.done.push(PhaseTime { phase: self.phase, ns: nanos(now - self.since) });
        self.phase = next;
        self.since = now;
    }

    /// Ends the last phase and gives all of them.
    pub fn end(mut self) -> Vec<PhaseTime> {
        self.done.push(PhaseTime { phase: self.phase, ns: nanos(self.since.elapsed()) });
        self.done
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
