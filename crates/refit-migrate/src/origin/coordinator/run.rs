//! The coordinator's loop: takes commands from the queue, and handles each.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

use refit_messages::InstanceId;
use tracing::{debug, debug_span, warn};

use crate::error::MoveError;
use crate::origin::command::{Command, QueuedCommand};
use crate::origin::coordinator::new_process::Fork;
use crate::origin::coordinator::{Coordinator, Ended, Next};
use crate::origin::tracer_event::TracerEvent;
use crate::protocol::messages::{Teardown, ThreadLost};

impl Coordinator {
    /// Handles commands until the group has ended.
    pub(crate) fn run(mut self) {
        let _program = debug_span!("program", group = %self.group).entered();
        debug!(threads = self.threads.len(), "its coordinator begins");
        while self.handle_next().is_ok() {
            self.check();
        }
        debug!("its coordinator ends");
        self.killer.disarm();
        self.tree.threads.end(self.coordinator_id);
        self.start_all_processes();
        self.ledger.gather(&self.layer);
        let teardown = Teardown { group: self.group, thread: None };
        for &node in &self.destinations {
            // A destination that is gone has no replica either.
            let _ = self.layer.send(node, &teardown, &[]);
        }
        for (id, thread) in std::mem::take(&mut self.threads) {
            self.returns.forget(id);
            thread.waiting.into_iter().for_each(|one| drop(one.send(Err(MoveError::Ended))));
        }
        self.places.forget(self.group.process);
        self.remote_programs.forget(self.group.process);
    }

    fn handle_next(&mut self) -> Next {
        let Some(QueuedCommand { command, since }) =
            self.deferred.pop_front().or_else(|| self.receive())
        else {
            return self.depart_due();
        };
        self.ledger.counts().waits.since(since);
        match command {
            Command::Event(event) => self.on_tracer_event(event),
            Command::Move { thread, to, done } => self.on_move(thread, to, done),
            Command::Spread { over, done } => self.on_spread(over, done),
            Command::Lend(ready) => self.on_lend(ready),
            Command::LoanOver => self.on_loan_over(),
            Command::ThreadReturned(returned, restored) => self.on_returned(&returned, restored),
            Command::Retrieve(question, reply) => {
                self.ledger.counts().questions.since(since);
                self.on_retrieve(question, reply);
                Ok(())
            }
            Command::Seek(seek) => {
                self.ledger.counts().questions.since(since);
                self.on_seek(seek);
                Ok(())
            }
            Command::Planned => {
                self.plan_retrievals(None);
                Ok(())
            }
            Command::Change(change, reply) => self.on_change(change, reply),
            Command::ThreadLost(ThreadLost { thread, why, .. }) => {
                self.kill(&format!("thread {thread} of it is lost: {why}"));
                Ok(())
            }
            Command::OutOfMemory(node) => self.on_out_of_memory(node),
            Command::NodeLost(peer, why) => self.on_node_lost(peer, &why),
        }
    }

    /// Returns the next command, or `None` if a thread may leave again before any command comes.
    fn receive(&self) -> Option<QueuedCommand> {
        let ended = || QueuedCommand::now(Command::Event(TracerEvent::ProgramReplaced));
        let mut received = None;
        self.spin.wait_for(|| {
            received = self.queue.try_recv().ok();
            received.is_some()
        });
        if received.is_some() {
            return received;
        }
        let soonest = self.threads.values().filter_map(|thread| thread.not_before).min();
        let Some(soonest) = soonest else {
            return Some(self.queue.recv().unwrap_or_else(|_| ended()));
        };
        match self.queue.recv_timeout(soonest.saturating_duration_since(Instant::now())) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(ended()),
        }
    }

    fn on_tracer_event(&mut self, event: TracerEvent) -> Next {
        match event {
            TracerEvent::Signal(id) => {
                self.ledger.counts().signals += 1;
                // If it has returned meanwhile, the signal was delivered.
                self.recall(id);
                Ok(())
            }
            TracerEvent::Stopped(id) => {
                self.recall(id);
                Ok(())
            }
            TracerEvent::StopSignal(id) => self.on_stop_signal(id),
            TracerEvent::StopDelivered(id) => self.on_stop_delivered(id),
            TracerEvent::Continued(id) => self.settle(id),
            TracerEvent::BeforeLimit(id) => self.on_limit(id),
            TracerEvent::BeforeChange(id) => self.change_here(id),
            // Of a change that nobody waits for any more.
            TracerEvent::Changed(_) => Ok(()),
            TracerEvent::CallReturned(id) => self.on_call_returned(id),
            TracerEvent::MissingPages(id) => self.on_missing_pages(id),
            TracerEvent::MoveRequested(request) => self.on_move_request(request),
            TracerEvent::NewTask(task) => self.on_new_task(task),
            TracerEvent::Forked { parent, child, copy, word } => {
                self.forks.insert(child, Fork { parent, copy: copy.then_some(word) });
                self.start_process(child)
            }
            TracerEvent::Exiting(id) => self.on_exiting(id),
            TracerEvent::ClearWord { thread, word } => {
                // This fails only if the word is not the program's any more.
                let _ = self.space.clear(word, thread);
                Ok(())
            }
            TracerEvent::Ended(id) => self.on_ended(id),
            TracerEvent::ProgramReplaced => Err(Ended),
        }
    }

    /// Handles the loss of a node. The registers of threads there are lost, and then the program
    /// cannot go on.
    fn on_node_lost(&mut self, peer: InstanceId, why: &str) -> Next {
        if !self.destinations.remove(&peer) {
            return Ok(());
        }
        warn!(%peer, why, "a destination is lost");
        self.ready.remove(&peer);
        // The node may join again, and has nothing then.
        for thread in self.threads.values_mut() {
            thread.ready_at.remove(&peer);
        }
        self.plan_retrievals(None);
        let pages =
            self.space.page_home.as_ref().map_or(0, |page_home| page_home.forget_holder(peer));
        if pages > 0 {
            self.kill(&format!("{peer} was lost ({why}), with {pages} pages of its memory"));
        } else if self
            .threads
            .iter()
            .any(|(&id, one)| one.away_at() == Some(peer) && self.returns.is_away(id))
        {
            self.kill(&format!("{peer} was lost ({why}), with threads of it"));
        }
        Ok(())
    }
}
