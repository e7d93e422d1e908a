//! Raw Linux for refit: thin, documented wrappers, each with a safe face.
//!
//! Does, by what is at hand:
//!
//! | of | what |
//! |---|---|
//! | this process | the processor a thread runs on ([`processor`]), and how to be near those it serves ([`placement`], [`adaptive_spin`]), plain stores made visible to whoever asks ([`barrier`]), time told cheaply ([`clock`]), an identity for files of one thread ([`credentials`]), the latest of values that live forever ([`latest`]), what waits for a ring ([`waiting`]), instructions counted ([`step`]), its descriptors kept open past its end ([`keeper`]) |
//! | memory that is a file | made, sealed, given back ([`memfd`]), mapped ([`memory`]), shared as atomic words ([`words`]; [`futex`] waits for one of them to change) or as rings of bytes ([`mod@ring`]), libraries that are bytes ([`library`]) |
//! | other processes | whether they are there ([`process`]), what the kernel tells of them ([`mod@status`]), descriptors of them ([`pidfd`]), what the scheduler does with them ([`perf`]) |
//! | their threads | held still, their state, calls made in them ([`trace`]), followed with all that they start ([`trace::next`]), their system calls told and answered ([`seccomp`]) |
//! | their memory | what is mapped ([`maps`]; [`smaps`] how much of it is there), which pages are there ([`pagemap`]), reading and writing it ([`foreign`]), its page faults served ([`userfault`]), calls that act on it made beside it ([`agent`]) |
//! | their start | as a child or apart, stopped before their first instruction or at their entry ([`launch`]), what the kernel tells them ([`auxv`]) and believes of them ([`layout`]) |
//!
//! Does not: any policy; no module here knows what an object or a file is.
//!
//! Structures and numbers of the kernel's come from the crates `libc` and `linux-raw-sys`, which are made from its headers;
//! `tests/kernel` holds each wrapper against the kernel that runs.

pub mod adaptive_spin;
pub mod agent;
pub mod auxv;
pub mod barrier;
pub mod clock;
pub mod cpu_latency;
pub mod credentials;
pub mod foreign;
pub mod futex;
mod ioctl;
pub mod keeper;
pub mod latest;
pub mod launch;
pub mod layout;
pub mod library;
pub mod maps;
pub mod memfd;
pub mod memory;
pub mod pagemap;
pub mod perf;
pub mod pidfd;
pub mod placement;
pub mod printable;
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
pub mod words;
