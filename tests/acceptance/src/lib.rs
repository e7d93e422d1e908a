//! Helpers of the acceptance tests: a directory that is served for one test, a storm of swaps over
//! its file caches, and programs that are run with a time limit.
//!
//! The tests themselves are in `tests/`, one file for each kind of evidence:
//!
//! | file | evidence |
//! |---|---|
//! | `posix.rs` | pjdfstest finds no fault, with and without swaps |
//! | `exerciser.rs` | fsx finds no fault, with and without swaps |
//! | `requests.rs` | every request is answered exactly once over 10^5 swaps |
//! | `programs.rs`, `build.rs` | git, sqlite and a C build work while caches are swapped |
//! | `postmark.rs` | postmark's counts are those of a plain directory |
//! | `blocks.rs` | every byte is the last one written, with few frames and many swaps |
//! | `rollback.rs` | a swap that fails, is late or is given up leaves the file as it was |
//! | `crash.rs` | fsynced data survives `SIGKILL` |
//!
//! Mounts of one process share its objects, which are named by their path in the mount. Each test
//! therefore works in a directory with a name of its own, and a storm takes the objects below that.
//!
//! The tests require root, `/dev/fuse`, and the programs that they run. If one of these is missing,
//! a test reports that and passes; with `CI=true` it fails instead.

#![forbid(unsafe_code)]

mod blocks;
mod elsewhere;
mod process;
mod served;
mod storm;
mod tools;
mod watchdog;

pub use blocks::{Random, pattern};
pub use elsewhere::ServedElsewhere;
pub use process::{Limit, Ran, run};
pub use refit_files::CacheMode;
pub use served::{Served, possible, scratch};
pub use storm::{DEADLINE, Pace, Storm, Tally, caches};
pub use tools::{skip, tool};
