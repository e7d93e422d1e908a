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

macro_rules! declare_moves_info {
    ($($(#[$doc:meta])* $name:ident: $kind:ident $(, $alias:meta)?;)*) => {
        /// The statistics of the moves of a program since its first move.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        pub struct MovesInfo {
            /// Its process.
            pub pid: u32,
            $($(#[$doc])* $(#[$alias])? pub $name: $kind,)*
            /// The statistics of its pages, where pages move.
            pub pages: PagesInfo,
            /// The statistics of each instance at which threads of it run or ran.
            #[serde(alias = "hosts")]
            pub destinations: Vec<DestinationInfo>,
            /// The traffic between this instance and others, for all programs.
            pub traffic: Vec<TrafficInfo>,
        }

        impl MovesInfo {
            pub(crate) fn new(pid: u32, counts: MoveCounts, traffic: Vec<Traffic>) -> Self {
                let destinations = counts.destinations.into_iter().map(DestinationInfo::from);
                Self {
                    pid,
                    $($name: counts.$name.into(),)*
                    pages: counts.pages.into(),
                    destinations: destinations.collect(),
                    traffic: traffic.into_iter().map(TrafficInfo::from).collect(),
                }
            }

            /// Returns its own counters, by name: those that are neither of pages nor of other
            /// instances.
            pub(crate) fn counters(&self) -> Vec<(&'static str, CounterValue)> {
                vec![$((stringify!($name), self.$name.into()),)*]
            }
        }
    };
}

refit_migrate::move_counters!(declare_moves_info, TimesInfo);

/// The value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterValue {
    /// A number of operations.
    Count(u64),
    /// A number of operations, and their durations.
    Times(TimesInfo),
}

impl From<u64> for CounterValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<TimesInfo> for CounterValue {
    fn from(times: TimesInfo) -> Self {
        Self::Times(times)
    }
}

macro_rules! declare_pages_info {
    ($($(#[$doc:meta])* $name:ident: $kind:ident $(, $alias:meta)?;)*) => {
        /// The statistics of a program's pages, where pages move.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema,
        )]
        pub struct PagesInfo {
            $($(#[$doc])* $(#[$alias])? pub $name: $kind,)*
        }

        impl From<PageCounts> for PagesInfo {
            fn from(pages: PageCounts) -> Self {
                Self { $($name: pages.$name.into(),)* }
            }
        }
    };
}

refit_migrate::page_counters!(declare_pages_info, TimesInfo);

macro_rules! declare_destination_info {
    ($($(#[$doc:meta])* $name:ident: $kind:ident $(, $alias:meta)?;)*) => {
        /// The statistics of an instance about a program's threads that run there as replicas.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        pub struct DestinationInfo {
            /// The number of the instance.
            pub number: u16,
            /// System calls that shadows made, measured from the stop before the call to the
            /// result.
            pub calls: Vec<CallInfo>,
            /// System calls on files that were made at the instance itself.
            pub files: Vec<CallInfo>,
            $($(#[$doc])* $(#[$alias])? pub $name: $kind,)*
        }

        impl From<(u16, Tally)> for DestinationInfo {
            fn from((number, tally): (u16, Tally)) -> Self {
                let call = |(number, times): (u32, Times)| CallInfo { number, times: times.into() };
                Self {
                    number,
                    calls: tally.calls.into_iter().map(call).collect(),
                    files: tally.files.into_iter().map(call).collect(),
                    $($name: tally.$name.into(),)*
                }
            }
        }
    };
}

refit_migrate::destination_counters!(declare_destination_info, TimesInfo);

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

impl From<Traffic> for TrafficInfo {
    fn from(traffic: Traffic) -> Self {
        let Traffic { peer, sent, sent_bytes, received, received_bytes, transit_ns } = traffic;
        Self { number: peer, sent, sent_bytes, received, received_bytes, transit_ns }
    }
}
