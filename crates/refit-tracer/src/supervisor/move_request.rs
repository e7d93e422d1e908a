//! Threads that ask refit where they run, or to run elsewhere (`include/refit_move.h`), and stand here.
//!
//! ```text
//!   prctl ──► told, by a filter ──► made not to be a call: the thread stands *before* it again ──► wish ──► coordinator
//!     ▲                                                                                                       │
//!     └── makes it again: it is there, and is told 0 ◄── arrives there ◄── leaves ────────────────────────────┤
//!         or is told an error, here ◄── stands behind it ◄── answered ◄───────────────────────────────────────┘
//! ```
//!
//! **A wish is a question that is asked again**: nothing of it is remembered in the thread but that it stands before the call. Wherever it goes on, it
//! asks again, and is told 0 by whoever finds it where it wants to be. Of two wishes of a thread the first is none any more. So a signal, a stop, or a move that somebody else wants meanwhile need no
//! rule: what is answered is what is so at that moment. An error is put behind the call only where the thread stands before it
//! ([`Supervisor::answer`] looks); else it asks again, and is told then.
//!
//! The thread is told in the midst of its call, where it can neither leave nor make others. So the call is taken back there, and the thread
//! stops once more on its way out of the kernel: that stop is as that of any thread that was interrupted, and no instruction of the program runs
//! in between (the kernel sees to stops before it sees to signals).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use refit_sys::launch::REQUESTS;
use refit_sys::shadow_stub;
use refit_sys::trace::{Event, Tracee};

use crate::request::{Request, ThreadMoveRequest};
use crate::resume::Resume;
use crate::supervisor::{Supervisor, lock};
use crate::syscall::about_to_call;

/// Who answers, and what is to be answered.
#[derive(Default)]
pub(super) struct MoveRequests {
    answers: OnceLock<Answers>,
    /// By thread: where its call is, of which it is on its way back.
    stepping_back: Mutex<BTreeMap<u32, u64>>,
    /// By thread: its last wish.
    last: Mutex<BTreeMap<u32, u64>>,
    /// How many wishes there were.
    count: AtomicU64,
}

/// Who answers.
struct Answers {
    own: u16,
    begins: Box<dyn Fn(ThreadMoveRequest) + Send + Sync>,
}

impl MoveRequests {
    /// A task has ended.
    pub(super) fn forget(&self, task: u32) {
        lock(&self.stepping_back).remove(&task);
        lock(&self.last).remove(&task);
    }
}

impl Supervisor {
    /// Threads may ask from now on, and run at this instance. `begins` is told of wishes in programs that have no coordinator yet: by the thread
    /// that follows, which it must not wait for.
    pub fn answer_requests(
        &self,
        own: u16,
        begins: impl Fn(ThreadMoveRequest) + Send + Sync + 'static,
    ) {
        // The first is the one.
        let _ = self.asking.answers.set(Answers { own, begins: Box::new(begins) });
    }

    /// What an event means to a thread that asks; `None`: what it means to any.
    pub(super) fn take_request(&self, held: &Tracee, event: Event) -> Option<Resume> {
        // Without anybody who answers the kernel does: it knows of no such operation.
        let answers = self.asking.answers.get()?;
        match event {
            Event::Seccomp { message: REQUESTS } => self.is_asked(held, answers),
            Event::Interrupted => self.requests_of(held, answers),
            _ => None,
        }
    }

    /// A thread is in the midst of its call.
    fn is_asked(&self, held: &Tracee, answers: &Answers) -> Option<Resume> {
        let task = held.thread();
        let (number, arguments) = about_to_call(held).ok()?;
        let request = Request::of(number, &arguments)?;
        let mut registers = held.registers().ok()?;
        // Where it is to be from now on, a coordinator decides.
        let moves = matches!(request, Request::Move(_)) && self.hook.is_tracked(task);
        if let Some(value) = request.answer(answers.own).filter(|_| !moves) {
            // No call, and this is what it has returned.
            registers.orig_rax = u64::MAX;
            registers.rax = value;
            held.set_registers(&registers).ok()?;
            return Some(self.hook.resume(task));
        }
        shadow_stub::step_back(&mut registers, number);
        held.set_registers(&registers).ok()?;
        lock(&self.asking.stepping_back).insert(task, registers.rip);
        Some(Resume::Once(0))
    }

    /// A thread that asks stands before its call.
    fn requests_of(&self, held: &Tracee, answers: &Answers) -> Option<Resume> {
        let task = held.thread();
        let at = lock(&self.asking.stepping_back).remove(&task)?;
        let registers = held.registers().ok()?;
        let to = (registers.rdx as u32).cast_signed();
        // Relaxed: it only has to be another one.
        let number = self.asking.count.fetch_add(1, Ordering::Relaxed);
        let request = ThreadMoveRequest { thread: task, to, at, number };
        lock(&self.asking.last).insert(task, number);
        if !self.hook.move_requested(request) {
            (answers.begins)(request);
        }
        Some(Resume::Stay)
    }

    /// Whether a thread has not asked again since: who was let go on in between has been answered already, or will be.
    pub fn still_asks(&self, request: ThreadMoveRequest) -> bool {
        lock(&self.asking.last).get(&request.thread) == Some(&request.number)
    }

    /// Has a thread that stands before its call make it.
    pub fn ask_again(&self, request: ThreadMoveRequest) {
        self.order_kept(request.thread, |_| Resume::GoOn);
    }

    /// Has a thread be told `value`, if it still stands before the call that it asks by, and goes on as `after` says. One that goes on
    /// already asks again, or has: it stays, for what that comes to.
    pub fn answer(self: &Arc<Self>, request: ThreadMoveRequest, value: i64, after: Resume) {
        let supervisor = Arc::clone(self);
        self.order_kept(request.thread, move |held| {
            if !supervisor.still_asks(request) {
                return Resume::Stay;
            }
            let Ok(mut registers) = held.registers() else { return after };
            let number = libc::SYS_prctl.cast_unsigned();
            let asks = (registers.rip, registers.rax, (registers.rdx as u32).cast_signed());
            if asks == (request.at, number, request.to) {
                shadow_stub::step_over(&mut registers, value);
                // Killed meanwhile, if not.
                let _ = held.set_registers(&registers);
            }
            after
        });
    }
}
