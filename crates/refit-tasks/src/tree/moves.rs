//! Threads that are followed here, but whose instructions run elsewhere: what their events mean, and who is told.
//!
//! Of such a process one thread of ours decides everything (its *custodian*, `migration::custodian`): it is told here, and answers by
//! [`Tree::order`](super::Tree::order). Whatever it has to decide about stands until then. Nothing here waits for it.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use refit_sys::foreign::Memory;
use refit_sys::trace::{Event, Held, SystemCall};

use super::{After, lock};
use crate::process;

/// What a filter says of a call that changes a memory which several instances have ([`crate::migration`]).
pub(crate) const MAPS: u16 = 0x6d70;

/// What a custodian is told. The task that is named stands, unless it is said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A thread that runs elsewhere is to be given a signal that it has a handler for.
    Signal(u32),
    /// A thread is about to change the memory.
    Maps(u32),
    /// It has changed it; it runs.
    Changed(u32),
    /// A thread that came for a call is back from it.
    Returned(u32),
    /// There is a new thread, or a process that a thread of this one has made.
    Born(u32),
    /// A process was made, with a memory of its own, or not. The parent stands, where the memory is the child's own.
    Made {
        /// Who made it.
        parent: u32,
        /// It.
        child: u32,
        /// Whether it has a copy of the memory.
        copy: bool,
    },
    /// A thread has ended.
    Ended(u32),
    /// The process is another program now; what is told after that is not of this one.
    Another,
}

/// Where a thread of such a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Here.
    Home,
    /// Here, for one system call.
    Visiting,
    /// Here, in a call that changes the memory.
    Changing,
    /// Elsewhere.
    Away,
}

/// Processes of which threads run elsewhere, or have.
#[derive(Default)]
pub(crate) struct Moves {
    /// Whether there are any.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    custodians: BTreeMap<u32, Custodian>,
    threads: BTreeMap<u32, (u32, Standing)>,
}

/// How a custodian is told; whether it is still there.
type Tell = Box<dyn Fn(Told) -> bool + Send>;

struct Custodian {
    tell: Tell,
    /// Whether any other instance has some of the memory.
    shared: bool,
}

/// A call that was interrupted, and will be made again or end with an error, as the kernel finds right.
const AGAIN: [i64; 4] = [-512, -513, -514, -516];

/// Whether registers show a call that the kernel has not ended yet.
pub(crate) fn interrupted(rax: u64) -> bool {
    AGAIN.contains(&rax.cast_signed())
}

impl Moves {
    /// A custodian begins, or goes on with other threads.
    pub(crate) fn begin(&self, process: u32, tell: impl Fn(Told) -> bool + Send + 'static) {
        let custodian = Custodian { tell: Box::new(tell), shared: false };
        self.state().custodians.insert(process, custodian);
        // Pairs with the load in `none`: who follows sees it with the first event that the custodian's own orders cause.
        self.any.store(true, Ordering::Release);
    }

    /// A custodian has ended.
    pub(crate) fn end(&self, process: u32) {
        let mut state = self.state();
        state.custodians.remove(&process);
        state.threads.retain(|_, (of, _)| *of != process);
    }

    /// From now on another instance has some of a process's memory: changes of it are told.
    pub(crate) fn share(&self, process: u32) {
        if let Some(custodian) = self.state().custodians.get_mut(&process) {
            custodian.shared = true;
        }
    }

    /// Where a thread of a process is from now on.
    pub(crate) fn place(&self, process: u32, thread: u32, standing: Standing) {
        self.state().threads.insert(thread, (process, standing));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn none(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// What an event means to a thread of such a process; `None`: what it means to any.
    pub(super) fn take(&self, held: &Held, event: Event) -> Option<After> {
        if self.none() {
            return None;
        }
        let task = held.thread();
        let mut state = self.state();
        let &(process, standing) = state.threads.get(&task)?;
        let tell = |told| {
            // It ends with its process only.
            state.custodians.get(&process).is_some_and(|custodian| (custodian.tell)(told))
        };
        let shared = state.custodians.get(&process).is_some_and(|custodian| custodian.shared);
        let keep = |told| if tell(told) { After::Stay } else { After::GoOn };
        match (event, standing) {
            (Event::Signal(signal), Standing::Away) if caught(task, signal) => {
                Some(keep(Told::Signal(task)))
            }
            (Event::Signal(signal), Standing::Visiting | Standing::Changing) => {
                Some(After::ToSystemCall(signal))
            }
            (Event::Seccomp { message: MAPS }, Standing::Home | Standing::Visiting) if shared => {
                Some(keep(Told::Maps(task)))
            }
            (Event::SystemCall, Standing::Visiting) if returned(held) => {
                Some(keep(Told::Returned(task)))
            }
            (Event::SystemCall, Standing::Changing) if returned(held) => {
                tell(Told::Changed(task));
                state.threads.insert(task, (process, Standing::Home));
                Some(After::GoOn)
            }
            (Event::Fork { child }, _) => {
                Some(keep(Told::Made { parent: task, child, copy: true }))
            }
            (Event::Clone { child }, _) if !shares_memory(held) => {
                Some(keep(Told::Made { parent: task, child, copy: true }))
            }
            (Event::Vfork { child } | Event::Clone { child }, _) => {
                tell(Told::Made { parent: task, child, copy: false });
                None
            }
            _ => None,
        }
    }

    /// How a thread goes on about which there is nothing to say.
    pub(super) fn plainly(&self, task: u32) -> After {
        if self.none() {
            return After::GoOn;
        }
        match self.state().threads.get(&task) {
            Some((_, Standing::Visiting | Standing::Changing)) => After::ToSystemCall(0),
            _ => After::GoOn,
        }
    }

    /// There is a new task; whether it stands until its custodian, or that of its parent, says something.
    pub(super) fn born(&self, task: u32) -> bool {
        if self.none() {
            return false;
        }
        let Some(process) = process::process_of(task) else { return false };
        let mut state = self.state();
        let of = if state.custodians.contains_key(&process) {
            state.threads.insert(task, (process, Standing::Home));
            process
        } else {
            let Some(parent) = process::parent_of(task) else { return false };
            parent
        };
        let custodian = state.custodians.get(&of);
        custodian.is_some_and(|custodian| (custodian.tell)(Told::Born(task)))
    }

    /// A task has ended.
    pub(super) fn ended(&self, task: u32) {
        if self.none() {
            return;
        }
        let mut state = self.state();
        let Some((process, _)) = state.threads.remove(&task) else { return };
        if let Some(custodian) = state.custodians.get(&process) {
            // It may have ended, too.
            (custodian.tell)(Told::Ended(task));
        }
    }

    /// A process has become another program.
    pub(super) fn became_another(&self, process: u32, former: u32) {
        if self.none() {
            return;
        }
        let mut state = self.state();
        state.threads.remove(&former);
        state.threads.retain(|_, (of, _)| *of != process);
        if let Some(custodian) = state.custodians.remove(&process) {
            (custodian.tell)(Told::Another);
        }
    }
}

/// Whether a thread has a handler for a signal.
fn caught(task: u32, signal: i32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{task}/status")) else { return false };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Whether a thread is back from a call, for good.
fn returned(held: &Held) -> bool {
    let exit = held.system_call().is_ok_and(|call| matches!(call, SystemCall::Exit { .. }));
    exit && held.registers().is_ok_and(|registers| !interrupted(registers.rax))
}

/// Whether a thread that has just made a task shares its memory with it.
fn shares_memory(held: &Held) -> bool {
    let Ok(registers) = held.registers() else { return true };
    let flags = match registers.orig_rax.cast_signed() {
        // `struct clone_args` begins with its flags.
        libc::SYS_clone3 => Memory::of(held.thread())
            .and_then(|memory| Ok(memory.word(registers.rdi)?))
            .unwrap_or_default(),
        _ => registers.rdi,
    };
    flags & libc::CLONE_VM as u64 != 0
}

/// What a thread that stands before a call is about to call.
pub(crate) fn about_to_call(held: &Held) -> io::Result<(u64, [u64; 6])> {
    let registers = held.registers()?;
    let arguments =
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
    Ok((registers.orig_rax, arguments))
}
