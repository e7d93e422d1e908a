//! Instruments: [`Event`], [`Counter`] and [`Timer`], which are statics of the program (Kohr 1994,
//! §3.2).
//!
//! ```
//! use refit_instruments::definition::FieldKind;
//! use refit_instruments::instrument::{Counter, Event};
//!
//! static GET: Event = Event::new("kv", "Store::get").fields(&[("key", FieldKind::U64)]);
//! static MISSES: Counter = Counter::new("kv", "misses");
//!
//! fn get(key: u64) {
//!     let _span = GET.span([key, 0]);
//!     MISSES.add(1);
//! }
//! # get(1);
//! ```
//!
//! Without a session an instrument is suspended, at the cost of three loads and a branch. Its first
//! use registers it with this process and with its session, if there is one; every later [`attach`]
//! finds it.
//!
//! *Inherited and customised instruments* (§3.1): an instrument of an interface applies to every
//! implementation, since all of them use the same static. An implementation that adds an instrument
//! of its own declares it with `inherits(&THAT)`: it is then suspended whenever the inherited one
//! is, and can also be suspended individually.
//!
//! Recording is safe in signal handlers. The first use of an instrument while there is a session is
//! not; call [`Instrument::register`] before.

mod event;
mod manager;
mod total;
mod trigger;

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use parking_lot::Mutex;
use refit_sys::latest::Latest;

pub use event::{Event, Span};
pub use manager::{Manager, System};
pub use total::{Counter, Running, Timer};
pub use trigger::{Act, Chosen, Observed, Trigger, When};

use crate::definition::{FieldKind, Role};
use crate::follow::follow;
use crate::session::{self, Area, Described, Kind, Link, Session, SessionError, Switch};

/// The operations that all instruments have in common.
pub trait Instrument {
    /// Returns the state that all instruments have in common.
    #[doc(hidden)]
    fn core(&'static self) -> &'static Core;

    /// Registers the instrument now instead of at its first use.
    fn register(&'static self) {
        self.core().register();
    }

    /// Suspends recording, in all processes of the session, until [`resume`](Instrument::resume).
    fn suspend(&'static self) {
        self.core().switch(true);
    }

    /// Resumes recording, unless the manager or an inherited instrument is suspended.
    fn resume(&'static self) {
        self.core().switch(false);
    }

    /// Resets the values of counters and timers and the number of records of an event to zero.
    fn reset(&'static self) {
        self.core().reset();
    }

    /// Returns whether the instrument currently records.
    fn records(&'static self) -> bool {
        self.core().records()
    }
}

/// The state that all instruments have in common: a name, and the link to the session.
#[derive(Debug)]
pub struct Core {
    link: Latest<Link>,
    /// Whether it is in [`KNOWN`].
    known: AtomicBool,
    kind: Kind,
    manager: &'static str,
    name: &'static str,
    role: Role,
    fields: &'static [(&'static str, FieldKind)],
    parent: Option<&'static Core>,
}

/// The switch of the link of an instrument that is not registered yet. It does not suspend, so that
/// the first use takes the path of a recording instrument, which registers it. A suspended
/// instrument thus needs only one test.
static UNKNOWN_SWITCH: AtomicU64 = AtomicU64::new(0);
static UNKNOWN_LINK: Link = Link { switch: &UNKNOWN_SWITCH, id: 0, area: None, several: &[] };

/// The link of a registered instrument without a session.
static SUSPENDED_SWITCH: AtomicU64 = AtomicU64::new(Switch::System as u64);
static SUSPENDED_LINK: Link = Link { switch: &SUSPENDED_SWITCH, id: 0, area: None, several: &[] };

/// The switch of links to several sessions, each of which has a switch of its own.
static SEVERAL_SWITCH: AtomicU64 = AtomicU64::new(0);

/// The maximum number of instruments of a process. Further ones stay suspended.
const MAX_INSTRUMENTS: usize = 4096;
/// All instruments that were used or registered. A slot is reserved by increasing the count and
/// then filled, so no lock is needed.
static KNOWN: [OnceLock<&'static Core>; MAX_INSTRUMENTS] =
    [const { OnceLock::new() }; MAX_INSTRUMENTS];
static KNOWN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The sessions of this process, in the order in which it attached to them.
static CURRENT: Latest<Sessions> = Latest::new(&Sessions(&[]));
/// Held while [`CURRENT`] is changed; recording does not need it.
static CHANGE: Mutex<()> = Mutex::new(());

#[derive(Debug)]
struct Sessions(&'static [&'static Session]);

impl Core {
    const fn new(kind: Kind, manager: &'static str, name: &'static str) -> Self {
        Self {
            link: Latest::new(&UNKNOWN_LINK),
            known: AtomicBool::new(false),
            kind,
            manager,
            name,
            role: Role::Plain,
            fields: &[],
            parent: None,
        }
    }

    /// Returns the link to the session unless the instrument is known to be suspended.
    #[inline(always)]
    fn on(&'static self) -> Option<&'static Link> {
        let link = self.link.get();
        (link.switch.load(Ordering::Relaxed) == 0).then_some(link)
    }

    /// Calls `write` with the instrument's ID and the memory to write to, for each session in which
    /// it records. The link must be on.
    #[inline(always)]
    fn each(&'static self, link: &'static Link, mut write: impl FnMut(u32, &'static Area)) {
        match link.area {
            Some(area) => write(link.id, area),
            None => self.each_of_several(link, &mut write),
        }
    }

    #[cold]
    #[inline(never)]
    fn each_of_several(
        &'static self,
        link: &'static Link,
        write: &mut dyn FnMut(u32, &'static Area),
    ) {
        let link = if link.several.is_empty() { self.first_use() } else { link };
        let one = [link];
        let all = if link.several.is_empty() { &one } else { link.several };
        for link in all.iter().filter(|link| link.switch.load(Ordering::Relaxed) == 0) {
            link.area.into_iter().for_each(|area| write(link.id, area));
        }
    }

    fn first_use(&'static self) -> &'static Link {
        self.register();
        self.link.get()
    }

    /// Returns the instrument's ID and the memory of the first session, whether or not it records
    /// there.
    fn first(&'static self) -> Option<(u32, &'static Area)> {
        let link = self.link.get();
        let link = link.several.first().copied().unwrap_or(link);
        link.area.map(|area| (link.id, area))
    }

    /// Returns whether the instrument records in any session.
    fn records(&'static self) -> bool {
        let mut records = false;
        self.on().into_iter().for_each(|link| self.each(link, |_, _| records = true));
        records
    }

    /// Makes the instrument known and links it to the sessions, unless that has been done. A thread
    /// does all of it itself even while another one is at it, because that one may be stopped, and
    /// what is recorded until it continues would be lost without being counted.
    fn register(&'static self) {
        // Pairs with the Release below: the instrument is in `KNOWN`.
        if !self.known.load(Ordering::Acquire) {
            let place = KNOWN_COUNT.fetch_add(1, Ordering::AcqRel);
            if let Some(place) = KNOWN.get(place) {
                // No other thread was given this slot. Two threads at once fill a slot each, and
                // the instrument is attached twice.
                let _ = place.set(self);
            }
            self.known.store(true, Ordering::Release);
        }
        if std::ptr::eq(self.link.get(), &UNKNOWN_LINK) {
            // Pairs with the fence in `change`: either that finds this instrument, or this sees its
            // sessions.
            fence(Ordering::SeqCst);
            self.attach();
        }
    }

    /// Links the instrument to the current sessions.
    fn attach(&'static self) {
        follow(|| CURRENT.get(), |sessions| self.link.set(self.link_to(sessions.0)));
    }

    fn link_to(&'static self, sessions: &'static [&'static Session]) -> &'static Link {
        let links = sessions.iter().filter_map(|session| session.link(self.define(session)?));
        let links: Vec<&'static Link> = links.collect();
        match links[..] {
            [] => &SUSPENDED_LINK,
            [link] => link,
            // Never freed, since a thread that records may be about to follow it.
            _ => {
                let several = links.leak();
                let switch = &SEVERAL_SWITCH;
                Box::leak(Box::new(Link { switch, id: 0, area: None, several }))
            }
        }
    }

    /// Returns the instrument's ID in a session. The instrument that it inherits from is defined
    /// first.
    fn define(&'static self, session: &'static Session) -> Option<u32> {
        let parent = self.parent.and_then(|parent| parent.define(session)).unwrap_or(0);
        let Self { kind, manager, name, role, fields, .. } = *self;
        session.define(&Described { name, manager, kind, role, fields, parent })
    }

    fn switch(&'static self, suspended: bool) {
        self.register();
        for session in CURRENT.get().0 {
            if let Some(id) = self.define(session) {
                session.switch_one(id, Switch::Own, suspended);
            }
        }
    }

    fn reset(&'static self) {
        let link = self.link.get();
        for link in [link].iter().chain(link.several) {
            link.area.into_iter().for_each(|area| area.reset(link.id));
        }
    }
}

/// Attaches the instruments of this process to a session, including future ones. Detaches them from
/// all others.
pub fn attach(session: &'static Session) {
    change(|_| vec![session]);
}

/// Attaches this process to the session that [`VARIABLE`](crate::session::VARIABLE) names; returns
/// `None` if it names none. To be called at the beginning of `main`.
///
/// # Errors
///
/// There is no session at the path.
pub fn attach_environment() -> Result<Option<&'static Session>, SessionError> {
    let Some(path) = std::env::var_os(session::VARIABLE) else { return Ok(None) };
    let session = Session::open(Path::new(&path))?;
    attach(session);
    Ok(Some(session))
}

/// Attaches the instruments of this process to an additional session. Each record is written to all
/// sessions, and each session suspends instruments separately. With several sessions the cost of a
/// record is multiplied accordingly, and a suspended instrument costs a call.
///
/// The values of counters and timers are read from the session that was attached first.
pub fn join(session: &'static Session) {
    change(|sessions| {
        let others = sessions.iter().copied().filter(|one| !std::ptr::eq(*one, session));
        others.chain([session]).collect()
    });
}

/// Detaches the instruments of this process from one session; the others continue.
pub fn leave(session: &Session) {
    change(|sessions| {
        sessions.iter().copied().filter(|one| !std::ptr::eq(*one, session)).collect()
    });
}

/// Detaches the instruments of this process from all sessions, which suspends them.
pub fn detach() {
    change(|_| Vec::new());
}

/// Returns the sessions of this process, in the order in which it attached to them.
pub fn sessions() -> &'static [&'static Session] {
    CURRENT.get().0
}

fn change(to: impl FnOnce(&[&'static Session]) -> Vec<&'static Session>) {
    // A panic leaves no intermediate state, since the statements below only replace values.
    let _change = CHANGE.lock();
    let sessions: &'static [&'static Session] = to(CURRENT.get().0).leak();
    CURRENT.set(Box::leak(Box::new(Sessions(sessions))));
    // Pairs with the fences in `Core::register` and `follow`.
    fence(Ordering::SeqCst);
    let count = KNOWN_COUNT.load(Ordering::Acquire).min(MAX_INSTRUMENTS);
    // An empty slot belongs to an instrument that will see the sessions.
    KNOWN[..count].iter().filter_map(OnceLock::get).for_each(|core| core.attach());
}
