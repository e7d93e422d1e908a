//! Threads leave, and come back.

use std::time::{Duration, Instant};

use refit_messages::{InstanceId, Request};
use refit_sys::adaptive_spin;
use refit_sys::schedule::urgency;
use refit_sys::shadow_stub::Slot;
use tracing::debug;

use crate::error::MoveError;
use crate::origin::coordinator::move_request::OwnRequest;
use crate::origin::coordinator::thread::Thread;
use crate::origin::coordinator::{Coordinator, Next, Restoration};
use crate::origin::detach_attach::{self, AfterReturn, SignalPending};
use crate::protocol::messages::{
    Arrive, Expect, GroupParams, Prepare, Recall, ReturnReason, ThreadReturned,
};
use crate::remote::stub;

/// How long a thread that came because of an exception stays.
const LINGER: Duration = Duration::from_millis(1);
/// How long a thread that cannot leave now is left alone.
const NOT_NOW: Duration = Duration::from_millis(5);
/// How long one tries that, where somebody waits for it.
const LONG: Duration = Duration::from_secs(5);

impl Coordinator {
    /// Has a thread go where it is wanted, if it can now.
    pub(super) fn settle(&mut self, id: u32) -> Next {
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        if thread.is_visiting() {
            return Ok(());
        }
        if thread.at(self.own) == thread.wanted {
            thread.is_there();
            if thread.away_at().is_none() {
                // It may stand, kept.
                detach_attach::go_on(&self.tree, self.coordinator_id, id);
            }
            return Ok(());
        }
        if thread.away_at().is_some() {
            self.recall(id);
            return Ok(());
        }
        if !self.stopping.is_empty() || !self.limiting.is_empty() {
            detach_attach::go_on(&self.tree, self.coordinator_id, id);
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
            // One that is lost tells so by itself.
            let _ = self.layer.send(at, &recall, &[]);
            // While that is under way.
            self.returns
                .while_away(id, || detach_attach::hold(&self.tree, self.coordinator_id, id));
            adaptive_spin::one_follows();
        }
    }

    /// Sends a thread where it is wanted.
    pub(super) fn depart(&mut self, id: u32) -> Next {
        let began = Instant::now();
        match self.ready_for(id) {
            Ok(true) => {}
            Ok(false) => {
                self.later(id);
                return Ok(());
            }
            Err(error) => return self.stays(id, &error.into()),
        }
        let Some(number) = self.free.pop() else {
            return self.stays(id, &MoveError::Refused("too many of its threads are away".into()));
        };
        let Some((slot, place)) = self.slot(number) else { return Ok(()) };
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        let (residency, to) = (thread.depart(number), thread.wanted);
        let shadow_ref = detach_attach::ShadowRef {
            coordinator_id: self.coordinator_id,
            code: self.code(),
            slot,
            place,
        };
        self.tree.threads.share(self.coordinator_id);
        let params = self.params();
        if let Err(why) = self.prepare(id, to, &params) {
            self.give_back(id);
            return self.stays(id, &why);
        }
        let urgency = urgency(id).map(|one| (one.policy, one.priority, one.nice));
        // From here on it does not run.
        let (in_call, half) = match detach_attach::leave(&self.tree, id, shadow_ref) {
            Ok(left) => left,
            Err(why) => return self.not_now(id, why),
        };
        let arrive = Arrive {
            group: self.group,
            params,
            thread: id,
            residency,
            slot: number,
            in_call,
            urgency,
            half: half.clone(),
        };
        let ready =
            self.space.permits(half.stack()).and_then(|()| self.stand_for(id, residency, slot));
        let arrived = match ready {
            Ok(()) => self.ask(to, &arrive).flatten(),
            Err(error) => Err(error.into()),
        };
        let why = match arrived {
            Ok(()) => {
                self.note_arrival(id, to, in_call);
                self.returns.expect(id, residency, &self.tree, shadow_ref);
                self.has_left(id, to, began);
                return Ok(());
            }
            Err(why) => why,
        };
        // Nobody has seen it: it goes on where it was.
        let answer = self.remote_programs.back(self.group.process, id);
        let call = detach_attach::PendingCall { within: in_call, answer };
        let came = detach_attach::come(&self.tree, id, shadow_ref, &half, call, AfterReturn::On);
        self.give_back(id);
        if let Err(error) = came {
            self.cannot_go_on(id, &error);
            return Ok(());
        }
        self.stays(id, &why)
    }

    /// Notes that a thread runs at `to` from now on.
    fn note_arrival(&mut self, id: u32, to: InstanceId, in_call: bool) {
        if in_call {
            self.remote_programs.has_arrived(self.group.process, id);
        }
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.arrived(to);
        }
    }

    fn ask<Q: Request>(&self, to: InstanceId, question: &Q) -> Result<Q::Answer, MoveError> {
        let answer = self.layer.ask(to, question, &[]);
        answer.map(|(answer, _)| answer).map_err(|why| MoveError::Refused(why.to_string()))
    }

    /// Has all made ready for a thread where it has not been, while it runs on here.
    fn prepare(&mut self, id: u32, to: InstanceId, params: &GroupParams) -> Result<(), MoveError> {
        self.is_host(to);
        let Some(thread) = self.threads.get(&id) else { return Ok(()) };
        if thread.ready_at.contains(&to) {
            let expect = Expect { group: self.group, thread: id };
            // It does as well without.
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

    /// A thread has not left, since it could not.
    fn not_now(&mut self, id: u32, why: detach_attach::StayReason) -> Next {
        self.give_back(id);
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        match why {
            detach_attach::StayReason::Stopped if !thread.waiting.is_empty() => {
                return self.stays(id, &MoveError::Refused("it is stopped".into()));
            }
            // It tells when it goes on.
            detach_attach::StayReason::Stopped => {}
            detach_attach::StayReason::NotNow => {
                let now = Instant::now();
                if now - *thread.delayed_since.get_or_insert(now) > LONG
                    && !thread.waiting.is_empty()
                {
                    thread.delayed_since = None;
                    let why = "it cannot leave now: it waits for the child of its `vfork`";
                    self.refuse(id, &MoveError::Refused(why.into()));
                    return Ok(());
                }
                self.later(id);
            }
            detach_attach::StayReason::First => thread.visits(),
            detach_attach::StayReason::Refused(error) => {
                return self.stays(id, &error.into());
            }
        }
        Ok(())
    }

    /// It is tried again.
    fn later(&mut self, id: u32) {
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.not_before = Some(Instant::now() + NOT_NOW);
        }
    }

    fn is_host(&mut self, host: InstanceId) {
        self.destinations.insert(host);
        self.ledger.counts().destinations.entry(host.0).or_default();
    }

    fn has_left(&self, id: u32, to: InstanceId, began: Instant) {
        self.places.put(self.group.process, id, to);
        self.ledger.counts().out.since(began);
    }

    /// A thread cannot leave: it stays, and is wanted here.
    pub(super) fn stays(&mut self, id: u32, why: &MoveError) -> Next {
        self.refuse(id, why);
        detach_attach::go_on(&self.tree, self.coordinator_id, id);
        Ok(())
    }

    pub(super) fn refuse(&mut self, id: u32, why: &MoveError) {
        let own = self.own;
        debug!(thread = id, %why, "refused");
        self.ledger.counts().refused += 1;
        if matches!(why, MoveError::NoMemory(_)) {
            self.lacks_memory(why);
        }
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.wanted = thread.own_request.refuse(thread.wanted, own);
            thread.waiting.drain(..).for_each(|one| drop(one.send(Err(why.clone()))));
        }
    }

    /// A thread does not leave after all: its slot is free.
    fn give_back(&mut self, id: u32) {
        let slot = self.threads.get_mut(&id).and_then(Thread::stay);
        self.free.extend(slot);
    }

    pub(super) fn slot(&self, number: u32) -> Option<(Slot, u64)> {
        let slot = Slot::at(self.slots.get(), number as usize)?;
        let at = self.space.window.start
            + 4096
            + u64::from(number) * refit_sys::shadow_stub::SLOT as u64;
        Some((slot, at))
    }

    pub(super) fn code(&self) -> u64 {
        self.space.window.start + stub::CODE
    }

    /// A thread is back; what it has got already, if anything.
    pub(super) fn came(&mut self, came: &ThreadReturned, given: Option<Restoration>) -> Next {
        let id = came.thread;
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        if thread.residency != came.residency || thread.away_at().is_none() {
            return Ok(());
        }
        thread.returned();
        self.returns.forget(id);
        if came.why == ReturnReason::Exception {
            thread.not_before = Some(Instant::now() + LINGER);
        }
        if came.why == ReturnReason::Asked {
            thread.want(self.own);
            thread.own_request = OwnRequest::Nothing;
        }
        let lingers = thread.not_before.is_some();
        let stops = self.stopping.contains_key(&id);
        let after_return = if stops { AfterReturn::Stay } else { AfterReturn::after(came.why) };
        let answer = self.remote_programs.back(self.group.process, id);
        let Restoration { has, took } = given.unwrap_or_else(|| {
            let began = Instant::now();
            let has = self.come(came, answer, after_return);
            Restoration { has, took: began.elapsed() }
        });
        let signalled = has.as_ref().is_ok_and(|signalled| *signalled);
        if let Some(thread) = self.threads.get_mut(&id) {
            let slot = thread.is_home(after_return == AfterReturn::Call && !signalled);
            self.free.extend(slot);
        }
        self.places.put(self.group.process, id, self.own);
        let mut counts = self.ledger.counts();
        counts.came(came.why);
        counts.back.took(took);
        drop(counts);
        if let Err(error) = has {
            self.cannot_go_on(id, &error);
            return Ok(());
        }
        self.stop_if_all_are_here();
        match self.threads.get_mut(&id) {
            _ if lingers || stops => Ok(()),
            // It goes on already; where it stands again, that is for something else.
            Some(thread) if thread.wanted == self.own && !thread.is_visiting() => {
                thread.is_there();
                Ok(())
            }
            _ => self.settle(id),
        }
    }

    /// A thread that came for a call is back from it.
    pub(super) fn has_returned(&mut self, id: u32) -> Next {
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.call_returned();
        }
        self.settle(id)
    }

    /// Gives a thread its registers that is back.
    fn come(
        &self,
        came: &ThreadReturned,
        answer: Option<u64>,
        after_return: AfterReturn,
    ) -> SignalPending {
        let id = came.thread;
        let number = self.threads.get(&id).and_then(Thread::slot).unwrap_or(0);
        let (slot, place) = self.slot(number).ok_or(std::io::ErrorKind::InvalidInput)?;
        let shadow_ref = detach_attach::ShadowRef {
            coordinator_id: self.coordinator_id,
            code: self.code(),
            slot,
            place,
        };
        let call = detach_attach::PendingCall { within: came.in_call, answer };
        detach_attach::come(&self.tree, id, shadow_ref, &came.half, call, after_return)
    }

    /// A thread has not been given its registers: it was killed, which is told, or has to be.
    fn cannot_go_on(&self, id: u32, error: &std::io::Error) {
        if error.raw_os_error() != Some(libc::ESRCH) {
            self.kill(&format!("thread {id} of it is not given its registers again: {error}"));
        }
    }

    pub(super) fn depart_who_lingered(&mut self) -> Next {
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
