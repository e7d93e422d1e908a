//! Tests of a pager and of its locks. The program is a table whose calls look at the locks.

#![expect(unsafe_code, reason = "a pager wants a userfaultfd, in which nothing is registered")]

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use refit_objects::{Choices, State, TransferError};
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::process::life;
use refit_sys::userfault::{Door, Flags, Userfault};

use super::{Outside, Pager};
use crate::program::budget::create_budget;
use crate::program::factory::{AnonymousCacheFactory, SHARED};
use crate::program::hat::{
    InstallError, Pages, Stopped, TakeOutcome, Translation, TranslationInterface,
};
use crate::program::part::Commons;
use crate::program::region::FaultError;
use crate::program::space::Space;
use crate::store::{PageStore, SwapFile};
use crate::{CacheError, PAGE_SIZE};

const BASE: u64 = 0x10_0000;
const MAPPED: Range<u64> = BASE..BASE + 8 * PAGE_SIZE_U64;

/// The calls, each with whether another batch, a reader of messages and a change of mappings had to
/// wait.
type Calls = Mutex<Vec<(&'static str, [bool; 3])>>;

#[derive(Clone, Default)]
struct Program {
    /// Whether a child shares its pages.
    shared: Arc<AtomicBool>,
    /// The reason that no page can be put in. A ring comes and is heard in each call meanwhile.
    refuses: Arc<Mutex<Option<InstallError>>>,
    pager: Arc<OnceLock<Weak<Pager>>>,
    calls: Arc<Calls>,
}

impl Program {
    fn note(&self, call: &'static str) {
        let Some(pager) = self.pager.get().and_then(Weak::upgrade) else { return };
        let batch = pager.batch.try_lock().is_none();
        let reading = pager.reading.try_lock().is_none();
        let changes = pager.changes.try_write().is_none();
        self.calls.lock().push((call, [batch, reading, changes]));
        if self.refuses.lock().is_some() {
            pager.ring();
            assert!(pager.waiting.heard());
        }
    }
}

impl Translation for Program {
    fn install(&self, _address: u64, _pages: &[u8]) -> Result<(), Stopped> {
        self.note("install");
        self.refuses.lock().map_or(Ok(()), |why| Err(Stopped { done: 0, why }))
    }

    fn wake(&self, _address: u64) {
        self.note("wake");
    }

    fn poison(&self, _address: u64) -> bool {
        self.note("poison");
        self.refuses.lock().is_none()
    }

    fn take(&self, pages: &[u64]) -> Vec<TakeOutcome> {
        self.note("take");
        let shared = self.shared.load(Ordering::Relaxed);
        vec![if shared { TakeOutcome::Shared } else { TakeOutcome::Moved }; pages.len()]
    }

    fn fetch(&self, into: &mut [u8]) -> Option<Vec<bool>> {
        self.note("fetch");
        into.fill(7);
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

#[derive(Default)]
struct Creator {
    /// Pages that the kernel writes to for threads that end.
    needed: Mutex<Vec<u64>>,
    /// The number of times that frames were short.
    short: AtomicU64,
    children: Mutex<Vec<Arc<Pager>>>,
}

impl Outside for Creator {
    fn short(&self) {
        self.short.fetch_add(1, Ordering::Relaxed);
    }

    fn needed(&self, _pager: &Pager) -> Vec<u64> {
        self.needed.lock().clone()
    }

    fn forked(&self, _parent: &Pager, child: Arc<Pager>) {
        self.children.lock().push(child);
    }
}

/// A pager and what surrounds it.
struct Subject {
    pager: Arc<Pager>,
    program: Program,
    creator: Arc<Creator>,
    /// The pages that are out.
    swap_file: File,
}

/// Opens a userfaultfd; `None` where this host does not permit it.
fn open() -> Option<Userfault> {
    // SAFETY: no memory is registered with it, so it serves nothing.
    let opened = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC | Flags::NONBLOCK) };
    opened.inspect_err(|error| println!("skipped: {error}")).ok()
}

/// Returns the pager of a program with [`MAPPED`] and `frames`; `None` if there is no userfaultfd.
fn serve(frames: u64) -> Option<Subject> {
    let userfault = Arc::new(open()?);
    let program = Program::default();
    let swap_file = tempfile::tempfile().expect("a file");
    let pages_in_file = SwapFile::new(swap_file.try_clone().expect("a descriptor"), 1 << 20);
    let commons = Arc::new(Commons {
        budget: create_budget("locks", frames),
        store: PageStore::new(0, Some(pages_in_file)),
        caches: AnonymousCacheFactory::new("locks", SHARED),
    });
    let table = program.clone();
    let choices = Choices::new().with("table", TranslationInterface::rep, move || table.clone());
    let hat = choices.create("locks", "table").expect("it is the one choice");
    let space = Space::new("locks", hat, commons);
    space.map(&MAPPED, "locks");
    let pages = Pages::new(Arc::clone(&userfault));
    let creator = Arc::new(Creator::default());
    let outside: Arc<dyn Outside> = Arc::clone(&creator) as _;
    let pager = Pager::of(space, userfault, pages, outside).expect("descriptors");
    program.pager.set(Arc::downgrade(&pager)).expect("it has none yet");
    Some(Subject { pager, program, creator, swap_file })
}

/// Asserts that `action` waits for the lock behind `guard`, and ends without it.
fn waits<T: Send>(what: &str, guard: impl Sized, action: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let (tell, told) = channel();
        let thread = scope.spawn(move || {
            let _ = tell.send(refit_sys::thread::id());
            action()
        });
        let number = told.recv().expect("it has begun");
        while !thread.is_finished() && life(number).is_some_and(|life| life.state != b'S') {
            thread::yield_now();
        }
        assert!(!thread.is_finished(), "{what} did not wait");
        drop(guard);
        thread.join().expect("no panic")
    })
}

#[test]
fn mappings_do_not_change_while_pages_are_on_their_way() {
    let Some(Subject { pager, program, creator, .. }) = serve(100) else { return };
    let calls = || std::mem::take(&mut *program.calls.lock());
    pager.attempt(BASE).expect("a page of zeros");
    assert_eq!(calls(), [("install", [false, false, true])]);
    assert_eq!(pager.evict_batch(8).expect("the store takes it"), 1);
    assert!(pager.waiting.heard(), "a fault may wait for the page or for its frame");
    // Only pages that move depend on what has been read; only the last call is one of the
    // program's changes itself.
    let [take, fetch, last] = [[true; 3], [true, false, true], [true, false, false]];
    assert_eq!(calls(), [("take", take), ("fetch", fetch), ("clear", last)]);
    // What a child shares stays, and becomes the program's own; nothing is there to be cleared.
    pager.attempt(BASE).expect("the page comes back");
    calls();
    program.shared.store(true, Ordering::Relaxed);
    assert_eq!(pager.evict_batch(8).expect("nothing is stored"), 0);
    assert_eq!(calls(), [("take", take), ("fetch", fetch), ("own", last)]);
    // What the kernel writes to is not even tried.
    creator.needed.lock().push(BASE);
    assert_eq!(pager.evict_batch(8).expect("nothing is stored"), 0);
    assert_eq!(calls(), []);
    pager.dismiss();
}

#[test]
fn each_waits_for_what_it_must_not_overtake() {
    let Some(Subject { pager, .. }) = serve(100) else { return };
    let (batch, reading) = (|| pager.batch.lock(), || pager.reading.lock());
    let (resolving, changing) = (|| pager.changes.read(), || pager.changes.write());
    // Nothing is mapped there, which the kernel is asked about without the lock, too.
    let manage = || pager.manage(&MAPPED, MAPPED.end, "more").expect_err("nothing is mapped");
    waits("a mapping that is to be served", reading(), manage);
    waits("a fault", changing(), || pager.attempt(BASE)).expect("a page of zeros");
    assert_eq!(waits("counting", changing(), || pager.adopt(&[BASE + PAGE_SIZE_U64])), 1);
    waits("a decision", changing(), || pager.settle(|_| Vec::new(), || true));
    waits("another batch", batch(), || pager.evict_batch(1)).expect("the store takes it");
    waits("an eviction", reading(), || pager.evict_batch(1)).expect("the store takes it");
    pager.inherits.store(true, Ordering::Relaxed);
    waits("what a child has", resolving(), || pager.inherit(&[]));
    assert!(!pager.inherits());
    assert!(waits("returning all pages", batch(), || pager.release()));
    waits("the end", resolving(), || pager.dismiss());
}

#[test]
fn a_fault_that_waits_is_tried_again_when_there_is_reason_to() {
    let Some(Subject { pager, program, creator, .. }) = serve(1) else { return };
    // The ring comes between the attempt and the wait.
    *program.refuses.lock() = Some(InstallError::Changing);
    assert!(pager.resolve(BASE), "no one rings when a change has ended");
    assert!(pager.waiting.heard(), "the ring has been missed");
    *program.refuses.lock() = None;
    assert!(!pager.resolve(BASE));
    assert_eq!(creator.short.load(Ordering::Relaxed), 0);
    assert!(!pager.resolve(BASE + PAGE_SIZE_U64), "a frame that becomes free rings");
    assert_eq!(creator.short.load(Ordering::Relaxed), 1);
    assert!(!pager.waiting.heard());
    let mut all = Vec::new();
    pager.waiting.take(&mut all);
    assert_eq!(all, [BASE, BASE + PAGE_SIZE_U64]);
    pager.dismiss();
}

#[test]
fn a_page_that_may_have_been_discarded_stays_until_that_is_known() {
    let Some(Subject { pager, .. }) = serve(2) else { return };
    let evict = || pager.evict_batch(8).expect("the store takes it");
    let taken = || pager.space.commons().budget.stats().taken;
    for address in [BASE, BASE + PAGE_SIZE_U64] {
        pager.attempt(address).expect("a page of zeros");
    }
    pager.space.remove(&MAPPED);
    assert_eq!((evict(), taken()), (0, 2));
    let first_is_there = |all: &[u64]| all.iter().map(|&one| one == BASE).collect();
    pager.settle(first_is_there, || false);
    assert_eq!((evict(), taken()), (0, 1), "a thread may be about to discard the page");
    pager.settle(first_is_there, || true);
    assert_eq!((evict(), taken()), (1, 0));
    pager.dismiss();
}

#[test]
fn an_access_to_a_lost_page_is_an_error_and_the_page_cannot_be_released() {
    let Some(Subject { pager, program, swap_file, .. }) = serve(2) else { return };
    pager.attempt(BASE).expect("a page of zeros");
    assert_eq!(pager.evict_batch(8).expect("the store takes it"), 1);
    swap_file.set_len(0).expect("it can be cut");
    *program.refuses.lock() = Some(InstallError::Changing);
    assert_eq!((pager.attempt(BASE), pager.lost()), (Err(FaultError::Changing), 0));
    *program.refuses.lock() = None;
    assert_eq!((pager.attempt(BASE), pager.lost()), (Ok(()), 1));
    assert!(!pager.release());
    pager.dismiss();
}

#[test]
fn no_more_pages_leave_while_the_store_has_not_accepted_the_last_ones() {
    let Some(Subject { pager, .. }) = serve(4) else { return };
    for page in 0..4 {
        pager.attempt(BASE + page * PAGE_SIZE_U64).expect("a page of zeros");
    }
    let store = &pager.space.commons().store;
    let state = || (store.stats().compressed_bytes, pager.space.commons().budget.stats().taken);
    // The swap file has no room.
    let mut others = Vec::new();
    while let Ok(one) = store.put(&[1; PAGE_SIZE]) {
        others.extend(one);
    }
    for _ in 0..3 {
        let refused = pager.evict_batch(2);
        assert!(matches!(refused, Err(CacheError::Host(libc::ENOSPC))), "{refused:?}");
        assert_eq!(state(), (2 * PAGE_SIZE_U64, 2));
    }
    drop(others);
    assert_eq!(pager.evict_batch(2).expect("the store takes it"), 2);
    assert_eq!((state(), store.stats().in_file), ((0, 0), 4));
    pager.dismiss();
}

#[test]
fn a_region_grows_by_what_is_accessed_and_the_thread_looks_again_where_nothing_is_mapped() {
    let Some(Subject { pager, program, .. }) = serve(2) else { return };
    let last_call = || program.calls.lock().pop().map(|(call, _)| call);
    assert_eq!((pager.attempt(MAPPED.end), last_call()), (Ok(()), Some("install")));
    *program.refuses.lock() = Some(InstallError::Unmapped);
    assert_eq!((pager.attempt(BASE), last_call()), (Ok(()), Some("wake")));
    assert!(!pager.ended.load(Ordering::Relaxed));
    *program.refuses.lock() = Some(InstallError::Gone);
    assert_eq!((pager.attempt(BASE), last_call()), (Ok(()), Some("install")));
    assert!(pager.ended.load(Ordering::Relaxed));
    pager.dismiss();
}

#[test]
fn a_child_is_asked_what_it_has_inherited_if_anything_was_out() {
    let Some(Subject { pager, creator, .. }) = serve(2) else { return };
    pager.attempt(BASE).expect("a page of zeros");
    pager.fork(open().expect("as before")).expect("descriptors");
    assert_eq!(pager.evict_batch(8).expect("the store takes it"), 1);
    pager.fork(open().expect("as before")).expect("descriptors");
    let children = std::mem::take(&mut *creator.children.lock());
    let inherits: Vec<_> = children.iter().map(|child| child.inherits()).collect();
    assert_eq!(inherits, [false, true]);
    children.iter().chain([&pager]).for_each(|one| one.dismiss());
}

#[test]
fn serving_ends_when_there_is_nothing_to_be_heard_from_any_more() {
    let Some(Subject { pager, .. }) = serve(1) else { return };
    // The kernel refuses to read from this userfaultfd, as from that of a program that has ended.
    let server = thread::spawn({
        let pager = Arc::clone(&pager);
        move || pager.serve()
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    while !server.is_finished() && Instant::now() < deadline {
        // Polls; nothing depends on the interval.
        thread::sleep(Duration::from_millis(1));
    }
    let ended = server.is_finished();
    pager.end();
    server.join().expect("no panic");
    assert!(ended);
    pager.dismiss();
}
