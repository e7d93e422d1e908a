//! The slots of the requests that are being executed, so that none is executed twice.
//!
//! When a server has ended, the kernel sends the requests that were not answered again
//! (`FUSE_NOTIFY_RESEND`). Such a request may have been executed already, in part or completely.
//! Its slot says what it has done:
//!
//! * **Counts.** What a request adds to the counts of inodes is logged in its slot. When it comes
//!   again, these counts are taken back first, and it counts anew. A request that does not come
//!   again was answered, and its counts are right.
//! * **Effects on the host** that cannot be repeated, as the removal of a name. Before such a
//!   change the slot gets the state that the change replaces ([`Effect`]). When the request comes
//!   again and finds that state no more, the change was made, and is not made again. (Between the
//!   two, nobody changes these names through the mount: the kernel keeps them locked until the
//!   reply.)
//!
//! * **Crashes.** How often a server has crashed while it executed the request. See
//!   [`Requests`](crate::requests::Requests).
//!
//! # Why a count is right whatever instant the server ends at
//!
//! A count is a word of a record that one thread at a time changes, and one word of the slot that
//! says what was logged. [`Record::count`] stores in this order: both words' values before
//! (`BEFORE`, `LOGGED_BEFORE`), the step (`STEP`), the new value, the new log word, no step. If the
//! server ends while the step is set, the thread held the lock of the count, so no other thread has
//! changed it since. If the log word is still the one before, the value before is restored, as if
//! the change had not begun; otherwise both words have the change. If it ends with no step set,
//! either both have it or neither does. Taking back is the same in the other direction. Each store
//! is a release and the reader comes after the end of the writer, so it sees a prefix of the
//! stores.

use super::Image;
use super::layout::SLOT_WORDS as WORDS;
use super::record::{Count, Record, Unfinished, Uses};
use crate::values::HostKey;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The words of a slot.
const UNIQUE: usize = 0;
const STEP: usize = 1;
const RECORD: usize = 2;
const BEFORE: usize = 3;
const COUNTED: usize = 4;
const USED: usize = 5;
const USED_BY: usize = 6;
const OPERATION: usize = 7;
const STATE: usize = 8;
const LOGGED_BEFORE: usize = 14;
/// Twice the number of crashes; the lowest bit says that the request has not come again yet.
const CRASHES: usize = 15;
const LOG: usize = 16;
/// The maximum number of look-ups that a request logs.
const MAX_LOGGED: usize = WORDS - LOG;

/// The steps: a count is being changed.
const STEP_LOOKUPS: u64 = 1;
const STEP_USES: u64 = 2;

/// The bit by which the kernel marks a request that it sends again (`FUSE_UNIQUE_RESEND`).
pub(crate) const RESENT: u64 = 1 << 63;

/// A change of the host that must not be made twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Operation {
    /// A name is created: `create`, `mknod`, `mkdir`, `symlink`, `link`.
    Create = 1,
    /// A name is removed: `unlink`, `rmdir`.
    Remove,
    /// A name is replaced by another: `rename`.
    Rename,
    /// An extended attribute is set or removed.
    Xattr,
}

/// An unfinished change of the host: the operation, and the state before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) operation: Operation,
    /// The inodes that the names led to, the source of a rename first.
    pub(crate) before: [Option<HostKey>; 2],
}

impl Effect {
    /// Returns the effect of an operation before which a name led to `before`.
    pub(crate) fn new(operation: Operation, before: Option<HostKey>) -> Self {
        Self { operation, before: [before, None] }
    }

    fn read(words: &[AtomicU64; WORDS]) -> Option<Self> {
        let operation = match words[OPERATION].load(Acquire) {
            1 => Operation::Create,
            2 => Operation::Remove,
            3 => Operation::Rename,
            4 => Operation::Xattr,
            _ => return None,
        };
        let key = |word: usize| {
            let [there, device, number] = [0, 1, 2].map(|n| words[word + n].load(Relaxed));
            (there != 0).then_some(HostKey { device, number })
        };
        Some(Self { operation, before: [key(STATE), key(STATE + 3)] })
    }

    fn write(&self, words: &[AtomicU64; WORDS]) {
        for (word, key) in [STATE, STATE + 3].into_iter().zip(self.before) {
            let HostKey { device, number } = key.unwrap_or(HostKey { device: 0, number: 0 });
            for (n, value) in [key.is_some().into(), device, number].into_iter().enumerate() {
                words[word + n].store(value, Relaxed);
            }
        }
        words[OPERATION].store(self.operation as u64, Release);
    }
}

/// The slot of a request that a thread executes.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    image: Arc<Image>,
    index: u32,
    /// Whether the request was executed before, by a server that has ended.
    is_repeated: bool,
    /// The change that the request may have made then.
    repeated: Option<Effect>,
}

thread_local! {
    /// The slot of the request that this thread executes.
    static CURRENT: Cell<Option<Slot>> = const { Cell::new(None) };
}

fn with_current<T>(act: impl FnOnce(&Slot) -> T) -> Option<T> {
    let slot = CURRENT.take()?;
    let done = act(&slot);
    CURRENT.set(Some(slot));
    Some(done)
}

/// Makes `slot` the slot of this thread's request. Returns the one before.
pub(crate) fn set_current(slot: Option<Slot>) -> Option<Slot> {
    CURRENT.replace(slot)
}

/// Returns whether this thread's request was executed before, by a server that has ended.
pub(crate) fn is_repeated() -> bool {
    with_current(|slot| slot.is_repeated).unwrap_or(false)
}

/// Records that this thread's request is about to change the host. Returns what was recorded when
/// the request was executed before, if it was.
pub(crate) fn about_to(effect: Effect) -> Option<Effect> {
    with_current(|slot| {
        if slot.repeated.is_some() {
            return slot.repeated;
        }
        effect.write(slot.words());
        None
    })?
}

impl Record {
    /// Changes a count of the inode on behalf of the request that this thread executes, if it does;
    /// see the module documentation. The inode's shard must be locked.
    pub(crate) fn count(&self, count: Count) {
        let counted = self.counted(count);
        let before = counted.load(Relaxed);
        let logged = with_current(|slot| slot.count(self.index(), count, before, counted));
        if logged.is_none() {
            counted.store(count.apply(before), Release);
        }
    }
}

impl Slot {
    pub(crate) fn new(image: &Arc<Image>, index: u32) -> Self {
        Self { image: Arc::clone(image), index, is_repeated: false, repeated: None }
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    fn words(&self) -> &[AtomicU64; WORDS] {
        self.image.slot_words(self.index)
    }

    fn count(&self, record: u32, count: Count, before: u64, counted: &AtomicU64) {
        let words = self.words();
        let (step, logged) = match count {
            Count::Lookups(_) => (STEP_LOOKUPS, COUNTED),
            Count::Opened(_) | Count::Closed(_) => (STEP_USES, USED_BY),
        };
        put(&words[LOGGED_BEFORE], words[logged].load(Relaxed));
        put(&words[BEFORE], before);
        put(&words[RECORD], record.into());
        put(&words[STEP], step);
        put(counted, count.apply(before));
        match count {
            Count::Lookups(by) => self.log(record, by),
            Count::Opened(uses) => self.log_use(record, uses.word()),
            Count::Closed(uses) => self.log_use(record, uses.word().wrapping_neg()),
        }
        put(&words[STEP], 0);
    }

    /// Logs a look-up of a record, or removes the last one from the log.
    fn log(&self, record: u32, by: i64) {
        let words = self.words();
        let counted = words[COUNTED].load(Relaxed);
        if by < 0 {
            put(&words[COUNTED], counted.saturating_sub(1));
        } else if (counted as usize) < MAX_LOGGED {
            put(&words[LOG + counted as usize], record.into());
            put(&words[COUNTED], counted + 1);
        }
    }

    /// Makes this the slot of the request `unique`.
    pub(crate) fn begin(&self, unique: u64) {
        self.words()[UNIQUE].store(unique, Release);
    }

    /// Adds an open or a close of a record to the log. A request makes one, and may take it back.
    fn log_use(&self, record: u32, by: u64) {
        let words = self.words();
        put(&words[USED], u64::from(record) + 1);
        put(&words[USED_BY], words[USED_BY].load(Relaxed).wrapping_add(by));
    }

    /// Returns whether the request can log another look-up.
    pub(crate) fn has_room(&self) -> bool {
        (self.words()[COUNTED].load(Relaxed) as usize) < MAX_LOGGED
    }

    /// Ends the request, which was answered.
    pub(crate) fn end(&mut self) {
        self.is_repeated = false;
        self.repeated = None;
        self.clear();
    }

    /// Removes what a request has left.
    pub(crate) fn clear(&self) {
        let words = self.words();
        // The request ends first: what remains after that belongs to none.
        words[UNIQUE].store(0, Release);
        for word in [COUNTED, USED, USED_BY, OPERATION, CRASHES] {
            if words[word].load(Relaxed) != 0 {
                words[word].store(0, Relaxed);
            }
        }
    }

    /// Returns whether the slot is one of this image.
    pub(crate) fn is_in(&self, image: &Arc<Image>) -> bool {
        Arc::ptr_eq(&self.image, image)
    }

    /// Records that servers have crashed while they executed the request, and that it is executed
    /// now.
    pub(crate) fn set_crashes(&self, crashes: u64) {
        self.words()[CRASHES].store(crashes << 1, Release);
    }

    /// Prepares to execute the request once more: returns the records whose look-ups it has counted
    /// and the use that it has logged, which the caller takes back with [`Record::count`], and
    /// remembers the change that it may have made.
    pub(crate) fn repeat(&mut self) -> Logged {
        self.is_repeated = true;
        self.repeated = Effect::read(self.words());
        logged(self.words())
    }
}

/// Stores a word of a slot or a count, one step of [`Record::count`].
fn put(word: &AtomicU64, value: u64) {
    word.store(value, Release);
    #[cfg(test)]
    AFTER_STORE.with_borrow(|call| call.iter().for_each(|call| call()));
}

#[cfg(test)]
thread_local! {
    static AFTER_STORE: std::cell::RefCell<Option<Box<dyn Fn()>>> =
        const { std::cell::RefCell::new(None) };
}

/// Calls `call` after each step of [`Record::count`] on this thread.
#[cfg(test)]
pub(super) fn after_each_store(call: Option<Box<dyn Fn()>>) {
    AFTER_STORE.set(call);
}

/// Returns whether the current request can log another look-up; true if there is none.
pub(crate) fn has_room() -> bool {
    with_current(Slot::has_room).unwrap_or(true)
}

/// The changes that a request has made to the counts of inodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Logged {
    /// The records that it has looked up, in order.
    pub(crate) looked_up: Vec<u32>,
    /// The record whose file it has opened or closed, and by what.
    pub(crate) used: Option<(u32, Uses)>,
}

pub(super) fn logged(words: &[AtomicU64; WORDS]) -> Logged {
    let get = |word: usize| words[word].load(Acquire);
    let counted = (get(COUNTED) as usize).min(MAX_LOGGED);
    let looked_up = (LOG..LOG + counted).map(|word| get(word) as u32).collect();
    let used = get(USED).checked_sub(1).filter(|_| get(USED_BY) != 0);
    Logged { looked_up, used: used.map(|record| (record as u32, Uses::from_word(get(USED_BY)))) }
}

/// A request that was being executed when a server ended, from its image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnfinishedRequest {
    pub(crate) unique: u64,
    words: Box<[u64]>,
}

impl Unfinished {
    /// Reads the count that the request in a slot was changing.
    pub(crate) fn read(image: &Image, slot: u32) -> Option<Self> {
        let words = image.slot_words(slot);
        let get = |word: usize| words[word].load(Acquire);
        let (record, before) = (get(RECORD) as u32, get(BEFORE));
        let not_logged = |word: usize| get(word) == get(LOGGED_BEFORE);
        match get(STEP) {
            STEP_LOOKUPS if not_logged(COUNTED) => Some(Self::Lookups { record, before }),
            STEP_USES if not_logged(USED_BY) => Some(Self::Uses { record, before }),
            _ => None,
        }
    }
}

impl UnfinishedRequest {
    /// Reads the request in a slot.
    pub(crate) fn read(image: &Image, slot: u32) -> Option<Self> {
        let words = image.slot_words(slot);
        let get = |word: usize| words[word].load(Acquire);
        let unique = get(UNIQUE);
        let copy = || (0..LOG + (get(COUNTED) as usize).min(MAX_LOGGED)).map(get).collect();
        (unique != 0).then(|| Self { unique, words: copy() })
    }

    /// Returns in how many executions of the request a server has crashed, if the last one has.
    pub(crate) fn crashes(&self, last_crashed: bool) -> u64 {
        let word = self.words[CRASHES];
        let was_executed = word & 1 == 0;
        (word >> 1) + u64::from(last_crashed && was_executed)
    }

    /// Puts the request into a slot of the image that continues the one that it was read from.
    pub(crate) fn continue_in(&self, image: &Image, slot: u32, crashes: u64) {
        let words = image.slot_words(slot);
        for (word, value) in words.iter().zip(&self.words).skip(UNIQUE + 1) {
            word.store(*value, Relaxed);
        }
        words[STEP].store(0, Relaxed);
        words[CRASHES].store(crashes << 1 | 1, Relaxed);
        words[UNIQUE].store(self.unique, Release);
    }
}
