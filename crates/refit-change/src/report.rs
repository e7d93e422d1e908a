//! Changes, and the reports that describe them when they end.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

use crate::transfer::Transferred;

/// The number of a change within its instance, in the order in which changes begin; starts at 1.
pub type ChangeId = u64;

/// The phase of a change. The words are those of the design; a swap forwards calls while it is in
/// `Install` and blocks them while it is in `Quiesce` (Soules 2003, §4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
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
    /// The new part takes over; waiting calls continue.
    Commit,
    /// The old part takes over again, as if nothing had happened.
    RollBack,
}

/// The outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "end", content = "why")]
pub enum End {
    /// The new part serves.
    Committed,
    /// The change was begun and rolled back, for this reason; the old part serves.
    RolledBack(String),
    /// The change was not begun, for this reason.
    Refused(String),
    /// The change succeeded up to the commit, and was rolled back because it was a dry run; the
    /// old part serves.
    Rehearsed,
}

/// A thread that kept a change from proceeding at its deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Blocker {
    /// The Linux thread id.
    pub tid: u32,
    /// The kernel's name of the thread.
    pub thread: String,
    /// The object in which the thread is, `interface:instance`.
    pub object: String,
    /// The method of the object.
    pub method: String,
    /// The minimum time that the thread has been there, in microseconds.
    pub age_us: u64,
    /// The object for whose change the thread waits, `interface:instance`; empty if it waits for
    /// none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits_for: String,
}

/// A change as requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Change {
    /// The number of the change.
    pub id: ChangeId,
    /// The mechanism: `swap`.
    pub mechanism: String,
    /// The target of the change, for example `fcm:/logs/a`.
    pub target: String,
    /// The part that served before, for example `shared`.
    pub from: String,
    /// The part that serves after the change, for example `partitioned`.
    pub to: String,
    /// The requester, for example `uid 0, pid 4711`.
    pub owner: String,
    /// The time at which it began, in microseconds since 1970.
    pub began_us: u64,
}

/// A phase and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PhaseTime {
    /// The phase.
    pub phase: Phase,
    /// The duration, in nanoseconds.
    pub ns: u64,
}

/// The report of a change that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Report {
    /// The change as requested.
    pub change: Change,
    /// The phases that were reached, in order, with their durations.
    pub phases: Vec<PhaseTime>,
    /// The outcome.
    #[serde(flatten)]
    pub end: End,
    /// Number of calls that were forwarded and tracked.
    pub forwarded: u64,
    /// Number of calls that had to wait.
    pub blocked: u64,
    /// The longest wait of a blocked call, in nanoseconds.
    pub longest_block_ns: u64,
    /// The threads that kept it from proceeding; empty unless a deadline was missed.
    pub blockers: Vec<Blocker>,
    /// Whether the target ended before the change could, in which case a request for many targets
    /// does not miss it.
    #[serde(default)]
    pub target_gone: bool,
    /// Number of objects that were changed, or would have been.
    #[serde(default)]
    pub objects: u64,
    /// Number of attempts; 0 in reports that do not know it.
    #[serde(default)]
    pub attempts: u32,
    /// Whether its deadline passed, in which case another attempt may succeed.
    #[serde(default)]
    pub late: bool,
    /// The transfers of state, for each object in turn; empty if none was reached, or for too many
    /// objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<Transferred>,
    /// The gain of the change, as it was measured, for people; empty if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub effect: String,
}

/// The schema is one object instead of one for each variant, since many generators of clients
/// cannot express such a choice within the report.
#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for End {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, Type};
        let words = ["committed", "rolled-back", "refused", "rehearsed"];
        let end = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words));
        let why = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Why it was rolled back or refused; missing otherwise."));
        ObjectBuilder::new()
            .description(Some("How a change ended."))
            .property("end", end)
            .required("end")
            .property("why", why)
            .into()
    }
}

#[cfg(feature = "openapi")]
impl ToSchema for End {}

impl End {
    /// Returns the outcome in a word, without the reason.
    pub const fn word(&self) -> &'static str {
        match self {
            End::Committed => "committed",
            End::RolledBack(_) => "rolled-back",
            End::Refused(_) => "refused",
            End::Rehearsed => "rehearsed",
        }
    }
}

impl Report {
    /// Returns the report of a change that was not begun.
    pub fn refused(change: Change, why: &str) -> Self {
        Report {
            change,
            phases: Vec::new(),
            end: End::Refused(why.to_owned()),
            forwarded: 0,
            blocked: 0,
            longest_block_ns: 0,
            blockers: Vec::new(),
            target_gone: false,
            objects: 0,
            attempts: 0,
            late: false,
            transfers: Vec::new(),
            effect: String::new(),
        }
    }

    /// Returns whether the change was begun and rolled back.
    pub fn rolled_back(&self) -> bool {
        matches!(self.end, End::RolledBack(_))
    }

    /// Returns the time from the beginning of the first phase to the end of the last, in
    /// nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.phases.iter().map(|p| p.ns).sum()
    }

    /// Returns whether the new part serves.
    pub fn committed(&self) -> bool {
        self.end == End::Committed
    }
}

/// Returns the current time in microseconds since 1970; 0 if the clock is before that.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Change {
    /// Creates a change that begins now.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn report(end: End) -> Report {
        Report {
            change: Change::new(7, "swap", "fcm:/a", "shared", "partitioned", "uid 0, pid 1"),
            phases: vec![
                PhaseTime { phase: Phase::Prepare, ns: 100 },
                PhaseTime { phase: Phase::Commit, ns: 23 },
            ],
            end,
            forwarded: 2,
            blocked: 1,
            longest_block_ns: 50,
            blockers: vec![],
            target_gone: false,
            objects: 1,
            attempts: 1,
            late: false,
            transfers: vec![],
            effect: String::new(),
        }
    }

    #[test]
    fn total_is_the_sum_of_the_phases() {
        assert_eq!(report(End::Committed).total_ns(), 123);
    }

    #[test]
    fn ends_tell_each_other_apart() {
        assert!(report(End::Committed).committed());
        assert!(!report(End::Committed).rolled_back());
        assert!(report(End::RolledBack("why".into())).rolled_back());
        assert!(!report(End::Refused("why".into())).rolled_back());
    }

    #[test]
    fn reports_survive_json_with_the_names_that_readers_rely_on() {
        for end in [
            End::Committed,
            End::RolledBack("deadline of 10 ms".into()),
            End::Refused("no such implementation".into()),
        ] {
            let before = report(end);
            let text = serde_json::to_string(&before).expect("plain data serialises");
            let after: Report = serde_json::from_str(&text).expect("and comes back");
            assert_eq!(before, after, "{text}");
        }
        let text = serde_json::to_value(report(End::RolledBack("why".into()))).expect("serialises");
        assert_eq!(text["end"], "rolled-back");
        assert_eq!(text["why"], "why");
        assert_eq!(text["phases"][0]["phase"], "prepare");
    }
}
