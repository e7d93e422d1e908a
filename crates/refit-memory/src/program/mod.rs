//! The memory of unmodified programs, served from outside. Page faults travel Process → Region →
//! FCM → (budget, FR) → HAT, each of them an object that can be inspected, wrapped and swapped
//! while the program runs (Hui 2000, §3.2).
//!
//! | object | interface | implementations |
//! |---|---|---|
//! | process | [`Process`] | `default` |
//! | region | [`Region`] | `default`, `sequential`, `native` |
//! | FCM | [`AnonymousCache`] | `shared`, `partitioned`, `sequential` |
//! | PM | [`Budget`] | `global`, `local` |
//! | FR | [`FileRepresentative`][fr] of [`AnonymousPages`][anon] | `swapped` |
//! | HAT | [`Translation`] | `userfault` |
//!
//! Memory that needs no limit is not served: the kernel resolves its faults. A [`Pager`] serves one
//! program; its creator chooses the ranges.
//!
//! [fr]: crate::FileRepresentative
//! [anon]: crate::AnonymousPages

mod budget;
mod cache;
mod factory;
mod fcm;
mod hat;
mod intervals;
mod lists;
mod pager;
mod part;
mod region;
mod space;
#[cfg(test)]
mod space_tests;

pub use budget::{
    Budget, BudgetInterface, BudgetRef, BudgetStats, GLOBAL, LOCAL, Share, create_budget,
};
pub use cache::AnonymousParts;
pub use factory::{AnonymousCacheFactory, PARTITIONED, SEQUENTIAL, SHARED, create_anonymous_cache};
pub use fcm::{
    AnonymousCache, AnonymousCacheInterface, AnonymousCacheRef, AnonymousPage, AnonymousState,
    AnonymousStats, Before, GROUP, LendError, Place,
};
pub use hat::{
    InstallError, Pages, STAGING_AREA, StagingArea, Stopped, TakeOutcome, Translation,
    TranslationInterface, TranslationRef,
};
pub use pager::{Outside, Pager};
pub use part::Commons;
pub use region::{
    FaultError, Region, RegionInterface, RegionParts, RegionRef, RegionState, create_region,
};
pub use space::{Inherited, Process, ProcessInterface, ProcessRef, RegionInfo, Space};
