//! A task that is stopped: a tracee of refit's, or one that its tracer lends.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use refit_sys::foreign::Memory;
use refit_sys::trace::{CallError, Options, RETURNING, Registers, Tracee, from_words, to_words};
use refit_tracer::loan::{LoanAnswer, LoanRequest};

use super::lender::Loan;

/// A stopped task.
#[derive(Debug)]
pub(super) enum HeldTask {
    /// Refit traces it.
    Own(Tracee),
    /// Another process traces it.
    Lent(LentTask),
}

/// A task of a program that is lent.
#[derive(Debug)]
pub(super) struct LentTask {
    task: u32,
    pub(super) makes_calls: bool,
    loan: Arc<Mutex<Box<dyn Loan>>>,
}

impl LentTask {
    pub(super) fn new(
        lent: refit_tracer::loan::LentTask,
        loan: &Arc<Mutex<Box<dyn Loan>>>,
    ) -> Self {
        Self { task: lent.task, makes_calls: lent.makes_calls, loan: Arc::clone(loan) }
    }

    fn ask(&self, request: LoanRequest) -> io::Result<LoanAnswer> {
        let mut loan = self.loan.lock();
        loan.send(request)?;
        match loan.receive()? {
            LoanAnswer::Failed(error) => Err(io::Error::from_raw_os_error(error)),
            answer => Ok(answer),
        }
    }
}

/// Returns the error of an answer that is none to the request.
fn unexpected(answer: &LoanAnswer) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its tracer answered {answer:?}"))
}

impl HeldTask {
    /// Whether it can make system calls for refit.
    pub(super) fn makes_calls(&self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::Lent(lent) => lent.makes_calls,
        }
    }

    /// Returns its general registers.
    pub(super) fn registers(&self) -> io::Result<Registers> {
        match self {
            Self::Own(held) => held.registers(),
            Self::Lent(lent) => match lent.ask(LoanRequest::Registers(lent.task))? {
                LoanAnswer::Registers(words) => Ok(from_words(&words)),
                other => Err(unexpected(&other)),
            },
        }
    }

    /// Returns its vector registers, and the rest of its extended state, as words.
    pub(super) fn vectors(&self) -> io::Result<Vec<u64>> {
        match self {
            Self::Own(held) => held.extended_words(),
            Self::Lent(lent) => match lent.ask(LoanRequest::Vectors(lent.task))? {
                LoanAnswer::Vectors(words) => Ok(words),
                other => Err(unexpected(&other)),
            },
        }
    }

    /// Sets its general registers.
    pub(super) fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        match self {
            Self::Own(held) => held.set_registers(registers),
            Self::Lent(lent) => {
                let request = LoanRequest::SetRegisters(lent.task, to_words(registers));
                match lent.ask(request)? {
                    LoanAnswer::Set => Ok(()),
                    other => Err(unexpected(&other)),
                }
            }
        }
    }

    /// Returns the address of its area for restartable sequences, and their signature.
    pub(super) fn rseq(&self) -> io::Result<Option<(u64, u32)>> {
        match self {
            Self::Own(held) => held.rseq(),
            Self::Lent(lent) => match lent.ask(LoanRequest::Rseq(lent.task))? {
                LoanAnswer::Rseq(area) => Ok(area),
                other => Err(unexpected(&other)),
            },
        }
    }

    /// Whether signals are pending for it.
    pub(super) fn has_signals(&self) -> io::Result<bool> {
        match self {
            Self::Own(held) => held.has_signals(),
            Self::Lent(lent) => match lent.ask(LoanRequest::HasSignals(lent.task))? {
                LoanAnswer::HasSignals(pending) => Ok(pending),
                other => Err(unexpected(&other)),
            },
        }
    }

    /// Whether it can make calls that its filters forbid: refit traces it, and the kernel lets root
    /// suspend filters.
    pub(super) fn passes_filters(&self) -> bool {
        let suspended = self.set_options(RETURNING | Options::SUSPEND_SECCOMP);
        suspended.and_then(|()| self.set_options(RETURNING)).is_ok()
    }

    /// Has it make a call with its filters suspended. No code of the program runs meanwhile, but if
    /// refit is killed before the call is made, the filters judge it.
    pub(super) fn past_filters(
        &mut self,
        call: impl FnOnce(&mut Self) -> Result<u64, CallError>,
    ) -> Result<u64, CallError> {
        self.set_options(RETURNING | Options::SUSPEND_SECCOMP).map_err(CallError::Lost)?;
        let made = call(self);
        self.set_options(RETURNING).map_err(CallError::Lost)?;
        made
    }

    fn set_options(&self, options: Options) -> io::Result<()> {
        match self {
            Self::Own(held) => held.set_options(options),
            Self::Lent(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Makes a system call by code at `at` ([`Tracee::call_returning`]).
    pub(super) fn call_returning(
        &mut self,
        memory: &Memory,
        at: u64,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, CallError> {
        match self {
            Self::Own(held) => held.call_returning(memory, at, number, arguments),
            Self::Lent(lent) => {
                let request = LoanRequest::Call { task: lent.task, at, number, arguments };
                match lent.ask(request).map_err(CallError::Lost)? {
                    LoanAnswer::Returned(value) => Ok(value),
                    LoanAnswer::CallFailed(error) => {
                        Err(CallError::Call(io::Error::from_raw_os_error(error)))
                    }
                    other => Err(CallError::Lost(unexpected(&other))),
                }
            }
        }
    }

    /// Lets it go on. A task that is lent goes on when the loan ends.
    pub(super) fn let_go(self) -> io::Result<()> {
        match self {
            Self::Own(held) => held.let_go(),
            Self::Lent(_) => Ok(()),
        }
    }
}
