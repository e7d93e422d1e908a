//! Threads that ask refit where they run, or to run elsewhere (`include/refit_move.h`), while they
//! run at their origin.
//!
//! ```text
//!   prctl ──► reported by a filter ──► cancelled: it stands *before* the call ──► coordinator
//!     ▲                                                                               │
//!     └── makes it again, and is answered 0 ◄── arrives at the node ◄── departs ◄─────┤
//!         or has an error as its result ◄── stands behind the call ◄── `answer` ◄─────┘
//! ```
//!
//! **A request is a question that is asked again.** Its only trace in the thread is that the thread
//! stands before the call. Wherever the thread goes on, it makes the call again, and the node that
//! finds the thread where it wants to be answers 0. Of two requests of a thread, the first one is
//! void. So a signal, a stop or a move that a user wants meanwhile needs no rule: the answer is
//! what is true at that moment. An error becomes the result of the call only while the thread
//! stands before it ([`Supervisor::answer`] looks); otherwise the thread asks again, and gets the
//! error then.
//!
//! The filter reports the thread inside its call, where it can neither leave nor make other calls.
//! So the call is cancelled there, and the thread stops once more on its way out of the kernel.
//! That stop is like the stop of any interrupted thread, and no instruction of the program runs in
//! between (the kernel handles stops before signals).

use std::sync::Arc;

use refit_sys::launch::REQUESTS;
use refit_sys::shadow_stub;
use refit_sys::trace::{Event, Tracee};

use crate::request::{Request, ThreadMoveRequest};
use crate::resume::Resume;
use crate::supervisor::Supervisor;
use crate::supervisor::answers::{self, Answers};
use crate::syscall::about_to_call;

impl Supervisor {
    /// Begins to answer requests of threads, which run at instance `own`. `first_request` receives
    /// the requests in programs that have no coordinator yet; it runs in the event loop's thread,
    /// and must not wait for it. Only the first call has an effect.
    pub fn answer_requests(
        &self,
        own: u16,
        first_request: impl Fn(ThreadMoveRequest) + Send + Sync + 'static,
    ) {
        let answers = Answers { own, first_request: Box::new(first_request) };
        let _ = self.move_requests.answers.set(answers);
    }

    /// Handles an event of a thread that asks. Returns `None` for all other events.
    pub(super) fn on_move_request(&self, tracee: &Tracee, event: Event) -> Option<Resume> {
        // If nobody answers requests, the kernel does: it knows no such operation.
        let answers = self.move_requests.answers.get()?;
        match event {
            Event::Seccomp { message: REQUESTS } => self.cancel_request(tracee, answers),
            Event::Interrupted => self.pass_on_request(tracee, answers),
            _ => None,
        }
    }

    /// Answers a thread that is inside its call, or takes it back before the call.
    fn cancel_request(&self, tracee: &Tracee, answers: &Answers) -> Option<Resume> {
        let task = tracee.thread();
        let (number, arguments) = about_to_call(tracee).ok()?;
        let request = Request::of(number, &arguments)?;
        let mut registers = tracee.registers().ok()?;
        // The coordinator of a tracked thread decides where it is wanted from now on.
        let moves = matches!(request, Request::Move(_)) && self.hook.is_tracked(task);
        if let Some(value) = request.answer(answers.own).filter(|_| !moves) {
            // The call is not made, and this is its result.
            registers.orig_rax = u64::MAX;
            registers.rax = value;
            tracee.set_registers(&registers).ok()?;
            return Some(self.hook.resume(task));
        }
        shadow_stub::step_back(&mut registers, number);
        tracee.set_registers(&registers).ok()?;
        answers::step_back(&self.tasks, task, registers.rip);
        Some(Resume::Once(0))
    }

    /// Passes on the request of a thread that stands before its call.
    fn pass_on_request(&self, tracee: &Tracee, answers: &Answers) -> Option<Resume> {
        let task = tracee.thread();
        let (at, number) = self.move_requests.pass_on(&self.tasks, task)?;
        let registers = tracee.registers().ok()?;
        let to = (registers.rdx as u32).cast_signed();
        let request = ThreadMoveRequest { thread: task, to, at, number };
        if !self.hook.move_requested(request) {
            (answers.first_request)(request);
        }
        Some(Resume::Stay)
    }

    /// Returns whether this is the last request of its thread. A thread that was resumed since has
    /// been answered already, or asks again.
    pub fn still_asks(&self, request: ThreadMoveRequest) -> bool {
        answers::is_last(&self.tasks, request.thread, request.number)
    }

    /// Has a thread that stands before its call make it.
    pub fn ask_again(&self, request: ThreadMoveRequest) {
        self.order_kept(request.thread, |_| Resume::Continue);
    }

    /// Makes `value` the result of the call by which a thread asks, if the thread still stands
    /// before it, and resumes the thread as `resume` says. A thread that has been resumed already
    /// asks again, or has: it stays for the answer to that.
    pub fn answer(self: &Arc<Self>, request: ThreadMoveRequest, value: i64, resume: Resume) {
        let supervisor = Arc::clone(self);
        self.order_kept(request.thread, move |tracee| {
            if !supervisor.still_asks(request) {
                return Resume::Stay;
            }
            let Ok(mut registers) = tracee.registers() else { return resume };
            let number = libc::SYS_prctl.cast_unsigned();
            let asks = (registers.rip, registers.rax, (registers.rdx as u32).cast_signed());
            if asks == (request.at, number, request.to) {
                shadow_stub::step_over(&mut registers, value);
                // This fails only if the thread was killed meanwhile.
                let _ = tracee.set_registers(&registers);
            }
            resume
        });
    }
}
