//! Raw Linux for refit: thin, documented wrappers of kernel interfaces, with safe signatures.
//!
//! The modules, by subject:
//!
//! - *this process*: [`processor`], the processor a thread runs on; [`placement`] and
//!   [`adaptive_spin`], keeping workers near the programs they serve; [`barrier`], asymmetric
//!   memory barriers; [`clock`], cheap time stamps; [`credentials`], per-thread identities for
//!   files; [`descriptors`], descriptors taken over from another process; [`latest`], the latest of
//!   several `'static` values; [`waiting`], work that waits for a ring; [`step`], counting
//!   instructions; [`keeper`], keeping descriptors open past the end of the process; [`holder`], a
//!   process that keeps those of a server and starts it again
//! - *memory that is a file*: [`memfd`], creating, sealing and punching; [`memory`], mapping;
//!   [`words`], sharing as atomic words, on which [`futex`] waits; [`word_table`], words that
//!   outlive the process; [`mod@ring`], rings of bytes; [`library`], loading libraries from bytes;
//!   [`page_cache`], the pages of a file that the kernel caches
//! - *files of this user*: [`private_file`], caches and state that nobody else can write
//! - *other processes*: [`process`], whether they exist; [`mod@status`], their status; [`pidfd`],
//!   descriptors of them; [`perf`], what the scheduler does with them
//! - *their threads*: [`trace`], stopping them, their state, system calls made in them, their
//!   events ([`trace::next`]); [`seccomp`], intercepting their system calls
//! - *their memory*: [`maps`] and [`smaps`], mappings and their use; [`mapped_file`], the files of
//!   mappings; [`pagemap`], the state of pages; [`patch_area`], refit's code; [`foreign`], reading
//!   and writing; [`userfault`], serving page faults; [`agent`], making calls that act on the
//!   memory
//! - *their start*: [`launch`], starting them stopped; [`auxv`], what the kernel passes to them;
//!   [`layout`], where the kernel records their parts
//!
//! The crate has no policy: no module here knows what an object or a file is.
//!
//! Structures and constants of the kernel come from the crates `libc` and `linux-raw-sys`, which
//! are generated from its headers; `tests/kernel` checks each wrapper against the running kernel.

pub mod adaptive_spin;
pub mod agent;
pub mod auxv;
pub mod barrier;
pub mod clock;
pub mod cpu_latency;
pub mod credentials;
pub mod descriptors;
pub mod foreign;
pub mod fuse_device;
pub mod futex;
pub mod glob;
pub mod holder;
mod ioctl;
pub mod keeper;
pub mod latest;
pub mod launch;
pub mod layout;
pub mod library;
pub mod mapped_file;
pub mod maps;
pub mod memfd;
pub mod memory;
pub mod page_cache;
pub mod pagemap;
pub mod patch_area;
pub mod perf;
pub mod pidfd;
pub mod placement;
pub mod printable;
pub mod private_file;
pub mod process;
pub mod processor;
pub mod restart;
#[cfg(not(loom))]
pub mod ring;
pub mod schedule;
pub mod seccomp;
pub mod shadow_stub;
pub mod sharers;
pub mod slack;
pub mod smaps;
pub mod status;
pub mod step;
pub mod tcp;
mod text;
pub mod thread;
pub mod trace;
pub mod userfault;
pub mod wait_interrupt;
pub mod waiting;
mod wakeup;
pub mod word_table;
pub mod words;
