//! Changes of the memory: others forget what is not to be any more, then the change is made, and only then anything else.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use refit_messages::Reply;
use refit_sys::trace::Tracee;
use refit_tracer::Resume;

use crate::origin::coordinator::thread::Thread;
use crate::origin::coordinator::{Command, Coordinator, Next, THREAD_STOP_TIMEOUT};
use crate::origin::thread_table::{Standing, TracerEvent};
use crate::origin::{changes, detach_attach};
use crate::protocol::messages::{Change, Invalidate};

impl Coordinator {
    /// A thread elsewhere changes the memory.
    pub(super) fn change(&mut self, change: Change, reply: Reply<Change>) -> Next {
        let Change { thread, number, arguments, stack, .. } = change;
        self.ledger.counts().changes += 1;
        let before = self.before(number.cast_signed(), &arguments);
        let instead = before.and_then(|()| self.instead(thread, number.cast_signed(), &arguments));
        let answer = instead.and_then(|made| {
            if let Some(answer) = made {
                Ok(answer)
            } else if changes::by_shadow(number.cast_signed(), &arguments) {
                self.by_shadow(thread, number, arguments, stack)
            } else {
                self.space.call(number.cast_signed(), arguments)
            }
        });
        if answer.is_ok() {
            self.behind(number.cast_signed(), &arguments);
        }
        self.thaw();
        let failed = |error: io::Error| -i64::from(error.raw_os_error().unwrap_or(libc::ENOMEM));
        reply.say(&answer.unwrap_or_else(failed), &[]);
        Ok(())
    }

    /// A thread's shadow makes a call, which does not wait for anybody.
    pub(super) fn by_shadow(
        &mut self,
        id: u32,
        number: u64,
        arguments: [u64; 6],
        stack: u64,
    ) -> io::Result<i64> {
        let thread = self.threads.get(&id);
        if thread.is_some_and(Thread::is_recalled) {
            // Its shadow stands, or is about to.
            return Ok(detach_attach::NOT_MADE);
        }
        let Some((slot, _)) = thread.and_then(Thread::slot).and_then(|slot| self.slot(slot)) else {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        };
        slot.ask(number, arguments, stack);
        loop {
            let heard = slot.wakeup();
            if let Some(value) = slot.answer() {
                return Ok(value.cast_signed());
            }
            while let Ok(asked) = self.asked.try_recv() {
                let stands = matches!(asked.ask, Command::Event(TracerEvent::Signal(of) | TracerEvent::Ends(of) | TracerEvent::Ended(of)) if of == id);
                self.deferred.push_back(asked);
                if stands {
                    let place = (self.code(), slot);
                    return detach_attach::answer_of(&self.tree, self.coordinator_id, id, place);
                }
            }
            slot.wait(heard, Duration::from_millis(1));
        }
    }

    /// A thread here stands before a change of the memory.
    pub(super) fn changes_here(&mut self, id: u32) -> Next {
        let read =
            |held: &mut Tracee, _| (refit_tracer::syscall::about_to_call(held), Resume::Stay);
        let call = self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, read);
        let Ok(Ok((number, arguments))) = call else { return Ok(()) };
        self.ledger.counts().changes_here += 1;
        let number = number.cast_signed();
        // What cannot be told to others is not done: they would see what is not there.
        let before = self.before(number, &arguments);
        let made = match before.and_then(|()| self.instead(id, number, &arguments)) {
            Ok(made) => made,
            Err(error) => {
                self.thaw();
                self.kill(&format!("a change of its memory cannot be told to others: {error}"));
                return Ok(());
            }
        };
        if let Some(answer) = made {
            self.thaw();
            self.is_made_here(id, answer);
            return Ok(());
        }
        let visiting = self.threads.get(&id).is_some_and(Thread::is_visiting);
        if !visiting {
            self.tree.threads.place(self.coordinator_id, id, Standing::Changing);
        }
        let on = |_: &mut Tracee, _| ((), Resume::ToSystemCall(0));
        let _ = self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, on);
        self.until_changed(id);
        self.behind(number, &arguments);
        self.thaw();
        Ok(())
    }

    /// A thread here stands before a call that was made in its place.
    fn is_made_here(&self, id: u32, answer: i64) {
        let tree = std::sync::Arc::clone(&self.tree);
        let returns = move |held: &mut Tracee, _| {
            // Killed meanwhile, if not.
            let _ = held.registers().and_then(|mut registers| {
                registers.orig_rax = u64::MAX;
                registers.rax = answer.cast_unsigned();
                held.set_registers(&registers)
            });
            ((), tree.threads.plainly(id))
        };
        let _ = self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, returns);
    }

    /// Makes a call of a thread that the kernel would judge otherwise since memory has become frames; what it returns. `None`: the thread is to make
    /// it.
    fn instead(&mut self, id: u32, number: i64, arguments: &[u64; 6]) -> io::Result<Option<i64>> {
        match number {
            libc::SYS_madvise => self.space.advise(arguments),
            libc::SYS_mprotect => match self.space.of_stack(arguments) {
                Some(whole) => {
                    self.before(number, &whole)?;
                    self.space.call(number, whole).map(Some)
                }
                None => Ok(None),
            },
            libc::SYS_process_madvise => self.advises_in_parts(id, arguments),
            libc::SYS_ioctl => {
                if let Some(range) = self.space.range_registered(arguments[2]) {
                    self.forget(std::slice::from_ref(&range))?;
                    self.space.keep(&range)?;
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Gives advice about one range after the other, as `process_madvise` does: up to the first that is refused.
    fn advises_in_parts(&mut self, id: u32, arguments: &[u64; 6]) -> io::Result<Option<i64>> {
        let advice = arguments[3];
        if !crate::syscalls::is_watched(libc::SYS_madvise, &[0, 0, advice, 0, 0, 0]) {
            return Ok(None);
        }
        let Some(ranges) = self.space.ranges_advised(id, arguments) else { return Ok(None) };
        let mut done = 0_i64;
        for [start, length] in ranges {
            let one = [start, length, advice, 0, 0, 0];
            self.before(libc::SYS_madvise, &one)?;
            let answer = match self.space.advise(&one)? {
                Some(answer) => answer,
                None => self.space.call(libc::SYS_madvise, one)?,
            };
            if answer < 0 {
                return Ok(Some(if done > 0 { done } else { answer }));
            }
            done = done.saturating_add_unsigned(length);
        }
        Ok(Some(done))
    }

    /// Waits until a thread here has made its change.
    pub(super) fn until_changed(&mut self, id: u32) {
        while let Ok(asked) = self.asked.recv() {
            let ask = &asked.ask;
            let changed = matches!(*ask, Command::Event(TracerEvent::Changed(of) | TracerEvent::Returned(of) | TracerEvent::Ends(of) | TracerEvent::Ended(of)) if of == id);
            let only = matches!(ask, Command::Event(TracerEvent::Changed(_)));
            let over = matches!(ask, Command::Event(TracerEvent::Another));
            if !only {
                self.deferred.push_back(asked);
            }
            if changed || over {
                break;
            }
        }
    }

    /// Before a change: others forget what is not to be any more.
    pub(super) fn before(&mut self, number: i64, arguments: &[u64; 6]) -> io::Result<()> {
        let end = || self.space.call(libc::SYS_brk, [0; 6]).map(i64::cast_unsigned);
        let plan = changes::plan(number, arguments, end)?;
        if plan.advised {
            self.space.is_advised();
        }
        self.forget(&plan.forget)?;
        for range in &plan.keep {
            self.space.keep(range)?;
        }
        Ok(())
    }

    /// After it: frames that nothing shows any more are given back.
    pub(super) fn behind(&self, number: i64, arguments: &[u64; 6]) {
        if let Some(range) = changes::unused(number, arguments)
            // The call may have failed.
            && self.space.frames_in(&range).is_ok_and(|still| still.is_empty())
        {
            // Else they are given back later, with all others.
            let _ = self.space.drop_frames(&range);
        }
    }

    pub(super) fn forget(&mut self, ranges: &[Range<u64>]) -> io::Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        self.frozen = self.asks_others;
        let freezes = self.frozen;
        let forget = Invalidate { group: self.group, ranges: ranges.to_vec(), freezes };
        let mut lost = false;
        for &host in &self.destinations {
            // A host that is lost has forgotten.
            lost |= self.layer.ask(host, &forget, &[]).is_err();
        }
        if lost {
            // But others may still hear it.
            self.plan_retrievals(None);
        }
        let mut counts = self.ledger.counts();
        counts.forgets.since(began);
        counts.invalidations_sent += self.destinations.len() as u64;
        Ok(())
    }
}
