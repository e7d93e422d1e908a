//! The workers of a mount: the threads that read the kernel's requests and execute them.
//!
//! Each worker is a session of the FUSE library, with one thread and a descriptor of the connection
//! of its own. Before it reads from the connection it executes a request that is not of the kernel
//! (`first_request`).

use crate::answer::Fuse;
use crate::first_request::AwaitedConnection;
use crate::image::header::Negotiation;
use crate::negotiation;
use crate::server::{FinishOnDrop, Server};
use fuser::{Notifier, Session, SessionACL};
use refit_sys::fuse_device;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// The workers of a mount, which have agreed with the kernel and do not read yet.
pub(crate) struct Workers {
    workers: Vec<Worker>,
    device: OwnedFd,
}

struct Worker {
    session: Session<Fuse>,
    awaited: Arc<AwaitedConnection>,
}

/// The workers of a mount that read.
pub(crate) struct RunningWorkers {
    /// The thread that waits for their end.
    pub(crate) guard: JoinHandle<()>,
    /// Sends notifications to the kernel.
    pub(crate) notifier: Notifier,
}

impl Workers {
    /// Negotiates with the kernel over a new connection, for `count` workers.
    pub(crate) fn begin(
        server: &Arc<Server>,
        device: OwnedFd,
        acl: SessionACL,
        count: usize,
    ) -> io::Result<(Self, Negotiation)> {
        let finish = Arc::new(FinishOnDrop(Arc::clone(server)));
        let (fuse, awaited) = fuse(server, &finish);
        let (session, agreed) = negotiation::begin(fuse, &device, acl)?;
        let mut all = Self { workers: vec![Worker { session, awaited }], device };
        all.add(server, &finish, acl, count, &agreed)?;
        Ok((all, agreed))
    }

    /// Agrees to what was negotiated with the kernel, for `count` workers.
    pub(crate) fn resume(
        server: &Arc<Server>,
        device: OwnedFd,
        acl: SessionACL,
        count: usize,
        agreed: &Negotiation,
    ) -> io::Result<Self> {
        let finish = Arc::new(FinishOnDrop(Arc::clone(server)));
        let mut all = Self { workers: Vec::new(), device };
        all.add(server, &finish, acl, count, agreed)?;
        Ok(all)
    }

    /// Adds workers until there are `count`.
    fn add(
        &mut self,
        server: &Arc<Server>,
        finish: &Arc<FinishOnDrop>,
        acl: SessionACL,
        count: usize,
        agreed: &Negotiation,
    ) -> io::Result<()> {
        while self.workers.len() < count {
            let (fuse, awaited) = fuse(server, finish);
            let session = negotiation::resume(fuse, acl, agreed)?;
            self.workers.push(Worker { session, awaited });
        }
        Ok(())
    }

    /// Returns a descriptor of the connection.
    pub(crate) fn device(&self) -> io::Result<OwnedFd> {
        self.device.try_clone()
    }

    /// Starts the workers. Returns when all of them read from the connection.
    pub(crate) fn start(self) -> io::Result<RunningWorkers> {
        let Self { workers, device } = self;
        let notifier = workers[0].session.notifier();
        let (connected, connections) = channel();
        let mut threads = Vec::with_capacity(workers.len());
        let clones = (1..workers.len()).map(|_| fuse_device::clone(&device));
        let mut devices = clones.collect::<io::Result<Vec<_>>>()?;
        devices.push(device);
        for (Worker { session, awaited }, device) in workers.into_iter().zip(devices) {
            awaited.follow_first_request(session.as_fd(), device, connected.clone())?;
            threads.push(session.spawn()?.guard);
        }
        let count = threads.len();
        drop(connected);
        let guard = std::thread::Builder::new().name("fuse-end".into()).spawn(move || {
            for thread in threads {
                // The threads report the end of the connection, which is expected.
                let _ = thread.join();
            }
        })?;
        for _ in 0..count {
            // Without a report, a worker has ended before it executed its first request.
            connections.recv().map_err(|_| io::ErrorKind::NotConnected)??;
        }
        Ok(RunningWorkers { guard, notifier })
    }
}

fn fuse(server: &Arc<Server>, finish: &Arc<FinishOnDrop>) -> (Fuse, Arc<AwaitedConnection>) {
    let awaited = Arc::<AwaitedConnection>::default();
    let fuse = Fuse {
        server: Arc::clone(server),
        awaited: Arc::clone(&awaited),
        _finish: Arc::clone(finish),
    };
    (fuse, awaited)
}
