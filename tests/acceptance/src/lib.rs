//! What the acceptance tests share: a directory that is served for one test, a storm of swaps over its
//! file caches, and programs that are run with a limit of time.
//!
//! The tests themselves stand in `tests/`, one file for each kind of evidence:
//!
//! | file | what it shows |
//! |---|---|
//! | `posix.rs` | pjdfstest finds no fault, with and without swaps |
//! | `exerciser.rs` | fsx finds no fault, with and without swaps |
//! | `requests.rs` | every request is answered exactly once over 10^5 swaps |
//! | `programs.rs`, `build.rs` | git, sqlite and a C build work while caches are swapped |
//! | `postmark.rs` | postmark's counts are those of a plain directory |
//! | `blocks.rs` | every byte is what was written last, with few frames and many swaps |
//! | `rollback.rs` | a swap that fails, is late or is given up leaves the file as it was |
//! | `crash.rs` | what was fsynced survives `SIGKILL` |
//!
//! Mounts of one process share its objects, which are named by their path in the mount. So each test works
//! in a directory with a name of its own, and a storm takes the objects below that.
//!
//! The tests need root and `/dev/fuse`, and the programs they are about. Where something is missing, a test says
//! so and passes, but not with `CI=true`: there it fails.

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
