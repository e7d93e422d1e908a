//! What comes from the instances that are watched: looks, changes, and that one has ended.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use refit_instance::wire::{Activity, ChangesQuery, JournalLine};
use refit_instance::{Kind, Refusal};

use super::state::State;
use crate::failure::Failure;
use crate::instances::Live;

/// How much may wait to be taken in. Beyond that instances wait: they say less then, and not later.
const WAITING: usize = 16;

enum Item {
    Activity(u32, Activity),
    Change(JournalLine),
    Ended(Refusal),
}

/// News of all instances that are watched.
pub(crate) struct News(Receiver<Item>);

impl News {
    /// From now on; instances look so often.
    ///
    /// # Errors
    /// An instance does not answer.
    pub(crate) fn of(live: &[Live], every: Duration) -> Result<News, Failure> {
        let (sender, items) = sync_channel(WAITING);
        for live in live {
            follow_activity(live, every, sender.clone())?;
            follow_changes(live, sender.clone())?;
        }
        Ok(News(items))
    }

    /// Takes what has come into the state; whether there was a look.
    ///
    /// # Errors
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

    /// Waits for something for no longer than that, and takes it in.
    ///
    /// # Errors
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

/// Ends with its instance, or with this process.
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
        let ended = Refusal::new(Kind::Unreachable, "watch", end, "see `refit mounts` for others");
        // Nobody watches any more.
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
