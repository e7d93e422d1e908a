//! The target nodes of threads: moves of one thread or of all, and the nodes of new threads.

use std::sync::mpsc::Sender;

use refit_messages::InstanceId;
use tracing::debug;

use crate::error::MoveError;
use crate::origin::coordinator::{Coordinator, Next, Policy};

impl Coordinator {
    /// Has a thread, or all threads, run at `to`.
    pub(super) fn on_move(
        &mut self,
        thread: Option<u32>,
        to: InstanceId,
        done: Sender<Result<(), MoveError>>,
    ) -> Next {
        debug!(?thread, %to, "wanted");
        let all: Vec<u32> = match thread {
            Some(one) => vec![one],
            None => {
                self.policy = Policy::At(to);
                self.threads.keys().copied().collect()
            }
        };
        for id in all {
            let Some(thread) = self.threads.get_mut(&id) else {
                // The caller may have gone.
                let _ = done.send(Err(MoveError::NoThread(id)));
                continue;
            };
            thread.want(to);
            thread.waiting.push(done.clone());
            self.settle(id)?;
        }
        Ok(())
    }

    pub(super) fn on_spread(
        &mut self,
        over: Vec<InstanceId>,
        done: Sender<Result<(), MoveError>>,
    ) -> Next {
        debug!(?over, "spread");
        self.policy = Policy::Spread(over, 0);
        let all: Vec<u32> = self.threads.keys().copied().collect();
        for id in all {
            let to = self.next_place();
            if let Some(thread) = self.threads.get_mut(&id) {
                thread.want(to);
                thread.waiting.push(done.clone());
            }
            self.settle(id)?;
        }
        Ok(())
    }

    /// Returns the node where the next new thread runs.
    pub(super) fn next_place(&mut self) -> InstanceId {
        match &mut self.policy {
            Policy::At(place) => *place,
            Policy::Spread(over, next) => {
                let place = over.get(*next % over.len().max(1)).copied().unwrap_or(self.own);
                *next += 1;
                place
            }
        }
    }
}
