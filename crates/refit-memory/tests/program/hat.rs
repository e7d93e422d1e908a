//! Tests of a program's pages, which the kernel puts into memory of this process.

use std::sync::Arc;
use std::thread;

use refit_memory::program::{InstallError, Pages, Stopped, TranslationInterface, TranslationRef};
use refit_objects::{Interface, destroy};
use refit_sys::userfault::{CopyModes, Door, Features, Flags, Message, Modes, Userfault};

use crate::common::{PAGE_SIZE_U64, page_of, until};
use crate::memory::{Memory, join};

/// Memory whose messages nobody reads but the test.
struct Subject {
    memory: Memory,
    userfault: Arc<Userfault>,
    hat: TranslationRef,
}

impl Subject {
    /// Registers `pages` of memory; `None` where this host does not permit it.
    fn new(pages: u64) -> Option<Self> {
        // SAFETY: only `Memory` is registered, to which nobody holds a reference.
        let opened = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC | Flags::NONBLOCK) };
        let opened = opened.inspect_err(|error| println!("skipped: userfaultfd: {error}"));
        let userfault = Arc::new(opened.ok()?);
        userfault.agree(Features::EVENT_REMOVE).expect("any kernel that can be served has it");
        let memory = Memory::new(pages);
        userfault.register(memory.all(), Modes::MISSING).expect("anonymous memory");
        let hat = Pages::new(Arc::clone(&userfault)).create("test");
        Some(Self { memory, userfault, hat })
    }

    fn address(&self, page: u64) -> u64 {
        self.memory.start + page * PAGE_SIZE_U64
    }

    /// Puts pages in that contain 2, 4, 6, ….
    fn install(&self, page: u64, pages: u64) -> Result<(), Stopped> {
        let contents: Vec<u8> = (1..=pages).flat_map(|one| page_of(2 * one)).collect();
        self.hat.install(self.address(page), &contents)
    }

    fn message(&self) -> Message {
        let mut messages = Vec::new();
        until("a message", || self.userfault.read_some(&mut messages, 1).is_ok_and(|n| n == 1));
        messages.remove(0)
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        destroy(TranslationInterface::id(self.hat));
    }
}

#[test]
fn pages_are_put_in_up_to_the_one_that_cannot_be() {
    let Some(subject) = Subject::new(8) else { return };
    let memory = subject.memory;
    assert_eq!(subject.install(2, 1), Ok(()));
    assert_eq!(subject.install(0, 4), Err(Stopped { done: 2, why: InstallError::Present }));
    assert_eq!(subject.install(3, 1), Ok(()));
    memory.cover(6..8);
    assert_eq!(subject.install(4, 4), Err(Stopped { done: 2, why: InstallError::Unmapped }));
    let found: Vec<u64> = (0..6).map(|page| memory.get(page)).collect();
    assert_eq!(found, [2, 4, 2, 2, 2, 4]);
}

#[test]
fn a_thread_that_waits_for_a_page_that_is_there_goes_on() {
    let Some(subject) = Subject::new(1) else { return };
    let memory = subject.memory;
    let reader = thread::spawn(move || assert_eq!(memory.get(0), 7));
    assert!(matches!(subject.message(), Message::Pagefault { .. }));
    let quietly = CopyModes::DONT_WAKE;
    subject.userfault.copy(memory.start, &page_of(7), quietly).expect("there is none");
    assert_eq!(subject.install(0, 1), Err(Stopped { done: 0, why: InstallError::Present }));
    join(reader);
}

#[test]
fn nothing_is_put_in_while_mappings_change() {
    let Some(subject) = Subject::new(4) else { return };
    let memory = subject.memory;
    let discards = thread::spawn(move || memory.advise(3..4, libc::MADV_DONTNEED));
    // From then on the kernel refuses, until the message has been read.
    let changing = Err(Stopped { done: 0, why: InstallError::Changing });
    until("the change", || subject.install(0, 1) == changing);
    assert!(!subject.hat.poison(subject.address(1)), "not yet");
    assert!(matches!(subject.message(), Message::Remove(_)));
    join(discards);
    assert_eq!(subject.install(1, 1), Ok(()));
    assert!(subject.hat.poison(subject.address(2)));
}
