//! The statistics of the moves of a program.

use refit_migrate::{MoveCounts, PageCounts, Tally, Times, Traffic};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The count and the duration of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimesInfo {
    /// The number of operations.
    pub count: u64,
    /// The total duration.
    pub total_ns: u64,
    /// The shortest duration.
    pub least_ns: u64,
    /// The longest duration.
    pub most_ns: u64,
}

impl TimesInfo {
    /// Returns the mean duration; 0 if there was no operation.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count).unwrap_or(0)
    }
}

impl From<Times> for TimesInfo {
    fn from(times: Times) -> Self {
        let Times { count, total_ns, least_ns, most_ns } = times;
        Self { count, total_ns, least_ns, most_ns }
    }
}

/// The statistics of the moves of a program since its first move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MovesInfo {
    /// Its process.
    pub pid: u32,
    /// Departures of threads, measured from the stop to the start at the destination.
    pub out: TimesInfo,
    /// Threads that could not depart.
    pub refused: u64,
    /// Departures that failed, and returns that were forced, because an instance lacked memory.
    pub no_memory: u64,
    /// Returns of threads, measured from the message to the start at the origin.
    pub back: TimesInfo,
    /// Returns because the thread was recalled.
    pub recalled: u64,
    /// Returns for a system call.
    pub for_calls: u64,
    /// Returns to handle a fault.
    pub for_exceptions: u64,
    /// Signals for which threads were recalled.
    pub signals: u64,
    /// Retrievals that were answered with frames that others share.
    pub shared: u64,
    /// Retrievals for which private memory was converted to shareable frames.
    #[serde(alias = "made")]
    pub converted: u64,
    /// Retrievals that were answered with a file.
    pub files: u64,
    /// Retrievals that could not be answered, so that the thread returned.
    #[serde(alias = "nothing")]
    pub unmapped: u64,
    /// The time to find the answers of retrievals.
    pub answers: TimesInfo,
    /// The time that retrievals waited before that.
    pub questions: TimesInfo,
    /// Changes of the memory that threads at other instances made.
    pub changes: u64,
    /// Changes of the memory that threads at the origin made.
    pub changes_here: u64,
    /// Changes that other instances were notified of, measured until they had invalidated what is
    /// no longer valid.
    pub forgets: TimesInfo,
    /// The total number of those notifications.
    #[serde(alias = "told")]
    pub invalidations_sent: u64,
    /// Requests to the program's coordinator, measured from their arrival in the queue to their
    /// start.
    pub waits: TimesInfo,
    /// The statistics of its pages, where pages move.
    pub pages: PagesInfo,
    /// The statistics of each instance at which threads of it run or ran.
    #[serde(alias = "hosts")]
    pub destinations: Vec<DestinationInfo>,
    /// The traffic between this instance and others, for all programs.
    pub traffic: Vec<TrafficInfo>,
}

/// The statistics of a program's pages, where pages move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PagesInfo {
    /// Requests of other instances for pages, measured until they were answered.
    pub fetches: TimesInfo,
    /// The time that these requests waited.
    pub waits: TimesInfo,
    /// The number of these requests that were for writing.
    pub to_write: u64,
    /// Pages that were sent with their contents.
    pub sent: u64,
    /// Pages of zeros, for which no contents were sent.
    pub zeros: u64,
    /// Pages that the requesting instance had already and was permitted to write.
    pub permitted: u64,
    /// Pages that were sent without a request because they follow a requested one.
    pub ahead: u64,
    /// Pages sent without a request whose successor was requested next.
    pub ahead_used: u64,
    /// Pages that the program needed at its origin, measured until they were there.
    pub home: TimesInfo,
    /// Pages that had to be retrieved from another instance first.
    pub taken: u64,
    /// The number of times that an instance was left undisturbed for a while with a page that it
    /// wrote to.
    pub turns: u64,
}

impl From<PageCounts> for PagesInfo {
    fn from(pages: PageCounts) -> Self {
        Self {
            fetches: pages.fetches.into(),
            waits: pages.waits.into(),
            to_write: pages.to_write,
            sent: pages.sent,
            zeros: pages.zeros,
            permitted: pages.permitted,
            ahead: pages.ahead,
            ahead_used: pages.ahead_used,
            home: pages.home.into(),
            taken: pages.taken,
            turns: pages.turns,
        }
    }
}

/// The statistics of an instance about a program's threads that run there as replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestinationInfo {
    /// The number of the instance.
    pub number: u16,
    /// System calls that shadows made, measured from the stop before the call to the result.
    pub calls: Vec<CallInfo>,
    /// System calls on files that were made at the instance itself.
    pub files: Vec<CallInfo>,
    /// System calls that needed no other instance.
    pub local: u64,
    /// System calls that change the memory.
    pub changes: TimesInfo,
    /// Retrievals, which are accesses to unmapped memory, measured from the stop to the mapping.
    pub faults: TimesInfo,
    /// The part of the retrievals from the request to its answer.
    pub asks: TimesInfo,
    /// Answers that were outdated on arrival, so that the request was repeated.
    #[serde(alias = "again")]
    pub retries: u64,
    /// Retrievals that were answered by another instance than the program's origin.
    pub by_members: u64,
    /// Mappings that were created without a request together with a requested one.
    #[serde(alias = "beside")]
    pub fault_around: u64,
    /// Messages that retrievals took.
    pub messages: u64,
    /// Pages that arrived where pages move, measured from the detection of the waiting thread to
    /// the arrival.
    pub pages: TimesInfo,
    /// Waits for the lock on the memory, where instances agree on it by messages.
    pub locks: TimesInfo,
    /// Messages that these waits took.
    pub lock_messages: u64,
}

/// The statistics of a system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallInfo {
    /// Its number; numbers from 1024 on are counted together.
    pub number: u32,
    /// The count and the duration.
    #[serde(flatten)]
    pub times: TimesInfo,
}

/// The traffic between two instances since they were connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficInfo {
    /// The number of the other instance.
    pub number: u16,
    /// Messages to it.
    pub sent: u64,
    /// Bytes of the messages to it.
    pub sent_bytes: u64,
    /// Messages from it.
    pub received: u64,
    /// Bytes of the messages from it.
    pub received_bytes: u64,
    /// The mean transit time of sampled messages from it, in nanoseconds; 0 without samples.
    pub transit_ns: u64,
}

impl From<(u16, Tally)> for DestinationInfo {
    fn from((number, tally): (u16, Tally)) -> Self {
        let call = |(number, times): (u32, Times)| CallInfo { number, times: times.into() };
        Self {
            number,
            calls: tally.calls.into_iter().map(call).collect(),
            files: tally.files.into_iter().map(call).collect(),
            local: tally.local,
            changes: tally.changes.into(),
            faults: tally.faults.into(),
            asks: tally.asks.into(),
            retries: tally.retries,
            by_members: tally.by_members,
            fault_around: tally.fault_around,
            messages: tally.messages,
            pages: tally.pages.into(),
            locks: tally.locks.into(),
            lock_messages: tally.lock_messages,
        }
    }
}

impl From<Traffic> for TrafficInfo {
    fn from(traffic: Traffic) -> Self {
        let Traffic { peer, sent, sent_bytes, received, received_bytes, transit_ns } = traffic;
        Self { number: peer, sent, sent_bytes, received, received_bytes, transit_ns }
    }
}

impl MovesInfo {
    pub(crate) fn new(pid: u32, counts: MoveCounts, traffic: Vec<Traffic>) -> Self {
        Self {
            pid,
            out: counts.out.into(),
            refused: counts.refused,
            no_memory: counts.no_memory,
            back: counts.back.into(),
            recalled: counts.recalled,
            for_calls: counts.for_calls,
            for_exceptions: counts.for_exceptions,
            signals: counts.signals,
            shared: counts.shared,
            converted: counts.converted,
            files: counts.files,
            unmapped: counts.unmapped,
            answers: counts.answers.into(),
            questions: counts.questions.into(),
            changes: counts.changes,
            changes_here: counts.changes_here,
            forgets: counts.forgets.into(),
            invalidations_sent: counts.invalidations_sent,
            waits: counts.waits.into(),
            pages: counts.pages.into(),
            destinations: counts.destinations.into_iter().map(DestinationInfo::from).collect(),
            traffic: traffic.into_iter().map(TrafficInfo::from).collect(),
        }
    }
}
