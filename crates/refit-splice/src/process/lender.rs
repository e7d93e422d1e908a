//! Programs that another process of refit traces, and lends while they are stopped.
//!
//! A task has one tracer. A program that an instance follows (`refit run`) is stopped by that
//! instance, which acts on the stopped tasks as refit asks here ([`refit_tracer::loan`]), and
//! treats the calls that its stop has interrupted as after any of its stops.

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use refit_tracer::loan::{LoanAnswer, LoanRequest};

/// The tracer of a program, which can lend it.
pub trait Lender: Debug + Send + Sync {
    /// Asks the tracer to stop the program `within` this time, and to lend it.
    ///
    /// # Errors
    /// The tracer does not answer; [`NotFound`](io::ErrorKind::NotFound): it does not trace the
    /// process.
    fn lend(&self, process: u32, within: Duration) -> io::Result<Box<dyn Loan>>;
}

/// A conversation about a program that is lent. Dropping it ends the loan.
pub trait Loan: Debug + Send {
    /// Receives the next answer.
    ///
    /// # Errors
    /// The tracer has ended, and with it the program.
    fn receive(&mut self) -> io::Result<LoanAnswer>;

    /// Sends a request.
    ///
    /// # Errors
    /// The tracer has ended, and with it the program.
    fn send(&mut self, request: LoanRequest) -> io::Result<()>;
}
