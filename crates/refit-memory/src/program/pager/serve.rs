//! Serving the faults of a program: reading messages, and resolving faults.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use parking_lot::MutexGuard;
use refit_sys::adaptive_spin::{self, AdaptiveSpin};
use refit_sys::placement;
use refit_sys::userfault::{Message, Userfault};
use rustix::event::{PollFd, PollFlags, poll};
use tracing::debug;

use super::Pager;
use super::servers::{Binding, FaultSampler, HelperGuard, Servers};
use crate::events;
use crate::program::hat::Pages;
use crate::program::region::FaultError;

/// The delay, in nanoseconds, before a fault that was refused because of a change of mappings is
/// tried again. The message of the change has been read, but the change has not ended yet.
const RETRY_DELAY: i64 = 50_000;

/// Events that have arrived and are not handled yet.
#[derive(Default)]
struct Pending {
    messages: Vec<Message>,
    /// The addresses of faults, and the last faulting thread.
    faults: Vec<u64>,
    thread: Option<u32>,
    seen: FaultSampler,
    /// Whether the program, or its memory, is gone.
    gone: bool,
    /// Whether something has to be tried again soon, even without a ring.
    soon: bool,
}

impl Pager {
    /// Serves until the program has ended or [`end`](Self::end) is called, with helpers as long as
    /// they are useful.
    pub fn serve(&self) {
        let servers = Servers::default();
        debug!(program = self.space.name(), "the pager begins to serve");
        thread::scope(|scope| {
            let helper = || {
                let help = || self.help(&servers);
                let named = thread::Builder::new().name("refit-pager".to_owned());
                // If no thread can be created, one serves alone.
                named.spawn_scoped(scope, help).is_ok()
            };
            let _shift = HelperGuard(&servers);
            self.lead(&servers, helper);
        });
        let (lost, name) = (self.lost(), self.space.name());
        debug!(program = name, lost, "the pager has ended");
    }

    fn lead(&self, servers: &Servers, helper: impl Fn() -> bool) {
        refit_sys::thread::go_before_others();
        let spin = AdaptiveSpin::default();
        let (mut pending, mut binding) = (Pending::default(), None);
        // Pairs with the stores in `end` and `give_up`.
        while !self.ended.load(Ordering::Acquire) {
            if !spin.wait_for(|| self.glance(&mut pending, servers)) {
                pending.seen.forget();
                let asleep_since = Instant::now();
                self.sleep(pending.soon);
                adaptive_spin::woken(asleep_since);
                self.look(&mut pending, servers, self.reading.lock());
            }
            if pending.gone {
                break;
            }
            let thread = pending.thread.take();
            place_thread(servers, thread, &mut binding);
            self.attend(&mut pending, thread);
            if let Some(threads) = thread.and_then(|thread| pending.seen.note(thread)) {
                servers.called_by(threads, &helper);
            }
        }
    }

    fn help(&self, servers: &Servers) {
        refit_sys::thread::go_before_others();
        let mut pending = Pending::default();
        loop {
            let (mut resolved, mut binding) = (0, None);
            loop {
                // Pairs with the stores in `end` and `give_up`.
                if self.ended.load(Ordering::Acquire) {
                    return;
                }
                if !adaptive_spin::a_moment(|| self.glance(&mut pending, servers)) {
                    if !pending.soon {
                        break;
                    }
                    self.sleep(true);
                }
                if pending.gone {
                    self.give_up();
                    return;
                }
                resolved += pending.faults.len();
                let thread = pending.thread.take();
                place_thread(servers, thread, &mut binding);
                self.attend(&mut pending, thread);
            }
            drop(binding);
            if !servers.rest(resolved) {
                return;
            }
        }
    }

    /// Tries the faults that have arrived and those that wait; the last one was of `thread`.
    fn attend(&self, pending: &mut Pending, thread: Option<u32>) {
        self.waiting.take(&mut pending.faults);
        // A child can fault before it has run an instruction, when the kernel writes to its memory.
        if !pending.faults.is_empty() {
            self.find_inherited(thread);
        }
        pending.soon = false;
        for address in pending.faults.drain(..) {
            pending.soon |= self.resolve(address);
        }
        self.foresee();
    }

    /// As [`look`](Self::look), unless another thread is reading.
    fn glance(&self, pending: &mut Pending, servers: &Servers) -> bool {
        match self.reading.try_lock() {
            Some(reading) => self.look(pending, servers, reading),
            None => self.waiting.heard(),
        }
    }

    /// Reads pending messages. Returns whether there was anything to do.
    fn look(&self, pending: &mut Pending, servers: &Servers, reading: MutexGuard<'_, ()>) -> bool {
        let rung = self.waiting.heard();
        let heard = self.hear(pending, servers).unwrap_or_else(|_| {
            pending.gone = true;
            true
        });
        drop(reading);
        rung || heard
    }

    /// Sleeps until there is something to do, or, if `soon` is set, for a moment at most.
    fn sleep(&self, soon: bool) {
        let limit = soon.then_some(rustix::time::Timespec { tv_sec: 0, tv_nsec: RETRY_DELAY });
        let mut polled = [
            PollFd::from_borrowed_fd(self.userfault.as_fd(), PollFlags::IN),
            PollFd::new(&self.wakeup, PollFlags::IN),
        ];
        // A signal has the same effect as a ring.
        let _ = poll(&mut polled, limit.as_ref());
        if polled[1].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
        }
    }

    /// Requests an eviction before the last frame is granted.
    fn foresee(&self) {
        let stats = self.space.commons().budget.stats();
        if stats.free() < stats.reserve() / 2 {
            self.outside.short();
        }
    }

    /// Reads messages, and handles those that change mappings. Appends faults to `pending`. Returns
    /// whether there were any messages.
    fn hear(&self, pending: &mut Pending, servers: &Servers) -> io::Result<bool> {
        // With several threads, each takes one message at a time and leaves the others to the other
        // threads.
        let most = if servers.others() > 0 { 1 } else { Userfault::AT_ONCE };
        match self.userfault.read_some(&mut pending.messages, most) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let is_fault = |message: &Message| matches!(message, Message::Pagefault { .. });
        let any = !pending.messages.is_empty();
        let changes = !pending.messages.iter().all(is_fault);
        let _changes = changes.then(|| self.changes.write());
        for message in pending.messages.drain(..) {
            match message {
                Message::Pagefault { address, thread, .. } => {
                    pending.faults.push(address);
                    pending.thread = thread;
                }
                Message::Unmap(range) => self.space.unmap(&range),
                Message::Remove(range) => self.space.remove(&range),
                Message::Remap { from, to, length } => {
                    self.space.remap(&(from..from + length), to);
                }
                Message::Fork(child) => self.fork(child)?,
                Message::Other(_) => {}
            }
        }
        Ok(any)
    }

    pub(super) fn fork(&self, child: Userfault) -> io::Result<()> {
        if self.inherits()
            && let Some(inherited) = self.outside.inherited(self, None)
        {
            self.inherit_now(&inherited);
        }
        let number = self.children.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("{}.{number}", self.space.name());
        let userfault = Arc::new(child);
        let pages = Pages::new(Arc::clone(&userfault));
        let hat = pages.create(name.as_str());
        let space = self.space.fork(name, hat);
        let child = Self::of(space, userfault, pages, Arc::clone(&self.outside))?;
        // The child has the pages that are in from the kernel.
        child.inherits.store(child.space.anything_is_out(), Ordering::Release);
        debug!(program = self.space.name(), child = child.space.name(), "the program has forked");
        self.outside.forked(self, child);
        Ok(())
    }

    /// Resolves a fault, or makes it wait. Returns whether it has to be tried again soon, even
    /// without a ring.
    pub(super) fn resolve(&self, address: u64) -> bool {
        let rings = self.waiting.rings();
        let Err(why) = self.attempt(address) else { return false };
        self.wait(address, rings);
        if why == FaultError::NoFrame {
            if let Some(times) = self.out_of_frames.count() {
                let budget = self.space.commons().budget.stats();
                let (limit, taken) = (budget.limit, budget.taken);
                debug!(program = self.space.name(), limit, taken, times, "a fault waits: no frame");
            }
            self.outside.short();
        }
        why != FaultError::NoFrame
    }

    /// Resolves a fault. If nothing that refit serves is at the address, wakes the thread, which
    /// repeats its access.
    ///
    /// # Errors
    /// Conditions that pass: no frame is free, the page is in transit, the program is changing its
    /// mappings.
    pub(super) fn attempt(&self, address: u64) -> Result<(), FaultError> {
        let _fault = events::PROGRAM_FAULT.span([address, 0]);
        let _changes = self.unchanged();
        let mut outcome = self.process.fault(address);
        if outcome == Err(FaultError::Unknown) {
            self.space.grow(address);
            outcome = self.process.fault(address);
        }
        match outcome {
            Err(FaultError::Unknown | FaultError::Unmapped) => self.space.hat().wake(address),
            Err(FaultError::Lost(_)) => {
                // Counted before the waiting thread learns of it, since the program may end at
                // once.
                self.lost.fetch_add(1, Ordering::Relaxed);
                if !self.space.hat().poison(address) {
                    self.lost.fetch_sub(1, Ordering::Relaxed);
                    return Err(FaultError::Changing);
                }
            }
            Err(FaultError::Gone) => self.give_up(),
            outcome => return outcome,
        }
        Ok(())
    }

    /// Makes a fault wait for the next ring; `rings` is the number of rings before it was tried.
    fn wait(&self, address: u64, rings: u64) {
        if self.waiting.add(address, rings) {
            self.ring();
        }
    }

    /// Ends serving, since there is no program left to serve.
    fn give_up(&self) {
        // Pairs with the loads in the loops of `lead` and `help`.
        self.ended.store(true, Ordering::Release);
        self.ring();
    }
}

/// Keeps the calling thread near the program's threads: a single serving thread follows them; one
/// of several binds itself to the processor on which a thread waits now.
fn place_thread<'a>(servers: &'a Servers, thread: Option<u32>, binding: &mut Option<Binding<'a>>) {
    match thread {
        _ if servers.others() == 0 && binding.is_some() => *binding = None,
        Some(thread) if servers.others() == 0 => placement::follow(thread),
        Some(thread) if binding.is_none() => *binding = Some(Binding::near(servers, thread)),
        _ => {}
    }
}
