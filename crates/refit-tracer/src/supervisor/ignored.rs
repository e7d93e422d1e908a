//! Waits that are interrupted though no handler of the program's runs: by a signal that it ignores,
//! or by refit.
//!
//! The kernel throws an ignored signal away as it is sent, but not where the receiver is traced:
//! the tracer may want to know. So it interrupts calls, and those that are never made again by
//! themselves would fail with `EINTR` (signal(7)). So they would where refit stops a thread. Where
//! nobody has a handler, such a call is made again: the thread is given back the word that the
//! kernel itself has for that (`ERESTARTNOHAND`), by which it decides when all signals have been
//! seen to; a handler that runs meanwhile ends the call with `EINTR`, as ever.
//!
//! *Time limits.* When a call began first nobody knows; but one that is interrupted is followed to
//! its end, and waits from then on for what is left of its limit since the first interruption:
//!
//! ```text
//!   interrupted ──► known: until when ──► goes on: the limit among its arguments is what is left ──► it returns
//!        ▲                                        │
//!        └── its own arguments ◄──────────────────┴── interrupted once more, or given a signal
//! ```
//!
//! As in [`short_writes`](crate::supervisor::short_writes), whoever looks at the thread while it stands finds the arguments
//! that the program has given. What is left of a limit in memory (`struct timespec`) stands behind
//! the code of the vDSO ([`slack`]). Calls with a limit that is a property of a socket
//! (`SO_RCVTIMEO`) begin it anew each time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use refit_sys::foreign::Memory;
use refit_sys::restart::{self, ERESTARTNOHAND, LimitedCall};
use refit_sys::trace::{Event, Registers, SystemCall, Tracee};
use refit_sys::{maps, slack};

use crate::resume::Resume;
use crate::signals::ignored;
use crate::supervisor::lock;

/// Threads whose calls are made again.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    /// By thread.
    waits: Mutex<BTreeMap<u32, Wait>>,
}

/// A call that is made again.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// When it is to end.
    until: Instant,
    limited: LimitedCall,
    /// The call's number, and where the thread stands behind it.
    call: (u64, u64),
    /// The arguments that the program has given, while others are in their place.
    own: Option<[u64; 6]>,
    /// Where what is left of the limit stands in the program's memory.
    place: Option<u64>,
}

impl Ignored {
    /// Before anybody else looks at an event of a thread: its arguments are those that the program
    /// has given.
    pub(super) fn look(&self, held: &Tracee, event: Event) {
        let mut waits = lock(&self.waits);
        let Some(wait) = waits.get_mut(&held.thread()) else { return };
        if matches!(event, Event::Seccomp { .. }) || is_entry(held, event) {
            // In the midst of the call.
            return;
        }
        let Some(own) = wait.own.take() else { return };
        // Killed meanwhile, if not.
        let _ = held.registers().and_then(|mut registers| {
            restart::set_arguments(&mut registers, own);
            held.set_registers(&registers)
        });
    }

    /// A thread is about to be given a signal: a call that is not to end because of it is made
    /// again. Whether that is followed to its end, which the caller may not want.
    pub(super) fn is_given(&self, held: &Tracee, signal: i32, follow: bool) -> bool {
        if !ignored(held.thread(), signal) {
            self.forget(held.thread());
            return false;
        }
        self.is_interrupted(held, follow);
        self.shorten(held)
    }

    /// A thread was interrupted: a call that would end for that alone is made again when it goes
    /// on, and followed if it has a time limit and the caller wants that.
    pub(super) fn is_interrupted(&self, held: &Tracee, follow: bool) {
        let task = held.thread();
        let Ok(mut registers) = held.registers() else { return };
        if let Some(Wait { call: (number, behind), .. }) = lock(&self.waits).get(&task).copied()
            && (registers.rip.wrapping_add(SYSCALL), registers.rax) == (behind, number)
        {
            // It has not begun yet to make the call again.
            (registers.rip, registers.orig_rax) = (behind, number);
            registers.rax = (-ERESTARTNOHAND).cast_unsigned();
        }
        let limited = limit(task, &registers);
        if !restart::is_redone(&registers, registers.orig_rax) && limited.is_none() {
            return self.forget(task);
        }
        let now = Instant::now();
        let known = lock(&self.waits).get(&task).copied();
        let known = known.filter(|known| known.call == (registers.orig_rax, registers.rip));
        let wait = known.or_else(|| {
            let limited = limited?;
            let until = now.checked_add(limited.whole)?;
            let call = (registers.orig_rax, registers.rip);
            Some(Wait { until, limited, call, own: None, place: None })
        });
        let late = wait.filter(|wait| now >= wait.until).map(|wait| wait.limited.late);
        registers.rax = late.unwrap_or(-ERESTARTNOHAND).cast_unsigned();
        // Killed meanwhile, if not.
        let set = held.set_registers(&registers).is_ok();
        match wait.filter(|_| set && late.is_none() && follow) {
            Some(wait) => drop(lock(&self.waits).insert(task, wait)),
            None => self.forget(task),
        }
    }

    /// A thread goes on in this way; how it does if it is in a call that is followed.
    pub(super) fn goes_on(&self, held: &Tracee, after: Resume) -> Resume {
        match after {
            Resume::GoOn | Resume::ToSystemCall(0) if self.shorten(held) => Resume::ToSystemCall(0),
            Resume::Once(_) | Resume::ToSystemCall(1..) => {
                self.forget(held.thread());
                after
            }
            _ => after,
        }
    }

    /// A call that is about to be made again waits for what is left of its limit. Whether there is
    /// one.
    fn shorten(&self, held: &Tracee) -> bool {
        let task = held.thread();
        let mut waits = lock(&self.waits);
        let Some(mut wait) = waits.get(&task).copied() else { return false };
        let Ok(mut registers) = held.registers() else { return false };
        if (registers.orig_rax, registers.rip) != wait.call {
            // It was sent elsewhere.
            waits.remove(&task);
            return false;
        }
        if wait.own.is_some() || registers.rax.cast_signed() != -ERESTARTNOHAND {
            return true;
        }
        let remains = wait.until.saturating_duration_since(Instant::now());
        if wait.limited.is_in_memory() {
            wait.place = wait.place.or_else(|| place(task, &waits));
            let written = wait.place.and_then(|place| write(task, place, remains));
            if written.is_none() {
                // It is followed all the same: it ends when it is interrupted behind its limit.
                return true;
            }
        }
        let own = restart::arguments(&registers);
        let place = wait.place.unwrap_or_default();
        restart::set_arguments(&mut registers, wait.limited.shortened(&own, remains, place));
        if held.set_registers(&registers).is_ok() {
            wait.own = Some(own);
            waits.insert(task, wait);
        }
        true
    }

    /// A thread stands at the beginning or the end of a call; how it goes on, if that is one that is made again.
    pub(super) fn take(&self, held: &Tracee) -> Option<Resume> {
        let task = held.thread();
        let mut waits = lock(&self.waits);
        waits.get(&task)?;
        let ends = match held.system_call() {
            Ok(SystemCall::Exit { value, .. }) => {
                value != -i64::from(libc::EINTR) && value != -ERESTARTNOHAND
            }
            Ok(_) => false,
            Err(_) => true,
        };
        if ends {
            waits.remove(&task);
            return Some(Resume::GoOn);
        }
        Some(Resume::ToSystemCall(0))
    }

    /// A task is no more, or in no such call.
    pub(super) fn forget(&self, task: u32) {
        lock(&self.waits).remove(&task);
    }
}

/// Whether a thread stands before a call.
fn is_entry(held: &Tracee, event: Event) -> bool {
    event == Event::SystemCall && !held.has_returned()
}

/// The limited call that a thread was interrupted in.
fn limit(task: u32, registers: &Registers) -> Option<LimitedCall> {
    restart::limit(registers, |at| Memory::of(task).ok()?.word(at).ok())
}

/// A place for what is left of a thread's limit that no other thread has; for those of one program
/// they differ, others do no harm.
fn place(task: u32, waits: &BTreeMap<u32, Wait>) -> Option<u64> {
    let mappings = maps::of(task).ok()?;
    let memory = Memory::of(task).ok()?;
    let slack = slack::all(&memory, &mappings).next()?;
    memory.write(slack.start, &slack::MARK).ok()?;
    // What else refit has there is behind.
    let end = slack.start + slack::SIZE / 2;
    let places = (slack.start + slack::MARK.len() as u64..end).step_by(SIZE);
    let taken = |place: &u64| waits.values().any(|wait| wait.place == Some(*place));
    { places }.find(|place| !taken(place))
}

/// Bytes of `syscall`.
const SYSCALL: u64 = 2;
/// Bytes of a `struct timespec`.
const SIZE: usize = 16;

fn write(task: u32, place: u64, remains: Duration) -> Option<()> {
    let [seconds, nanoseconds] = LimitedCall::timespec(remains).map(u64::to_ne_bytes);
    Memory::of(task).ok()?.write(place, &[seconds, nanoseconds].concat()).ok()
}
