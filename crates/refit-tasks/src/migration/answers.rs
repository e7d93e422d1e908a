//! Which messages of other instances are answered here, and by whom: a program's coordinator, or its replica.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};

use refit_messages::Builder;

use super::coordinator::{Command, QueuedCommand};
use super::wire::{
    Arrive, Change, Claim, Counted, Expect, Fetch, Follow, Found, Full, GroupId, Invalidate,
    InvalidateDone, Made, Make, PageGrant, PageInvalidate, PageRecall, Prepare, Recall, Retrieve,
    Seek, Teardown, ThreadLost, ThreadReturned,
};
use super::{Migration, retrieval};

impl Migration {
    /// Has messages of other instances answered here.
    pub fn answer(self: &Arc<Self>, builder: Builder) -> Builder {
        let [a, b, c, d, e, f, g, h, i, j, k] = std::array::from_fn(|_| Arc::downgrade(self));
        self.answer_abroad(self.answer_sought(self.answer_counted(builder)))
            .answer::<Arrive>(move |_, arrive, _, reply| {
                if let Some(this) = a.upgrade() {
                    this.arrive(arrive, reply);
                }
            })
            .answer::<Prepare>(move |_, prepare, _, reply| {
                if let Some(this) = j.upgrade() {
                    this.prepare(prepare, reply);
                }
            })
            .on::<Expect>(move |_, expect, _| {
                refit_sys::adaptive_spin::one_follows();
                let replica = k.upgrade().and_then(|this| this.replica(expect.group));
                if let Some(executor) = replica.and_then(|replica| replica.known(expect.thread)) {
                    executor.expect();
                }
            })
            .on::<Recall>(move |_, recall, _| {
                let replica = b.upgrade().and_then(|this| this.replica(recall.group));
                let executor = replica.and_then(|replica| replica.known(recall.thread));
                if let Some(executor) = executor {
                    executor.recall(recall.residency);
                }
            })
            .answer::<Invalidate>(move |_, forget, _, reply| {
                match c.upgrade().and_then(|this| this.replica(forget.group)) {
                    Some(replica) => replica.forget(forget, reply),
                    None => reply.say(&(), &[]),
                }
            })
            .on::<Teardown>(move |_, vanish, _| {
                if let Some(this) = d.upgrade() {
                    this.vanish(vanish);
                }
            })
            .on::<ThreadReturned>(move |_, came, _| {
                let Some(this) = e.upgrade() else { return };
                if let Some(coordinator) = this.coordinator_of(came.group) {
                    this.returns.hear(Box::new(came), coordinator);
                    // Whoever makes it go on has the processor meanwhile.
                    refit_sys::adaptive_spin::none_follows();
                }
            })
            .on::<ThreadLost>(move |_, fell, _| {
                tell(&i, fell.group, |_| Command::ThreadLost(fell));
            })
            .answer::<Retrieve>(move |_, question, _, reply| {
                tell(&f, question.group, |_| Command::Retrieve(question, reply));
            })
            .answer::<Change>(move |_, change, _, reply| {
                tell(&g, change.group, |_| Command::Change(change, reply));
            })
            .lost(move |peer, why| {
                if let Some(this) = h.upgrade() {
                    this.lost(peer, why);
                }
            })
    }

    /// What only those say who share no memory.
    fn answer_abroad(self: &Arc<Self>, builder: Builder) -> Builder {
        let [a, b, c, d, e, f, g] = std::array::from_fn(|_| Arc::downgrade(self));
        builder
            .on::<Full>(move |from, full, _| {
                tell(&g, full.group, |_| Command::Full(from));
            })
            .on::<Fetch>(move |from, fetch, _| {
                if let Some(this) = a.upgrade()
                    && this.coordinator_of(fetch.group).is_some()
                {
                    this.remote_programs.fetch(from, fetch);
                }
            })
            .on::<Make>(move |_, make, _| {
                if let Some(this) = b.upgrade()
                    && this.coordinator_of(make.group).is_some()
                {
                    this.remote_programs.make(make);
                }
            })
            .on::<Made>(move |_, made, _| {
                let replica = c.upgrade().and_then(|this| this.replica(made.group));
                if let Some(executor) = replica.and_then(|replica| replica.known(made.thread)) {
                    executor.made(made.residency, made.value);
                }
            })
            .on::<PageGrant>(move |_, grant, body| {
                if let Some(replica) = d.upgrade().and_then(|this| this.replica(grant.group)) {
                    replica.grant(&grant, body);
                }
            })
            .answer::<PageRecall>(move |_, question, _, reply| {
                let replica = e.upgrade().and_then(|this| this.replica(question.group));
                let found = replica.and_then(|replica| replica.yields(&question));
                let (piece, bytes) = found.unzip();
                reply.say(&piece, &bytes.unwrap_or_default());
            })
            .answer::<PageInvalidate>(move |_, drop, _, reply| {
                if let Some(replica) = f.upgrade().and_then(|this| this.replica(drop.group)) {
                    replica.drop_pages(&drop.ranges);
                }
                reply.say(&(), &[]);
            })
    }

    /// What only those say who may ask others than the origin.
    fn answer_sought(self: &Arc<Self>, builder: Builder) -> Builder {
        let [a, b, c, d, e] = std::array::from_fn(|_| Arc::downgrade(self));
        builder
            .on::<Claim>(move |from, claim, _| {
                if let Some(replica) = e.upgrade().and_then(|this| this.replica(claim.group)) {
                    replica.hear_claim(from, claim);
                }
            })
            .on::<InvalidateDone>(move |_, thaw, _| {
                if let Some(replica) = a.upgrade().and_then(|this| this.replica(thaw.group)) {
                    replica.thaw();
                }
            })
            .answer::<Follow>(move |_, follow, _, reply| {
                match b.upgrade().and_then(|this| this.replica(follow.group)) {
                    Some(replica) => replica.follow(follow, reply),
                    None => reply.say(&(), &[]),
                }
            })
            .on::<Seek>(move |_, seek, _| {
                if let Some(this) = c.upgrade() {
                    this.is_sought(seek);
                }
            })
            .on::<Found>(move |from, found, _| {
                if let Some(replica) = d.upgrade().and_then(|this| this.replica(found.group)) {
                    replica.found(from, found);
                }
            })
    }

    /// Somebody looks for what is at an address: the origin knows, others may.
    fn is_sought(&self, seek: Seek) {
        let coordinator = self.coordinator_of(seek.group);
        let told = |one: Sender<QueuedCommand>| {
            one.send(QueuedCommand::now(Command::Seek(seek.clone()))).is_ok()
        };
        if coordinator.is_some_and(told) {
            return;
        }
        match (self.replica(seek.group), self.layer.get()) {
            (Some(replica), _) => replica.is_sought(seek),
            (None, Some(layer)) => retrieval::pass_on(layer, seek, None),
            (None, None) => {}
        }
    }

    fn answer_counted(self: &Arc<Self>, builder: Builder) -> Builder {
        let this = Arc::downgrade(self);
        builder.answer::<Counted>(move |_, counted, _, reply| {
            let replica = this.upgrade().and_then(|this| this.replica(counted.group));
            reply.say(&replica.map(|replica| replica.counted()), &[]);
        })
    }
}

/// Brings what is said of a group to its coordinator, if there is one.
fn tell(migration: &Weak<Migration>, group: GroupId, ask: impl FnOnce(()) -> Command) {
    let Some(this) = migration.upgrade() else { return };
    if let Some(coordinator) = this.coordinator_of(group) {
        // A group that is no more tells its hosts.
        let _ = coordinator.send(QueuedCommand::now(ask(())));
    }
}
