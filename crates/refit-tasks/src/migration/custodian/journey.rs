//! Threads leave, and come back.

use std::time::{Duration, Instant};

use refit_sys::park::Slot;

use super::{Custodian, Next, Thread};
use crate::migration::wire::{Arrive, Came, Descriptor, Particulars, Recall, Why};
use crate::migration::{MoveError, passage, stub};
use crate::tree::After;

/// How long a thread that came because of an exception stays.
const LINGER: Duration = Duration::from_millis(1);
/// How long a thread that cannot leave now is left alone.
const NOT_NOW: Duration = Duration::from_millis(5);

impl Custodian {
    /// Has a thread go where it is wanted, if it can now.
    pub(super) fn settle(&mut self, id: u32) -> Next {
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        if thread.visiting {
            return Ok(());
        }
        if thread.at == thread.wanted {
            thread.waiting.drain(..).for_each(|one| drop(one.send(Ok(()))));
            if thread.at == self.own {
                // It may stand, kept.
                passage::go_on(&self.tree, id);
            }
            return Ok(());
        }
        if thread.at != self.own {
            self.recall(id);
            return Ok(());
        }
        self.depart(id)
    }

    pub(super) fn recall(&mut self, id: u32) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        if thread.at != self.own && !thread.recalled {
            thread.recalled = true;
            let recall = Recall { group: self.group, thread: id, stay: thread.stay };
            // One that is lost tells so by itself.
            let _ = self.layer.send(thread.at, &recall, &[]);
        }
    }

    /// Sends a thread where it is wanted.
    pub(super) fn depart(&mut self, id: u32) -> Next {
        let Some(number) = self.free.pop() else {
            return self.stays(id, MoveError::Refused("too many of its threads are away".into()));
        };
        let Some((slot, place)) = self.slot(number) else { return Ok(()) };
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        (thread.slot, thread.not_before) = (Some(number), None);
        thread.stay += 1;
        let (stay, to) = (thread.stay, thread.wanted);
        let way = passage::Way { process: self.group.process, code: self.code(), slot, place };
        self.tree.moves.share(self.group.process);
        let (in_call, half) = match passage::leave(&self.tree, id, way) {
            Ok(left) => left,
            Err(passage::Stays::NotNow) => {
                self.give_back(id);
                if let Some(thread) = self.threads.get_mut(&id) {
                    thread.not_before = Some(Instant::now() + NOT_NOW);
                }
                return Ok(());
            }
            Err(passage::Stays::Signals) => {
                self.give_back(id);
                if let Some(thread) = self.threads.get_mut(&id) {
                    thread.visiting = true;
                }
                return Ok(());
            }
            Err(passage::Stays::Refused(error)) => {
                self.give_back(id);
                return self.stays(id, MoveError::Refused(error.to_string()));
            }
        };
        let arrive = Arrive {
            group: self.group,
            particulars: self.particulars(),
            thread: id,
            stay,
            slot: number,
            in_call,
            nice: 0,
            half: half.clone(),
        };
        self.hosts.insert(to);
        let arrived = self.layer.ask(to, &arrive, &[]);
        let why = match arrived {
            Ok((Ok(()), _)) => {
                if let Some(thread) = self.threads.get_mut(&id) {
                    thread.at = to;
                    thread.recalled = false;
                    thread.waiting.drain(..).for_each(|one| drop(one.send(Ok(()))));
                }
                self.places.put(self.group.process, id, to);
                return Ok(());
            }
            Ok((Err(why), _)) => why,
            Err(error) => error.to_string(),
        };
        // Nobody has seen it: it goes on where it was.
        let came = passage::come(&self.tree, id, way, &half, in_call, After::GoOn);
        self.give_back(id);
        if came.is_err() {
            // It was killed meanwhile, which is told.
            return Ok(());
        }
        self.stays(id, MoveError::Refused(why))
    }

    /// A thread cannot leave: it stays, and is wanted here.
    pub(super) fn stays(&mut self, id: u32, why: MoveError) -> Next {
        let own = self.own;
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.wanted = own;
            thread.waiting.drain(..).for_each(|one| drop(one.send(Err(why.clone()))));
        }
        passage::go_on(&self.tree, id);
        Ok(())
    }

    pub(super) fn give_back(&mut self, id: u32) {
        if let Some(thread) = self.threads.get_mut(&id)
            && let Some(slot) = thread.slot.take()
        {
            self.free.push(slot);
        }
    }

    pub(super) fn slot(&self, number: u32) -> Option<(Slot, u64)> {
        let slot = Slot::at(self.slots.get(), number as usize)?;
        let at = self.space.window.start + 4096 + u64::from(number) * refit_sys::park::SLOT as u64;
        Some((slot, at))
    }

    pub(super) fn code(&self) -> u64 {
        self.space.window.start + stub::CODE
    }

    pub(super) fn particulars(&self) -> Particulars {
        use std::os::fd::{AsFd, AsRawFd};
        let own = std::process::id();
        Particulars {
            window: self.space.window.clone(),
            frames: Descriptor { process: own, number: self.space.frames.as_raw_fd() },
            slots: Descriptor { process: own, number: self.slots.as_fd().as_raw_fd() },
            calls_home: self.tree.makes_calls_here(),
        }
    }

    /// A thread is back.
    pub(super) fn came(&mut self, came: Came) -> Next {
        let id = came.thread;
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        if thread.stay != came.stay || thread.at == self.own {
            return Ok(());
        }
        thread.at = self.own;
        thread.recalled = false;
        let number = thread.slot.unwrap_or(0);
        let signal = std::mem::take(&mut thread.signal);
        let calls = came.why == Why::Call && !signal;
        thread.visiting = calls;
        if came.why == Why::Exception {
            thread.not_before = Some(Instant::now() + LINGER);
        }
        let lingers = thread.not_before.is_some();
        let Some((slot, place)) = self.slot(number) else { return Ok(()) };
        let way = passage::Way { process: self.group.process, code: self.code(), slot, place };
        let after = match (signal, calls) {
            (true, _) => After::Once(passage::PENDING),
            (false, true) => After::ToSystemCall(0),
            (false, false) => After::GoOn,
        };
        let back = passage::come(&self.tree, id, way, &came.half, came.in_call, after);
        self.give_back(id);
        self.places.put(self.group.process, id, self.own);
        if back.is_err() || lingers {
            return Ok(());
        }
        self.settle(id)
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
