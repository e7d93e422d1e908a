//! Which part of a node handles which message of other nodes: a program's coordinator at its
//! origin, or its replica.

use std::sync::Arc;

use refit_messages::Builder;

use crate::lookup;
use crate::migration::Migration;
use crate::origin::command::Command;
use crate::protocol::messages::{
    Arrive, Change, Claim, Counted, Expect, Fetch, Follow, Invalidate, InvalidateDone, OutOfMemory,
    PageGrant, PageInvalidate, PageRecall, Prepare, Recall, Retrieve, Seek, SeekAnswer,
    SyscallRequest, SyscallResult, Teardown, ThreadLost, ThreadReturned,
};

impl Migration {
    /// Registers the handlers of all messages with a layer that starts. They hold the node's parts
    /// weakly: the layer outlives them for a moment, and drops the messages that come then.
    pub(crate) fn answer(self: &Arc<Self>, builder: Builder) -> Builder {
        let builder = self.answer_moves(self.answer_changes(builder));
        let builder = self.answer_pages(self.answer_calls(builder));
        let builder = self.answer_counted(self.answer_lookups(builder));
        let this = Arc::downgrade(self);
        builder.lost(move |peer, why| {
            if let Some(this) = this.upgrade() {
                this.on_peer_lost(peer, why);
            }
        })
    }

    /// Threads that arrive, return and end.
    fn answer_moves(&self, builder: Builder) -> Builder {
        let [a, b, c, d, e] = std::array::from_fn(|_| Arc::downgrade(&self.remote));
        let [f, g] = std::array::from_fn(|_| Arc::downgrade(&self.origin));
        builder
            .answer::<Prepare>(move |_, prepare, _, reply| {
                if let Some(remote) = a.upgrade() {
                    remote.prepare(prepare, reply);
                }
            })
            .on::<Expect>(move |_, expect, _| {
                refit_sys::adaptive_spin::one_follows();
                let replica = b.upgrade().and_then(|remote| remote.replica(expect.group));
                if let Some(executor) =
                    replica.and_then(|replica| replica.existing_executor(expect.thread))
                {
                    executor.expect();
                }
            })
            .answer::<Arrive>(move |_, arrive, _, reply| {
                if let Some(remote) = c.upgrade() {
                    remote.arrive(arrive, reply);
                }
            })
            .on::<Recall>(move |_, recall, _| {
                let replica = d.upgrade().and_then(|remote| remote.replica(recall.group));
                let executor = replica.and_then(|replica| replica.existing_executor(recall.thread));
                if let Some(executor) = executor {
                    executor.recall(recall.residency);
                }
            })
            .on::<Teardown>(move |_, teardown, _| {
                if let Some(remote) = e.upgrade() {
                    remote.tear_down(teardown);
                }
            })
            .on::<ThreadReturned>(move |_, returned, _| {
                if let Some(origin) = f.upgrade() {
                    origin.on_returned(returned);
                }
            })
            .on::<ThreadLost>(move |_, lost, _| {
                if let Some(origin) = g.upgrade() {
                    // A coordinator that has ended has torn the replicas down.
                    origin.send(lost.group, || Command::ThreadLost(lost));
                }
            })
    }

    /// Changes of a program's memory, and the lock that orders them.
    fn answer_changes(&self, builder: Builder) -> Builder {
        let [a, b, c] = std::array::from_fn(|_| Arc::downgrade(&self.remote));
        let d = Arc::downgrade(&self.origin);
        builder
            .answer::<Invalidate>(move |_, invalidate, _, reply| {
                match a.upgrade().and_then(|remote| remote.replica(invalidate.group)) {
                    Some(replica) => replica.invalidate(invalidate, reply),
                    None => reply.say(&(), &[]),
                }
            })
            .on::<InvalidateDone>(move |_, done, _| {
                if let Some(replica) = b.upgrade().and_then(|remote| remote.replica(done.group)) {
                    replica.invalidate_done();
                }
            })
            .on::<Claim>(move |from, claim, _| {
                if let Some(replica) = c.upgrade().and_then(|remote| remote.replica(claim.group)) {
                    replica.hear_claim(from, claim);
                }
            })
            .answer::<Change>(move |_, change, _, reply| {
                if let Some(origin) = d.upgrade() {
                    origin.send(change.group, || Command::Change(change, reply));
                }
            })
    }

    /// System calls of threads whose destinations share no memory with their origin.
    fn answer_calls(&self, builder: Builder) -> Builder {
        let (a, b) = (Arc::downgrade(&self.origin), Arc::downgrade(&self.remote));
        builder
            .on::<SyscallRequest>(move |_, make, _| {
                if let Some(origin) = a.upgrade() {
                    origin.make(make);
                }
            })
            .on::<SyscallResult>(move |_, made, _| {
                let replica = b.upgrade().and_then(|remote| remote.replica(made.group));
                if let Some(executor) =
                    replica.and_then(|replica| replica.existing_executor(made.thread))
                {
                    executor.deliver_result(made.residency, made.value);
                }
            })
    }

    /// Pages that move between nodes which share no memory.
    fn answer_pages(&self, builder: Builder) -> Builder {
        let [a, b] = std::array::from_fn(|_| Arc::downgrade(&self.origin));
        let [c, d, e] = std::array::from_fn(|_| Arc::downgrade(&self.remote));
        builder
            .on::<OutOfMemory>(move |from, full, _| {
                if let Some(origin) = a.upgrade() {
                    origin.send(full.group, || Command::OutOfMemory(from));
                }
            })
            .on::<Fetch>(move |from, fetch, _| {
                if let Some(origin) = b.upgrade() {
                    origin.fetch(from, fetch);
                }
            })
            .on::<PageGrant>(move |_, grant, body| {
                if let Some(replica) = c.upgrade().and_then(|remote| remote.replica(grant.group)) {
                    replica.grant(&grant, body);
                }
            })
            .answer::<PageRecall>(move |_, recall, _, reply| {
                let replica = d.upgrade().and_then(|remote| remote.replica(recall.group));
                let found = replica.and_then(|replica| replica.surrender(&recall));
                let (piece, bytes) = found.unzip();
                reply.say(&piece, &bytes.unwrap_or_default());
            })
            .answer::<PageInvalidate>(move |_, invalidate, _, reply| {
                let replica = e.upgrade().and_then(|remote| remote.replica(invalidate.group));
                if let Some(replica) = replica {
                    replica.drop_pages(&invalidate.ranges);
                }
                reply.say(&(), &[]);
            })
    }

    /// Lookups of what is mapped at an address.
    fn answer_lookups(self: &Arc<Self>, builder: Builder) -> Builder {
        let [a, b] = std::array::from_fn(|_| Arc::downgrade(&self.remote));
        let (c, d) = (Arc::downgrade(&self.origin), Arc::downgrade(self));
        builder
            .answer::<Retrieve>(move |_, question, _, reply| {
                if let Some(origin) = c.upgrade() {
                    origin.send(question.group, || Command::Retrieve(question, reply));
                }
            })
            .answer::<Follow>(move |_, follow, _, reply| {
                match a.upgrade().and_then(|remote| remote.replica(follow.group)) {
                    Some(replica) => replica.follow(follow, reply),
                    None => reply.say(&(), &[]),
                }
            })
            .on::<Seek>(move |_, seek, _| {
                if let Some(this) = d.upgrade() {
                    this.on_seek(seek);
                }
            })
            .on::<SeekAnswer>(move |from, found, _| {
                if let Some(replica) = b.upgrade().and_then(|remote| remote.replica(found.group)) {
                    replica.on_found(from, found);
                }
            })
    }

    /// Handles the lookup of a node: the origin knows, others may.
    fn on_seek(&self, seek: Seek) {
        if self.origin.send(seek.group, || Command::Seek(seek.clone())) {
            return;
        }
        match (self.remote.replica(seek.group), self.resources.layer()) {
            (Some(replica), _) => replica.on_seek(seek),
            (None, Some(layer)) => lookup::pass_on(layer, seek, None),
            (None, None) => {}
        }
    }

    fn answer_counted(&self, builder: Builder) -> Builder {
        let remote = Arc::downgrade(&self.remote);
        builder.answer::<Counted>(move |_, counted, _, reply| {
            let replica = remote.upgrade().and_then(|remote| remote.replica(counted.group));
            reply.say(&replica.map(|replica| replica.tally()), &[]);
        })
    }
}
