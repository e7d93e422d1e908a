//! Runs the instructions of one thread of a group, in a task of the replica, until the thread is
//! recalled or does something that only its shadow can do.
//!
//! ```text
//!   arrives ──► runs ──┬─ system call ──► to its shadow, through the slot ──► runs on
//!                      ├─ touches an unmapped address ──► lookup at the origin, map ──► runs on
//!                      └─ recalled │ makes a task, exits, leaves a handler │ faults ──► returns
//! ```
//!
//! The executor's thread traces the task. The task makes no system call of its own: the kernel
//! stops it at each call, and skips the call (`PTRACE_SYSEMU`). One signal, which only refit
//! sends, interrupts the task so that the executor reads its mailbox.

mod fault;
mod on_files;
pub(crate) mod residency;
mod shadow_affinity;
mod syscall;

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use refit_messages::Reply;
use refit_sys::thread::EndedEarly;
use refit_sys::trace::{Options, Tracee};

use crate::protocol::messages::Arrive;
use crate::remote::mailbox::{ExecutorCommand, Mailbox};
use crate::stats::Tally;

/// The time within which a task stops that was asked to.
const TASK_STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The handle of an executor.
pub(crate) struct Executor {
    task: u32,
    process: u32,
    mailbox: Mailbox,
    /// The counts of all threads that it has served.
    tally: Mutex<Tally>,
}

impl Executor {
    /// Starts an executor for a task of the replica `process`, which rests. Its thread traces the
    /// task, and calls `serve` with it.
    ///
    /// # Errors
    /// The task cannot be traced; there is no thread for it.
    fn start(
        process: u32,
        task: u32,
        serve: impl FnOnce(&Self, Tracee) + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let (mailbox, tally) = (Mailbox::default(), Mutex::default());
        let executor = Arc::new(Self { task, process, mailbox, tally });
        let (ready, is_ready) = mpsc::channel();
        let own = Arc::clone(&executor);
        let run = move || match seize(task) {
            Ok(tracee) => {
                // The caller waits for this.
                let _ = ready.send(Ok(()));
                serve(&own, tracee);
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        thread::Builder::new().name("refit-executor".to_owned()).spawn(run)?;
        is_ready.recv().map_err(|_| EndedEarly("it"))??;
        Ok(executor)
    }

    pub(crate) fn arrive(&self, arrive: Arrive, reply: Reply<Arrive>) {
        self.command(ExecutorCommand::Arrive(Box::new(arrive), reply));
    }

    /// Announces the arrival of a thread.
    pub(crate) fn expect(&self) {
        self.mailbox.send(ExecutorCommand::Expect);
    }

    /// Recalls the thread, if it is still in this residency.
    pub(crate) fn recall(&self, residency: u64) {
        self.command(ExecutorCommand::Recall(residency));
    }

    /// Delivers the result of the call that the thread is in, if it is still in this residency.
    pub(crate) fn deliver_result(&self, residency: u64, value: u64) {
        self.mailbox.send(ExecutorCommand::SyscallResult(residency, value));
    }

    /// Frees the executor, whose thread has ended, for another thread.
    pub(crate) fn rest(&self) {
        self.command(ExecutorCommand::Rest);
    }

    /// Ends the executor.
    pub(crate) fn end(&self) {
        self.command(ExecutorCommand::End);
    }

    fn command(&self, command: ExecutorCommand) {
        if self.mailbox.send(command) {
            refit_sys::process::interrupt_thread(self.process, self.task);
        }
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock()
    }
}

fn seize(task: u32) -> io::Result<Tracee> {
    let options = Options::SYSTEM_CALL | Options::EXIT_KILL;
    let mut tracee = Tracee::seize_with(task, options)?;
    tracee.interrupt()?;
    tracee.settle(Instant::now() + TASK_STOP_TIMEOUT)?;
    tracee.set_signal_mask(0)?;
    Ok(tracee)
}
