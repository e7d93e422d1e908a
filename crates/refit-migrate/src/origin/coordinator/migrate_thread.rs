//! Departures and returns of threads.

use std::time::{Duration, Instant};

use refit_messages::{InstanceId, Request};
use refit_sys::adaptive_spin;
use refit_sys::schedule::urgency;
use refit_sys::shadow_stub::Slot;
use tracing::debug;

use crate::error::{MoveError, MoveRefusal};
use crate::origin::coordinator::own_request::OwnRequest;
use crate::origin::coordinator::thread::Thread;
use crate::origin::coordinator::{Coordinator, Next};
use crate::origin::detach_attach::{
    self, AfterReturn, Restoration, ShadowRef, SignalPending, StayReason,
};
use crate::page::PAGE_SIZE;
use crate::protocol::messages::{
    Arrive, Expect, GroupParams, Prepare, Recall, ReturnReason, ThreadReturned,
};
use crate::remote::stub;

/// The time for which a thread that has returned because of an exception stays.
const EXCEPTION_STAY: Duration = Duration::from_millis(1);
/// The time for which a thread that cannot leave now is left alone.
const RETRY_DELAY: Duration = Duration::from_millis(5);
/// The time for which a departure is tried again while a caller waits for it.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

impl Coordinator {
    /// Has a thread go where it is wanted, if it can now.
    pub(super) fn settle(&mut self, id: u32) -> Next {
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        if thread.is_visiting() {
            return Ok(());
        }
        if thread.at(self.own) == thread.wanted {
            thread.notify_waiting();
            if thread.away_at().is_none() {
                // It may have been kept.
                detach_attach::resume_here(&self.tree, self.coordinator_id, id);
            }
            return Ok(());
        }
        if thread.away_at().is_some() {
            self.recall(id);
            return Ok(());
        }
        if !self.stopping.is_empty() || !self.limiting.is_empty() || self.loans.are_any() {
            detach_attach::resume_here(&self.tree, self.coordinator_id, id);
            return Ok(());
        }
        self.depart(id)
    }

    pub(super) fn recall(&mut self, id: u32) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        if self.returns.is_away(id)
            && let Some(at) = thread.recall()
        {
            let recall = Recall { group: self.group, thread: id, residency: thread.residency };
            // A node that is lost is reported as such.
            let _ = self.layer.send(at, &recall, &[]);
            // While the recall is under way.
            self.returns
                .while_away(id, || detach_attach::stop_shadow(&self.tree, self.coordinator_id, id));
            adaptive_spin::one_follows();
        }
    }

    /// Sends a thread where it is wanted.
    pub(super) fn depart(&mut self, id: u32) -> Next {
        let began = Instant::now();
        match self.ready_for(id) {
            Ok(true) => {}
            Ok(false) => {
                self.retry_later(id);
                return Ok(());
            }
            Err(error) => return self.keep_here(id, &error.into()),
        }
        let Some(number) = self.free.pop() else {
            return self.keep_here(id, &MoveRefusal::TooManyAway.into());
        };
        let Some((slot, place)) = self.slot(number) else { return Ok(()) };
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        let (residency, to) = (thread.depart(number), thread.wanted);
        let shadow_ref =
            ShadowRef { coordinator_id: self.coordinator_id, code: self.code(), slot, place };
        self.tree.threads.share(self.coordinator_id);
        let params = self.params();
        if let Err(why) = self.prepare(id, to, &params) {
            self.free_slot(id);
            return self.keep_here(id, &why);
        }
        let urgency = urgency(id).map(|one| (one.policy, one.priority, one.nice));
        // From here on it does not run.
        let (in_call, state) = match detach_attach::detach(&self.tree, id, shadow_ref) {
            Ok(detached) => detached,
            Err(why) => return self.on_not_departed(id, why),
        };
        let arrive = Arrive {
            group: self.group,
            params,
            thread: id,
            residency,
            slot: number,
            in_call,
            urgency,
            state: state.clone(),
        };
        let ready = self
            .space
            .check_room(state.stack())
            .and_then(|()| self.start_proxy(id, residency, slot));
        let arrived = match ready {
            Ok(()) => self.ask(to, &arrive).flatten(),
            Err(error) => Err(error.into()),
        };
        let why = match arrived {
            Ok(()) => {
                self.note_arrival(id, to, in_call);
                self.returns.expect(id, residency, &self.tree, shadow_ref);
                self.count_departure(id, to, began);
                return Ok(());
            }
            Err(why) => why,
        };
        // Nobody has seen it: it goes on where it was.
        let answer = self.remote_programs.end_proxy(self.group.process, id);
        let call = detach_attach::PendingCall { within: in_call, answer };
        let attached =
            detach_attach::attach(&self.tree, id, shadow_ref, &state, call, AfterReturn::On);
        self.free_slot(id);
        if let Err(error) = attached {
            self.kill_unrestored(id, &error);
            return Ok(());
        }
        self.keep_here(id, &why)
    }

    /// Notes that a thread runs at `to` from now on.
    fn note_arrival(&mut self, id: u32, to: InstanceId, in_call: bool) {
        if in_call {
            self.remote_programs.arrived_in_call(self.group.process, id);
        }
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.arrived(to);
        }
    }

    fn ask<Q: Request>(&self, to: InstanceId, question: &Q) -> Result<Q::Answer, MoveError> {
        let answer = self.layer.ask(to, question, &[]);
        answer
            .map(|(answer, _)| answer)
            .map_err(|why| MoveRefusal::Unanswered(why.to_string()).into())
    }

    /// Has the destination prepare for a thread that it does not know yet, while the thread runs on
    /// here.
    fn prepare(&mut self, id: u32, to: InstanceId, params: &GroupParams) -> Result<(), MoveError> {
        self.add_destination(to);
        let Some(thread) = self.threads.get(&id) else { return Ok(()) };
        if thread.ready_at.contains(&to) {
            let expect = Expect { group: self.group, thread: id };
            // The destination manages without.
            let _ = self.layer.send(to, &expect, &[]);
            return Ok(());
        }
        debug!(thread = id, %to, "asks to prepare");
        let prepare = Prepare { group: self.group, params: params.clone(), thread: id };
        let replica = self.ask(to, &prepare).flatten()?;
        debug!(thread = id, %to, replica, "prepared");
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.ready_at.insert(to);
        }
        if self.ready.insert(to, replica).is_none() {
            self.plan_retrievals(Some(to));
        }
        Ok(())
    }

    /// Handles a thread that could not depart.
    fn on_not_departed(&mut self, id: u32, why: StayReason) -> Next {
        self.free_slot(id);
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        match why {
            StayReason::Stopped if !thread.waiting.is_empty() => {
                return self.keep_here(id, &MoveRefusal::Stopped.into());
            }
            // It reports when it is continued.
            StayReason::Stopped => {}
            StayReason::NotNow => {
                let now = Instant::now();
                if now - *thread.delayed_since.get_or_insert(now) > RETRY_TIMEOUT
                    && !thread.waiting.is_empty()
                {
                    thread.delayed_since = None;
                    self.refuse(id, &MoveRefusal::InVfork.into());
                    return Ok(());
                }
                self.retry_later(id);
            }
            StayReason::RunFirst => thread.visit(),
            StayReason::Refused(error) => {
                return self.keep_here(id, &error.into());
            }
        }
        Ok(())
    }

    /// Tries again later.
    fn retry_later(&mut self, id: u32) {
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.not_before = Some(Instant::now() + RETRY_DELAY);
        }
    }

    fn add_destination(&mut self, node: InstanceId) {
        self.destinations.insert(node);
        self.ledger.counts().destinations.entry(node.0).or_default();
    }

    fn count_departure(&self, id: u32, to: InstanceId, began: Instant) {
        self.places.put(self.group.process, id, to);
        self.ledger.counts().out.since(began);
    }

    /// Keeps a thread here that cannot leave; it is wanted here from then on.
    pub(super) fn keep_here(&mut self, id: u32, why: &MoveError) -> Next {
        self.refuse(id, why);
        detach_attach::resume_here(&self.tree, self.coordinator_id, id);
        Ok(())
    }

    pub(super) fn refuse(&mut self, id: u32, why: &MoveError) {
        let own = self.own;
        debug!(thread = id, %why, "refused");
        self.ledger.counts().refused += 1;
        if matches!(why, MoveError::NoMemory(_)) {
            self.report_no_memory(why);
        }
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.wanted = thread.own_request.refuse(thread.wanted, own);
            thread.waiting.drain(..).for_each(|one| drop(one.send(Err(why.clone()))));
        }
    }

    /// Frees the slot of a thread that does not depart after all.
    fn free_slot(&mut self, id: u32) {
        let slot = self.threads.get_mut(&id).and_then(Thread::stay);
        self.free.extend(slot);
    }

    pub(super) fn slot(&self, number: u32) -> Option<(Slot, u64)> {
        let slot = Slot::at(self.slots.get(), number as usize)?;
        let at = self.space.window.start
            + PAGE_SIZE
            + u64::from(number) * refit_sys::shadow_stub::SLOT as u64;
        Some((slot, at))
    }

    pub(super) fn code(&self) -> u64 {
        self.space.window.start + stub::CODE
    }

    /// Handles a return; `restored` says what the thread has received already, if anything.
    pub(super) fn on_returned(
        &mut self,
        returned: &ThreadReturned,
        restored: Option<Restoration>,
    ) -> Next {
        let id = returned.thread;
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        if thread.residency != returned.residency || thread.away_at().is_none() {
            return Ok(());
        }
        thread.returned();
        self.returns.forget(id);
        if returned.why == ReturnReason::Exception {
            thread.not_before = Some(Instant::now() + EXCEPTION_STAY);
        }
        if returned.why == ReturnReason::Asked {
            thread.want(self.own);
            thread.own_request = OwnRequest::Nothing;
        }
        let stops = self.stopping.contains_key(&id);
        let after_return = if stops { AfterReturn::Stay } else { AfterReturn::of(returned.why) };
        let answer = self.remote_programs.end_proxy(self.group.process, id);
        let Restoration { pending, took } = restored.unwrap_or_else(|| {
            let began = Instant::now();
            let pending = self.attach(returned, answer, after_return);
            Restoration { pending, took: began.elapsed() }
        });
        let signalled = pending.as_ref().is_ok_and(|signalled| *signalled);
        let mut delayed = false;
        if let Some(thread) = self.threads.get_mut(&id) {
            if signalled {
                thread.signalled(Instant::now());
            }
            delayed = thread.not_before.is_some();
            let slot = thread.restored(after_return == AfterReturn::Call && !signalled);
            self.free.extend(slot);
        }
        self.places.put(self.group.process, id, self.own);
        let mut counts = self.ledger.counts();
        counts.count_return(returned.why);
        counts.back.took(took);
        drop(counts);
        if let Err(error) = pending {
            self.kill_unrestored(id, &error);
            return Ok(());
        }
        self.stop_if_all_are_here();
        match self.threads.get_mut(&id) {
            _ if delayed || stops => Ok(()),
            // It goes on already; if it is stopped again, that is for something else.
            Some(thread) if thread.wanted == self.own && !thread.is_visiting() => {
                thread.notify_waiting();
                Ok(())
            }
            _ => self.settle(id),
        }
    }

    /// Handles a thread that had returned for one call and has made it.
    pub(super) fn on_call_returned(&mut self, id: u32) -> Next {
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.call_returned();
        }
        self.settle(id)
    }

    /// Restores the registers of a thread that has returned to its origin.
    fn attach(
        &self,
        returned: &ThreadReturned,
        answer: Option<u64>,
        after_return: AfterReturn,
    ) -> SignalPending {
        let id = returned.thread;
        let number = self.threads.get(&id).and_then(Thread::slot).unwrap_or(0);
        let (slot, place) = self.slot(number).ok_or(std::io::ErrorKind::InvalidInput)?;
        let shadow_ref =
            ShadowRef { coordinator_id: self.coordinator_id, code: self.code(), slot, place };
        let call = detach_attach::PendingCall { within: returned.in_call, answer };
        detach_attach::attach(&self.tree, id, shadow_ref, &returned.state, call, after_return)
    }

    /// Kills the program if a thread of it could not be restored. A thread that was killed is
    /// reported as such.
    fn kill_unrestored(&self, id: u32, error: &std::io::Error) {
        if error.raw_os_error() != Some(libc::ESRCH) {
            self.kill(&format!("thread {id} of it cannot be restored: {error}"));
        }
    }

    pub(super) fn depart_due(&mut self) -> Next {
        let now = Instant::now();
        let due = |thread: &Thread| thread.not_before.is_some_and(|then| then <= now);
        let all: Vec<u32> =
            self.threads.iter().filter(|(_, one)| due(one)).map(|(&id, _)| id).collect();
        for id in all {
            if let Some(thread) = self.threads.get_mut(&id) {
                thread.not_before = None;
            }
            self.settle(id)?;
        }
        Ok(())
    }
}
