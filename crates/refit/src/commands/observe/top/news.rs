//! The messages of the watched instances: looks, changes, and their end.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use refit_instance::wire::{Activity, ChangesQuery, JournalLine};
use refit_instance::{Kind, Refusal};

use super::state::State;
use crate::failure::Failure;
use crate::instances::Live;

/// The number of messages that may be queued. Beyond that instances wait, and send fewer looks
/// instead of late ones.
const WAITING: usize = 16;

enum Item {
    Activity(u32, Activity),
    Change(JournalLine),
    Ended(Refusal),
}

/// The messages of all watched instances.
pub(crate) struct News(Receiver<Item>);

impl News {
    /// Follows the instances from now on; they look at this interval.
    ///
    /// # Errors
    ///
    /// An instance does not answer.
    pub(crate) fn of(live: &[Live], every: Duration) -> Result<News, Failure> {
        let (sender, items) = sync_channel(WAITING);
        for live in live {
            follow_activity(live, every, sender.clone())?;
            follow_changes(live, sender.clone())?;
        }
        Ok(News(items))
    }

    /// Applies the queued messages to the state. Returns whether there was a look.
    ///
    /// # Errors
    ///
    /// An instance has ended.
    pub(crate) fn take(&self, state: &mut State) -> Result<bool, Failure> {
        let mut looked = false;
        loop {
            match self.0.try_recv() {
                Ok(item) => looked |= take_in(item, state)?,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(looked),
            }
        }
    }

    /// Waits for a message for up to `time`, and applies it.
    ///
    /// # Errors
    ///
    /// An instance has ended.
    pub(crate) fn wait(&self, state: &mut State, time: Duration) -> Result<(), Failure> {
        match self.0.recv_timeout(time) {
            Ok(item) => take_in(item, state).map(drop),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(()),
        }
    }
}

fn take_in(item: Item, state: &mut State) -> Result<bool, Failure> {
    match item {
        Item::Activity(instance, activity) => {
            state.update(instance, activity);
            return Ok(true);
        }
        Item::Change(JournalLine::Entry { report, .. }) => state.changed(*report),
        Item::Change(JournalLine::Lost { lost }) => state.lost_changes += lost,
        Item::Ended(refusal) => return Err(Failure::Refused(refusal)),
    }
    Ok(false)
}

/// Forwards looks until the instance, or this process, ends.
fn follow_activity(live: &Live, every: Duration, to: SyncSender<Item>) -> Result<(), Failure> {
    let (pid, activity) = (live.pid, live.client.activity(every)?);
    thread::spawn(move || {
        for line in activity {
            let item = line.map_or_else(Item::Ended, |line| Item::Activity(pid, line));
            if to.send(item).is_err() {
                return;
            }
        }
        let end = format!("instance {pid} has ended");
        let ended = Refusal::new(
            Kind::Unreachable,
            "watch",
            end,
            "list instances with `refit mounts`, `refit ps` or `refit instances`",
        );
        // The receiver may be gone.
        let _ = to.send(Item::Ended(ended));
    });
    Ok(())
}

fn follow_changes(live: &Live, to: SyncSender<Item>) -> Result<(), Failure> {
    let query = ChangesQuery { follow: true, from: None, last: Some(5) };
    let journal = live.client.changes(&query)?;
    thread::spawn(move || {
        journal.into_iter().flatten().try_for_each(|line| to.send(Item::Change(line)))
    });
    Ok(())
}
