//! Serving the faults of a program: hearing of them, and resolving them.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Instant;

use refit_sys::adaptive_spin::{self, AdaptiveSpin};
use refit_sys::placement;
use refit_sys::userfault::{Message, Userfault};
use rustix::event::{PollFd, PollFlags, poll};

use super::crew::{Crew, Post, Seen, Shift};
use super::{Pager, lock};
use crate::events;
use crate::program::hat::Pages;
use crate::program::region::FaultError;

/// Nanoseconds until a fault is tried again that met a change which has been heard, but not ended yet.
const SOON: i64 = 50_000;

/// What has come in and has not been seen to yet.
#[derive(Default)]
struct News {
    messages: Vec<Message>,
    /// Where threads wait, and one that does.
    faults: Vec<u64>,
    thread: Option<u32>,
    seen: Seen,
    /// The program is, or its memory.
    gone: bool,
    /// There is something to be tried again, whoever rings.
    soon: bool,
}

impl Pager {
    /// Serves until the program has ended or [`end`](Self::end) is called; with other threads, as long as that helps.
    pub fn serve(&self) {
        let crew = Crew::default();
        thread::scope(|scope| {
            let helper = || {
                let help = || self.help(&crew);
                let named = thread::Builder::new().name("refit-pager".to_owned());
                // Where there can be no other thread, one does it.
                named.spawn_scoped(scope, help).is_ok()
            };
            let _shift = Shift(&crew);
            self.lead(&crew, helper);
        });
    }

    fn lead(&self, crew: &Crew, helper: impl Fn() -> bool) {
        refit_sys::thread::go_before_others();
        let spin = AdaptiveSpin::default();
        let (mut news, mut post) = (News::default(), None);
        // Pairs with `end`.
        while !self.ended.load(Ordering::Acquire) {
            if !spin.wait_for(|| self.glance(&mut news, crew)) {
                news.seen.forget();
                let asleep_since = Instant::now();
                self.sleep(news.soon);
                adaptive_spin::woken(asleep_since);
                self.look(&mut news, crew, lock(&self.reading));
            }
            if news.gone {
                break;
            }
            let thread = news.thread.take();
            take_post(crew, thread, &mut post);
            self.attend(&mut news, thread);
            if let Some(threads) = thread.and_then(|thread| news.seen.note(thread)) {
                crew.called_by(threads, &helper);
            }
        }
    }

    fn help(&self, crew: &Crew) {
        refit_sys::thread::go_before_others();
        let mut news = News::default();
        loop {
            let (mut resolved, mut post) = (0, None);
            loop {
                // Pairs with `end`.
                if self.ended.load(Ordering::Acquire) {
                    return;
                }
                if !adaptive_spin::a_moment(|| self.glance(&mut news, crew)) {
                    if !news.soon {
                        break;
                    }
                    self.sleep(true);
                }
                if news.gone {
                    self.give_up();
                    return;
                }
                resolved += news.faults.len();
                let thread = news.thread.take();
                take_post(crew, thread, &mut post);
                self.attend(&mut news, thread);
            }
            drop(post);
            if !crew.rest(resolved) {
                return;
            }
        }
    }

    /// Tries what has come in, and what waits; the last fault was of this thread.
    fn attend(&self, news: &mut News, thread: Option<u32>) {
        self.waiting.take(&mut news.faults);
        // A child that faults before it has run an instruction: the kernel writes to its memory.
        if !news.faults.is_empty() {
            self.find_inherited(thread);
        }
        news.soon = false;
        for address in news.faults.drain(..) {
            news.soon |= self.resolve(address);
        }
        self.foresee();
    }

    /// As [`look`](Self::look), unless somebody else is looking.
    fn glance(&self, news: &mut News, crew: &Crew) -> bool {
        let reading = match self.reading.try_lock() {
            Ok(reading) => reading,
            Err(TryLockError::Poisoned(reading)) => reading.into_inner(),
            Err(TryLockError::WouldBlock) => return self.waiting.heard(),
        };
        self.look(news, crew, reading)
    }

    /// Takes what has come in; whether anything has.
    fn look(&self, news: &mut News, crew: &Crew, reading: MutexGuard<'_, ()>) -> bool {
        let rung = self.waiting.heard();
        let heard = self.hear(news, crew).unwrap_or_else(|_| {
            news.gone = true;
            true
        });
        drop(reading);
        rung || heard
    }

    /// Sleeps until there is something to look at; `soon`: for a moment at most.
    fn sleep(&self, soon: bool) {
        let limit = soon.then_some(rustix::time::Timespec { tv_sec: 0, tv_nsec: SOON });
        let mut asked = [
            PollFd::from_borrowed_fd(self.userfault.as_fd(), PollFlags::IN),
            PollFd::new(&self.bell, PollFlags::IN),
        ];
        // A signal is as good as a ring.
        let _ = poll(&mut asked, limit.as_ref());
        if asked[1].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// Has pages evicted before the last frame is gone.
    fn foresee(&self) {
        let stats = self.space.commons().budget.stats();
        if stats.free() < stats.reserve() / 2 {
            self.outside.short();
        }
    }

    /// Reads what has happened, and acts on what changes mappings; whether anything has. Faults are added to `news`.
    fn hear(&self, news: &mut News, crew: &Crew) -> io::Result<bool> {
        // What one of several takes, the others cannot.
        let most = if crew.others() > 0 { 1 } else { Userfault::AT_ONCE };
        match self.userfault.read_some(&mut news.messages, most) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let is_fault = |message: &Message| matches!(message, Message::Pagefault { .. });
        let any = !news.messages.is_empty();
        let changes = !news.messages.iter().all(is_fault);
        let _changes =
            changes.then(|| self.changes.write().unwrap_or_else(PoisonError::into_inner));
        for message in news.messages.drain(..) {
            match message {
                Message::Pagefault { address, thread, .. } => {
                    news.faults.push(address);
                    news.thread = thread;
                }
                Message::Unmap(range) => self.space.unmap(&range),
                Message::Remove(range) => self.space.remove(&range),
                Message::Remap { from, to, length } => {
                    self.space.remap(&(from..from + length), to);
                }
                Message::Fork(child) => self.fork(child)?,
                Message::Other(_) => {}
            }
        }
        Ok(any)
    }

    fn fork(&self, child: Userfault) -> io::Result<()> {
        if self.inherits()
            && let Some(inherited) = self.outside.inherited(self, None)
        {
            self.inherit_now(&inherited);
        }
        let number = self.children.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("{}.{number}", self.space.name());
        let userfault = Arc::new(child);
        let pages = Pages::new(Arc::clone(&userfault));
        let hat = pages.create(name.as_str());
        let space = self.space.fork(name, hat);
        let child = Self::of(space, userfault, pages, Arc::clone(&self.outside))?;
        // Whatever is in, the child has as the kernel gave it.
        child.inherits.store(child.space.anything_is_out(), Ordering::Release);
        self.outside.forked(self, child);
        Ok(())
    }

    /// Resolves a fault, or has it wait; whether it is to be tried again soon, whoever rings.
    fn resolve(&self, address: u64) -> bool {
        let rings = self.waiting.rings();
        let Err(why) = self.attempt(address) else { return false };
        self.wait(address, rings);
        if why == FaultError::NoFrame {
            self.outside.short();
        }
        why != FaultError::NoFrame
    }

    /// Resolves a fault, if only by telling who waits that there is nothing.
    ///
    /// # Errors
    /// What passes: no frame is free, the page is on its way, the program changes its mappings.
    pub(super) fn attempt(&self, address: u64) -> Result<(), FaultError> {
        let _fault = events::PROGRAM_FAULT.span([address, 0]);
        let _changes = self.unchanged();
        let mut outcome = self.process.fault(address);
        if outcome == Err(FaultError::Unknown) {
            self.space.grow(address);
            outcome = self.process.fault(address);
        }
        match outcome {
            Err(FaultError::Unknown | FaultError::Unmapped) => self.space.hat().wake(address),
            Err(FaultError::Lost(_)) => {
                // Before it is told who waits, who may end at once.
                self.lost.fetch_add(1, Ordering::Relaxed);
                if !self.space.hat().poison(address) {
                    self.lost.fetch_sub(1, Ordering::Relaxed);
                    return Err(FaultError::Changing);
                }
            }
            Err(FaultError::Gone) => self.give_up(),
            outcome => return outcome,
        }
        Ok(())
    }

    /// A fault is tried again at the next ring after so many.
    fn wait(&self, address: u64, rings: u64) {
        if self.waiting.add(address, rings) {
            self.ring();
        }
    }

    /// There is nobody left to be served.
    fn give_up(&self) {
        // Pairs with the loops of `lead` and `help`.
        self.ended.store(true, Ordering::Release);
        self.ring();
    }
}

/// Keeps near the program's threads: alone wherever they go, as one of several where a thread waits now.
fn take_post<'a>(crew: &'a Crew, thread: Option<u32>, post: &mut Option<Post<'a>>) {
    match thread {
        _ if crew.others() == 0 && post.is_some() => *post = None,
        Some(thread) if crew.others() == 0 => placement::follow(thread),
        Some(thread) if post.is_none() => *post = Some(Post::near(crew, thread)),
        _ => {}
    }
}
