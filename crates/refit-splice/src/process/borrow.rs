//! Borrows a program from its tracer, which stops all its tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use refit_sys::process::{life, waits};
use refit_tracer::loan::LoanAnswer;

use super::held::{HeldTask, LentTask};
use super::lender::Lender;
use super::program::Program;
use super::refusal::Refusal;
use super::still::Still;

impl<'p> Still<'p> {
    /// Has the tracer of a program stop it `within` this time.
    pub(super) fn borrow(
        program: &'p Program,
        lender: &dyn Lender,
        within: Duration,
    ) -> Result<Self, Refusal> {
        let id = program.id();
        let asked = lender.lend(id, within).and_then(|mut loan| Ok((loan.receive()?, loan)));
        let (lent, loan) = asked.map_err(|error| refused(program, error))?;
        let (since, tasks) = match lent {
            LoanAnswer::Stopped { since_ns, tasks, filters } => {
                program.allow(filters);
                (Duration::from_nanos(since_ns), tasks)
            }
            LoanAnswer::Failed(error) => {
                return Err(refused(program, io::Error::from_raw_os_error(error)));
            }
            other => {
                let error = io::Error::new(io::ErrorKind::InvalidData, format!("{other:?}"));
                return Err(refused(program, error));
            }
        };
        let now = Instant::now();
        let began = now.checked_sub(since).unwrap_or(now);
        let loan = Arc::new(Mutex::new(loan));
        let (mut threads, mut asleep) = (BTreeMap::new(), BTreeMap::new());
        let mut own = BTreeSet::new();
        for lent in tasks {
            let (task, held) = (lent.task, HeldTask::Lent(LentTask::new(lent, &loan)));
            if lent.is_stopped {
                threads.insert(task, held);
            } else {
                let waits = waits(task).ok_or_else(|| Refusal::restless(id, task))?;
                asleep.insert(task, (held, waits));
            }
            own.extend(lent.is_own.then_some(task));
        }
        Ok(Self { threads, asleep, own, ..Self::empty(program, began) })
    }
}

/// Returns the refusal for an error of a tracer.
fn refused(program: &Program, error: io::Error) -> Refusal {
    let id = program.id();
    if error.kind() == io::ErrorKind::NotFound {
        return Refusal::NoSuch { id };
    }
    match error.raw_os_error() {
        Some(libc::ESRCH) => Refusal::NoSuch { id },
        Some(libc::ESTALE) => Refusal::Replaced { id },
        Some(libc::EOPNOTSUPP) => Refusal::Hosts { id },
        // It has just moved.
        Some(libc::EAGAIN) => Refusal::restless(id, id),
        Some(libc::ETIMEDOUT) => {
            let runs = |&thread: &u32| life(thread).is_some_and(|life| life.state == b'D');
            let thread = program.threads().into_iter().find(runs).unwrap_or(id);
            Refusal::restless(id, thread)
        }
        _ => Refusal::System { id, what: "borrow it from its tracer", source: error },
    }
}
