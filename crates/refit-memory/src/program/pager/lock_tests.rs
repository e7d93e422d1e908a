//! Tests of the locks that a pager holds while it has pages put into a program or taken out of it.
//!
//! The program is a table whose calls look at the pager's locks.

#![expect(unsafe_code, reason = "a pager wants a userfaultfd, in which nothing is registered")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use refit_objects::{Choices, State, TransferError};
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::userfault::{Door, Flags, Userfault};

use super::{Outside, Pager};
use crate::program::budget::create_budget;
use crate::program::factory::{AnonymousCacheFactory, SHARED};
use crate::program::hat::{Pages, Stopped, TakeOutcome, Translation, TranslationInterface};
use crate::program::part::Commons;
use crate::program::space::Space;
use crate::store::PageStore;

const BASE: u64 = 0x10_0000;

/// The calls, each with whether a reader of messages and a change of mappings had to wait.
type Calls = Mutex<Vec<(&'static str, bool, bool)>>;

#[derive(Clone, Default)]
struct Program {
    /// Whether a child shares its pages.
    shared: Arc<AtomicBool>,
    pager: Arc<OnceLock<Weak<Pager>>>,
    calls: Arc<Calls>,
}

impl Program {
    fn note(&self, call: &'static str) {
        let Some(pager) = self.pager.get().and_then(Weak::upgrade) else { return };
        let reading = pager.reading.try_lock().is_none();
        let changes = pager.changes.try_write().is_none();
        self.calls.lock().push((call, reading, changes));
    }
}

impl Translation for Program {
    fn install(&self, _address: u64, _pages: &[u8]) -> Result<(), Stopped> {
        self.note("install");
        Ok(())
    }

    fn wake(&self, _address: u64) {}

    fn poison(&self, _address: u64) -> bool {
        true
    }

    fn take(&self, pages: &[u64]) -> Vec<TakeOutcome> {
        self.note("take");
        let shared = self.shared.load(Ordering::Relaxed);
        vec![if shared { TakeOutcome::Shared } else { TakeOutcome::Moved }; pages.len()]
    }

    fn fetch(&self, into: &mut [u8]) -> Option<Vec<bool>> {
        self.note("fetch");
        let moved = !self.shared.load(Ordering::Relaxed);
        Some(vec![moved; into.len() / crate::PAGE_SIZE])
    }

    fn own(&self, _pages: &[u64]) {
        self.note("own");
    }

    fn clear(&self) {
        self.note("clear");
    }
}

impl State<()> for Program {
    const PROMPT: bool = true;

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}

/// Pages that the kernel writes to for threads that end.
struct Needed(Mutex<Vec<u64>>);

impl Outside for Needed {
    fn short(&self) {}

    fn needed(&self, _pager: &Pager) -> Vec<u64> {
        self.0.lock().clone()
    }

    fn forked(&self, _parent: &Pager, _child: Arc<Pager>) {}
}

#[test]
fn mappings_do_not_change_while_pages_are_on_their_way() {
    // SAFETY: no memory is registered with it, so it serves nothing.
    let opened = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC | Flags::NONBLOCK) };
    let Ok(userfault) = opened.map(Arc::new).inspect_err(|e| println!("skipped: {e}")) else {
        return;
    };
    let program = Program::default();
    let commons = Arc::new(Commons {
        budget: create_budget("locks", 100),
        store: PageStore::new(1 << 20, None),
        caches: AnonymousCacheFactory::new("locks", SHARED),
    });
    let table = program.clone();
    let choices = Choices::new().with("table", TranslationInterface::rep, move || table.clone());
    let hat = choices.create("locks", "table").expect("it is the one choice");
    let space = Space::new("locks", hat, commons);
    space.map(&(BASE..BASE + 8 * PAGE_SIZE_U64), "locks");
    let pages = Pages::new(Arc::clone(&userfault));
    let needed = Arc::new(Needed(Mutex::default()));
    let outside: Arc<dyn Outside> = Arc::clone(&needed) as _;
    let pager = Pager::of(space, userfault, pages, outside).expect("descriptors");
    program.pager.set(Arc::downgrade(&pager)).expect("it has none yet");

    pager.attempt(BASE).expect("a page of zeros");
    assert_eq!(std::mem::take(&mut *program.calls.lock()), [("install", false, true)]);
    assert_eq!(pager.evict_batch(8).expect("the store takes it"), 1);
    // Only pages that move depend on what has been read; only the last call is one of the
    // program's changes itself.
    assert_eq!(
        std::mem::take(&mut *program.calls.lock()),
        [("take", true, true), ("fetch", false, true), ("clear", false, false)]
    );
    // What a child shares stays, and becomes the program's own; nothing is there to be cleared.
    pager.attempt(BASE).expect("the page comes back");
    program.calls.lock().clear();
    program.shared.store(true, Ordering::Relaxed);
    assert_eq!(pager.evict_batch(8).expect("nothing is stored"), 0);
    assert_eq!(
        std::mem::take(&mut *program.calls.lock()),
        [("take", true, true), ("fetch", false, true), ("own", false, false)]
    );
    // What the kernel writes to is not even tried.
    needed.0.lock().push(BASE);
    assert_eq!(pager.evict_batch(8).expect("nothing is stored"), 0);
    assert_eq!(*program.calls.lock(), []);
    pager.dismiss();
}
