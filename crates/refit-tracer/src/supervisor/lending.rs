//! Lends a stopped program to another process ([`crate::loan`]).

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use refit_sys::agent;
use refit_sys::process;
use refit_sys::sharers::Sharers;
use refit_sys::status::Status;
use refit_sys::trace::{CallError, Event, Tracee, from_words, to_words};
use rustix::io::Errno;

use crate::loan::{LentTask, LoanAnswer, LoanRequest};
use crate::supervisor::work::Stopped;
use crate::supervisor::{Supervisor, restarted_calls, short_writes};

impl Supervisor {
    /// Stops all tasks that run in the memory of a process, and does with them what a borrower asks
    /// for. `converse` gives it each answer, and returns its next request, or `None` when the loan
    /// ends. Meanwhile the event loop does nothing else.
    ///
    /// # Errors
    /// Those of [`while_stopped`](Self::while_stopped).
    pub fn lend(
        &self,
        process: u32,
        within: Duration,
        mut converse: impl FnMut(LoanAnswer) -> Option<LoanRequest> + Send + 'static,
    ) -> io::Result<()> {
        // The processes that there are now are compared before any task is stopped.
        let mut sharers = Sharers::default();
        sharers.of(process, process);
        let list = move |supervisor: &Self| {
            let mut others = sharers.of(process, process);
            // An agent runs none of the program's code, and must not be stopped.
            others.retain(|&id| supervisor.tasks.has(id) || process::name(id) != agent::TASK_NAME);
            let all = others.into_iter().chain([process]);
            all.flat_map(process::threads).collect()
        };
        let serve = move |supervisor: &Self, stopped: &Stopped| {
            let lent = supervisor.list_lent(stopped, process);
            let lent = lent.unwrap_or_else(|errno| LoanAnswer::Failed(errno.raw_os_error()));
            let mut asked = converse(lent);
            while let Some(request) = asked {
                asked = converse(answer(request));
            }
        };
        self.while_all_stopped(process, within, list, serve)
    }

    /// Makes stopped tasks look as the kernel would have left them, and lists them.
    fn list_lent(&self, stopped: &Stopped, process: u32) -> Result<LoanAnswer, Errno> {
        let own: BTreeSet<u32> = process::threads(process).into_iter().collect();
        let mut tasks = Vec::new();
        for (&task, &event) in &stopped.tasks {
            let is_own = own.contains(&task);
            let is_lent =
                |is_stopped, makes_calls| LentTask { task, is_own, is_stopped, makes_calls };
            let ended = process::life(task).is_none_or(|life| life.ended());
            match event {
                _ if ended => {}
                _ if self.hook.runs_elsewhere(task) => return Err(Errno::AGAIN),
                // The borrower has prepared for the former program.
                Some(Event::Exec { .. }) if is_own => return Err(Errno::STALE),
                // The task never runs the program's code again, or not in this memory.
                Some(Event::Exec { .. } | Event::Exit { .. }) => {}
                // No tracee of ours, since it was not waited for.
                Some(Event::Exited(_) | Event::Killed(_)) => return Err(Errno::PERM),
                Some(event) => {
                    let tracee = Tracee::of(task);
                    short_writes::on_event(&self.tasks, &tracee, event);
                    restarted_calls::on_event(&self.tasks, &tracee, event);
                    tracee.leave();
                    tasks.push(is_lent(true, event == Event::Interrupted));
                }
                None if self.is_in_vfork(task) => tasks.push(is_lent(false, false)),
                None if is_traced(task) => tasks.push(is_lent(true, false)),
                None => return Err(Errno::PERM),
            }
        }
        if !tasks.iter().any(|task| task.is_own) {
            return Err(Errno::SRCH);
        }
        let since_ns = u64::try_from(stopped.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let filters = self.filter_count(process);
        Ok(LoanAnswer::Stopped { since_ns, tasks, filters })
    }
}

fn is_traced(task: u32) -> bool {
    let status = Status::of(task).ok();
    status.and_then(|status| status.number("TracerPid")).is_some_and(|by| by != 0)
}

/// Does what a borrower asks for.
fn answer(request: LoanRequest) -> LoanAnswer {
    let failed = |error: io::Error| LoanAnswer::Failed(number(&error));
    let with = |task, act: &dyn Fn(&mut Tracee) -> io::Result<LoanAnswer>| {
        let mut tracee = Tracee::of(task);
        let done = act(&mut tracee);
        tracee.leave();
        done.unwrap_or_else(failed)
    };
    match request {
        LoanRequest::Registers(task) => {
            with(task, &|tracee| Ok(LoanAnswer::Registers(to_words(&tracee.registers()?))))
        }
        LoanRequest::SetRegisters(task, words) => with(task, &|tracee| {
            tracee.set_registers(&from_words(&words))?;
            Ok(LoanAnswer::Set)
        }),
        LoanRequest::Vectors(task) => {
            with(task, &|tracee| Ok(LoanAnswer::Vectors(tracee.extended_words()?)))
        }
        LoanRequest::Rseq(task) => with(task, &|tracee| Ok(LoanAnswer::Rseq(tracee.rseq()?))),
        LoanRequest::HasSignals(task) => {
            with(task, &|tracee| Ok(LoanAnswer::HasSignals(tracee.has_signals()?)))
        }
        LoanRequest::Call { task, at, number: call, arguments } => with(task, &|tracee| {
            let memory = refit_sys::foreign::Memory::of(task)?;
            match tracee.call_returning(&memory, at, call, arguments) {
                Ok(value) => Ok(LoanAnswer::Returned(value)),
                Err(CallError::Call(error)) => Ok(LoanAnswer::CallFailed(number(&error))),
                Err(CallError::Lost(error)) => Err(error),
            }
        }),
    }
}

/// Returns the number of an error.
fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
