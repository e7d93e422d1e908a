//! What the moves of a program come to: what is told of it, and its route.

use axum::Json;
use axum::extract::{Path, State};
use refit_migrate::{MoveCounts, PageCounts, Tally, Times, Traffic};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::client::Client;
use crate::refusal::{Kind, Refusal};
use crate::rejection::blocking;
use crate::server::Shared;

/// How often something was done, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimesInfo {
    /// How often.
    pub count: u64,
    /// All of it together.
    pub total_ns: u64,
    /// The shortest.
    pub least_ns: u64,
    /// The longest.
    pub most_ns: u64,
}

impl TimesInfo {
    /// What it took in the middle; 0 if it was never done.
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

/// What the moves of a program come to, since its first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MovesInfo {
    /// Its process.
    pub pid: u32,
    /// Threads that have left: from where they stood to where they run.
    pub out: TimesInfo,
    /// Threads that were to leave, and could not.
    pub refused: u64,
    /// Of those, and of threads that were away and had to come: an instance had no memory for them.
    pub no_memory: u64,
    /// Threads that have come back: from the message of it to where they run.
    pub back: TimesInfo,
    /// Of those: they were wanted back.
    pub recalled: u64,
    /// They came for a system call.
    pub for_calls: u64,
    /// They came to fault.
    pub for_exceptions: u64,
    /// Signals for which threads were called back.
    pub signals: u64,
    /// Retrievals whose answer was frames that others have, too.
    pub shared: u64,
    /// Private memory that became frames for it.
    #[serde(alias = "made")]
    pub converted: u64,
    /// A file.
    pub files: u64,
    /// Nothing, so that the thread came.
    #[serde(alias = "nothing")]
    pub unmapped: u64,
    /// Finding the answers.
    pub answers: TimesInfo,
    /// How long the questions waited for that.
    pub questions: TimesInfo,
    /// Changes of the memory that threads elsewhere wanted.
    pub changes: u64,
    /// Those of threads here.
    pub changes_here: u64,
    /// Changes that others were told of, until they had forgotten what was so no more.
    pub forgets: TimesInfo,
    /// How many were told, in sum.
    #[serde(alias = "told")]
    pub invalidations_sent: u64,
    /// Whatever was asked of the program's coordinator: how long it waited in the queue.
    pub waits: TimesInfo,
    /// Its pages, where they move.
    pub pages: PagesInfo,
    /// What is counted where threads of it are, or were.
    #[serde(alias = "hosts")]
    pub destinations: Vec<DestinationInfo>,
    /// What has gone between this instance and others, of whatever program.
    pub traffic: Vec<TrafficInfo>,
}

/// What becomes of a program's pages where they move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PagesInfo {
    /// Questions of other instances for pages; until they were answered.
    pub fetches: TimesInfo,
    /// How long these waited for that.
    pub waits: TimesInfo,
    /// Of those: to write.
    pub to_write: u64,
    /// Pages that were sent with what is on them.
    pub sent: u64,
    /// Pages of zeros, which were only told.
    pub zeros: u64,
    /// Pages that who asked had already, and may write to now.
    pub permitted: u64,
    /// Pages that were given unasked, since they come after one that was asked for.
    pub ahead: u64,
    /// Of those: the page behind them was asked for next.
    pub ahead_used: u64,
    /// Pages that the program needed at its origin; until it had them.
    pub home: TimesInfo,
    /// Pages that had to be had from another instance first.
    pub taken: u64,
    /// How often a holder was left alone for a while with what it wrote to.
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

/// What an instance counts of a program's threads that run there as replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestinationInfo {
    /// The number of the instance.
    pub number: u16,
    /// System calls that shadows have made; from the stop before it to the result.
    pub calls: Vec<CallInfo>,
    /// System calls on files that were made there.
    pub files: Vec<CallInfo>,
    /// System calls that needed nobody.
    pub local: u64,
    /// System calls that change the memory.
    pub changes: TimesInfo,
    /// Retrievals: accesses to what was not mapped; from the stop to the mapping.
    pub faults: TimesInfo,
    /// Of that: from the question to its answer.
    pub asks: TimesInfo,
    /// Answers that were too old when they came, so that it was asked again.
    #[serde(alias = "again")]
    pub retries: u64,
    /// Retrievals that another instance has answered than that where the program began.
    pub by_members: u64,
    /// Mappings that were made unasked with another one.
    #[serde(alias = "beside")]
    pub fault_around: u64,
    /// Messages that retrievals took.
    pub messages: u64,
    /// Pages that came where they move; from the thread that is heard to wait for one to the page.
    pub pages: TimesInfo,
    /// Waits for the lock on the memory, where instances agree on it by messages.
    pub locks: TimesInfo,
    /// Messages that these took.
    pub lock_messages: u64,
}

/// A system call, as often as it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallInfo {
    /// Its number; 1024 and above are one.
    pub number: u32,
    /// How often, and what it took.
    #[serde(flatten)]
    pub times: TimesInfo,
}

/// What has gone between two instances since they are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficInfo {
    /// The number of the other one.
    pub number: u16,
    /// Messages to it.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages from it.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// How long one of those was under way, on an average of samples; 0: there is none.
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

/// What the moves come to of a program that began at the instance, and has moved; it may have ended not long ago.
#[utoipa::path(get, path = "/moves/{pid}", params(("pid" = u32, Path,)), responses(
    (status = 200, body = MovesInfo),
    (status = 404, body = Refusal),
))]
pub(crate) async fn counts(
    State(shared): State<Shared>,
    Path(pid): Path<String>,
) -> Result<Json<MovesInfo>, Refusal> {
    let asked = format!("show the moves of {pid}");
    let obstacle = "no program that began at this instance and has moved has such a process";
    let unknown = Refusal::new(Kind::Unknown, &*asked, obstacle, "see `refit ps`");
    blocking(&asked, move || {
        let found = pid.parse().ok().and_then(|pid| shared.core.system.moves(pid));
        found.map(Json).ok_or(unknown)
    })
    .await
}

impl Client {
    /// What the moves come to of a program that began there; `None`: it has not moved, or did not begin there.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn moves(&self, pid: u32) -> Result<Option<MovesInfo>, Refusal> {
        match self.get(&format!("show the moves of {pid}"), &format!("/moves/{pid}")) {
            Ok(found) => Ok(Some(found)),
            Err(refusal) if refusal.kind == Kind::Unknown => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}
