//! Changes of the memory: destinations invalidate the range, then the change is made, and only then
//! the next command is handled.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use refit_messages::Reply;
use refit_sys::trace::Tracee;
use refit_tracer::Resume;

use crate::origin::command::Command;
use crate::origin::coordinator::thread::Thread;
use crate::origin::coordinator::{Coordinator, Next};
use crate::origin::program_tree::THREAD_STOP_TIMEOUT;
use crate::origin::tracer_event::{Standing, TracerEvent};
use crate::origin::{changes, detach_attach};
use crate::protocol::messages::{Change, Invalidate};

impl Coordinator {
    /// Changes the memory for a thread that is away.
    pub(super) fn on_change(&mut self, change: Change, reply: Reply<Change>) -> Next {
        let Change { thread, number, arguments, stack, .. } = change;
        self.ledger.counts().changes += 1;
        let before = self.before_change(number.cast_signed(), &arguments);
        let instead =
            before.and_then(|()| self.make_instead(thread, number.cast_signed(), &arguments));
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
            self.after_change(number.cast_signed(), &arguments);
        }
        self.thaw();
        let failed = |error: io::Error| -i64::from(error.raw_os_error().unwrap_or(libc::ENOMEM));
        reply.say(&answer.unwrap_or_else(failed), &[]);
        Ok(())
    }

    /// Has a thread's shadow make a call that waits for nobody.
    pub(super) fn by_shadow(
        &mut self,
        id: u32,
        number: u64,
        arguments: [u64; 6],
        stack: u64,
    ) -> io::Result<i64> {
        let thread = self.threads.get(&id);
        if thread.is_some_and(Thread::is_recalled) {
            // Its shadow is stopped, or about to be.
            return Ok(detach_attach::NOT_MADE);
        }
        let Some((slot, _)) = thread.and_then(Thread::slot).and_then(|slot| self.slot(slot)) else {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        };
        slot.ask(number, arguments, stack);
        loop {
            let wakeup = slot.wakeup();
            if let Some(value) = slot.answer() {
                return Ok(value.cast_signed());
            }
            while let Ok(queued) = self.queue.try_recv() {
                let stopped = matches!(queued.command, Command::Event(TracerEvent::Signal(of) | TracerEvent::Exiting(of) | TracerEvent::Ended(of)) if of == id);
                self.deferred.push_back(queued);
                if stopped {
                    let place = (self.code(), slot);
                    return detach_attach::answer_of(&self.tree, self.coordinator_id, id, place);
                }
            }
            slot.wait(wakeup, Duration::from_millis(1));
        }
    }

    /// Lets a thread here change the memory that it is about to change.
    pub(super) fn change_here(&mut self, id: u32) -> Next {
        let read =
            |tracee: &mut Tracee, _| (refit_tracer::syscall::about_to_call(tracee), Resume::Stay);
        let call = self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, read);
        let Ok(Ok((number, arguments))) = call else { return Ok(()) };
        self.ledger.counts().changes_here += 1;
        let number = number.cast_signed();
        // Without the invalidation the change is not made: destinations would see what is not
        // there.
        let before = self.before_change(number, &arguments);
        let made = match before.and_then(|()| self.make_instead(id, number, &arguments)) {
            Ok(made) => made,
            Err(error) => {
                self.thaw();
                self.kill(&format!(
                    "a change of its memory cannot be sent to other instances: {error}"
                ));
                return Ok(());
            }
        };
        if let Some(answer) = made {
            self.thaw();
            self.return_value(id, answer);
            return Ok(());
        }
        let visiting = self.threads.get(&id).is_some_and(Thread::is_visiting);
        if !visiting {
            self.tree.threads.place(self.coordinator_id, id, Standing::Changing);
        }
        let on = |_: &mut Tracee, _| ((), Resume::ToSystemCall(0));
        let _ = self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, on);
        self.wait_for_change(id);
        self.after_change(number, &arguments);
        self.thaw();
        Ok(())
    }

    /// Gives a thread here the result of a call that was made in its place.
    fn return_value(&self, id: u32, answer: i64) {
        let tree = std::sync::Arc::clone(&self.tree);
        let returns = move |tracee: &mut Tracee, _| {
            // This fails only if the thread was killed meanwhile.
            let _ = tracee.registers().and_then(|mut registers| {
                registers.orig_rax = u64::MAX;
                registers.rax = answer.cast_unsigned();
                tracee.set_registers(&registers)
            });
            ((), tree.threads.default_resume(id))
        };
        let _ = self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, returns);
    }

    /// Makes a call of a thread that the kernel would judge differently since memory has become
    /// frames. Returns its result, or `None` if the thread must make it.
    fn make_instead(
        &mut self,
        id: u32,
        number: i64,
        arguments: &[u64; 6],
    ) -> io::Result<Option<i64>> {
        match number {
            libc::SYS_madvise => self.space.advise(arguments),
            libc::SYS_mprotect => match self.space.of_stack(arguments) {
                Some(whole) => {
                    self.before_change(number, &whole)?;
                    self.space.call(number, whole).map(Some)
                }
                None => Ok(None),
            },
            libc::SYS_process_madvise => self.advise_in_parts(id, arguments),
            libc::SYS_ioctl => {
                if let Some(range) = self.space.range_registered(arguments[2]) {
                    self.invalidate(std::slice::from_ref(&range))?;
                    self.space.make_private(&range)?;
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Gives advice about one range after the other, as `process_madvise` does: up to the first
    /// that is refused.
    fn advise_in_parts(&mut self, id: u32, arguments: &[u64; 6]) -> io::Result<Option<i64>> {
        let advice = arguments[3];
        if !crate::syscalls::is_watched(libc::SYS_madvise, &[0, 0, advice, 0, 0, 0]) {
            return Ok(None);
        }
        let Some(ranges) = self.space.ranges_advised(id, arguments) else { return Ok(None) };
        let mut done = 0_i64;
        for [start, length] in ranges {
            let one = [start, length, advice, 0, 0, 0];
            self.before_change(libc::SYS_madvise, &one)?;
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
    pub(super) fn wait_for_change(&mut self, id: u32) {
        while let Ok(queued) = self.queue.recv() {
            let command = &queued.command;
            let changed = matches!(*command, Command::Event(TracerEvent::Changed(of) | TracerEvent::CallReturned(of) | TracerEvent::Exiting(of) | TracerEvent::Ended(of)) if of == id);
            let only = matches!(command, Command::Event(TracerEvent::Changed(_)));
            let over = matches!(command, Command::Event(TracerEvent::ProgramReplaced));
            if !only {
                self.deferred.push_back(queued);
            }
            if changed || over {
                break;
            }
        }
    }

    /// Prepares for a change: destinations invalidate what will change.
    pub(super) fn before_change(&mut self, number: i64, arguments: &[u64; 6]) -> io::Result<()> {
        let end = || self.space.call(libc::SYS_brk, [0; 6]).map(i64::cast_unsigned);
        let plan = changes::plan(number, arguments, end)?;
        if plan.advised {
            self.space.note_advice();
        }
        self.invalidate(&plan.invalidate)?;
        for range in &plan.make_private {
            self.space.make_private(range)?;
        }
        Ok(())
    }

    /// Frees the frames that nothing shows any more after a change.
    pub(super) fn after_change(&self, number: i64, arguments: &[u64; 6]) {
        if let Some(range) = changes::unused(number, arguments)
            // The call may have failed.
            && self.space.frames_in(&range).is_ok_and(|still| still.is_empty())
        {
            // If this fails the frames are freed later, with all others.
            let _ = self.space.drop_frames(&range);
        }
    }

    pub(super) fn invalidate(&mut self, ranges: &[Range<u64>]) -> io::Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        self.frozen = self.members_are_asked;
        let freezes = self.frozen;
        let invalidate = Invalidate { group: self.group, ranges: ranges.to_vec(), freezes };
        let mut lost = false;
        for &node in &self.destinations {
            // A node that is lost has nothing mapped any more.
            lost |= self.layer.ask(node, &invalidate, &[]).is_err();
        }
        if lost {
            // But other nodes may still hear it.
            self.plan_retrievals(None);
        }
        let mut counts = self.ledger.counts();
        counts.forgets.since(began);
        counts.invalidations_sent += self.destinations.len() as u64;
        Ok(())
    }
}
