//! Instruments: [`Event`], [`Counter`] and [`Timer`], which are statics of the program (Kohr 1994, §3.2).
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
//! Without a session an instrument is suspended, at the price of three loads and a branch. Its first use makes it known
//! to this process (and, if there is a session, to that); every [`attach`] then finds it.
//!
//! *Inherited and customised* (§3.1): an instrument of an interface applies to every implementation, since the one
//! static is used by all of them. An implementation that adds its own declares it with `inherits(&THAT)`: it is then
//! suspended whenever the inherited one is, and can be suspended by itself.
//!
//! Recording is safe in signal handlers; the first use of an instrument is not, where there is a session:
//! [`Instrument::register`] it before.

mod event;
mod manager;
mod total;
mod trigger;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

use refit_sys::latest::Latest;

pub use event::{Event, Span};
pub use manager::{Manager, System};
pub use total::{Counter, Running, Timer};
pub use trigger::{Act, Chosen, Observed, Trigger, When};

use crate::definition::{FieldKind, Role};
use crate::session::{Area, Described, Kind, Link, Session, Switch};

/// What all instruments can do.
pub trait Instrument {
    /// What they have in common.
    #[doc(hidden)]
    fn core(&'static self) -> &'static Core;

    /// Makes the instrument known now instead of at its first use.
    fn register(&'static self) {
        self.core().register();
    }

    /// Stops recording, in all processes of the session, until [`resume`](Instrument::resume).
    fn suspend(&'static self) {
        self.core().switch(true);
    }

    /// Goes on recording, as far as neither the manager nor an inherited instrument is suspended.
    fn resume(&'static self) {
        self.core().switch(false);
    }

    /// Begins at zero: what counters and timers hold, and how many records of an event there were.
    fn reset(&'static self) {
        self.core().reset();
    }

    /// Whether it records now.
    fn records(&'static self) -> bool {
        self.core().records()
    }
}

/// What all instruments have in common: a name, and the way to the session.
#[derive(Debug)]
pub struct Core {
    link: Latest<Link>,
    registered: AtomicBool,
    kind: Kind,
    manager: &'static str,
    name: &'static str,
    role: Role,
    fields: &'static [(&'static str, FieldKind)],
    parent: Option<&'static Core>,
}

/// Not known yet. Its switch does not suspend, so that what is suspended needs one question only.
static UNKNOWN_SWITCH: AtomicU64 = AtomicU64::new(0);
static UNKNOWN_LINK: Link = Link { switch: &UNKNOWN_SWITCH, id: 0, area: None, several: &[] };

/// Known, but there is no session.
static SUSPENDED_SWITCH: AtomicU64 = AtomicU64::new(Switch::System as u64);
static SUSPENDED_LINK: Link = Link { switch: &SUSPENDED_SWITCH, id: 0, area: None, several: &[] };

/// That of links to several sessions: each of these has a switch of its own.
static SEVERAL_SWITCH: AtomicU64 = AtomicU64::new(0);

/// How many instruments a process can have; more stay suspended.
const MOST: usize = 4096;
/// All that were used or registered. A place is taken by counting up and then filled, so no lock is needed.
static KNOWN: [OnceLock<&'static Core>; MOST] = [const { OnceLock::new() }; MOST];
static KNOWN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The sessions of this process, in the order in which it was attached to them.
static CURRENT: Latest<Attached> = Latest::new(&Attached(&[]));
/// Held by whoever changes [`CURRENT`]; recording does not need it.
static CHANGE: Mutex<()> = Mutex::new(());

#[derive(Debug)]
struct Attached(&'static [&'static Session]);

impl Core {
    const fn new(kind: Kind, manager: &'static str, name: &'static str) -> Self {
        Self {
            link: Latest::new(&UNKNOWN_LINK),
            registered: AtomicBool::new(false),
            kind,
            manager,
            name,
            role: Role::Plain,
            fields: &[],
            parent: None,
        }
    }

    /// What leads to the session, if nothing is known that suspends the instrument.
    #[inline(always)]
    fn on(&'static self) -> Option<&'static Link> {
        let link = self.link.get();
        (link.switch.load(Ordering::Relaxed) == 0).then_some(link)
    }

    /// Calls this with the instrument's id and the memory to write to, for each session in which it
    /// records, given a link that is on.
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

    /// The first session's id and memory, whether or not it records there.
    fn first(&'static self) -> Option<(u32, &'static Area)> {
        let link = self.link.get();
        let link = link.several.first().copied().unwrap_or(link);
        link.area.map(|area| (link.id, area))
    }

    /// Whether it records in any session.
    fn records(&'static self) -> bool {
        let mut records = false;
        self.on().into_iter().for_each(|link| self.each(link, |_, _| records = true));
        records
    }

    fn register(&'static self) {
        if self.registered.swap(true, Ordering::AcqRel) {
            return;
        }
        let place = KNOWN_COUNT.fetch_add(1, Ordering::AcqRel);
        if let Some(place) = KNOWN.get(place) {
            // Nobody else was given this place.
            let _ = place.set(self);
        }
        // Pairs with the fence in `attach`: either that finds us, or we see its session.
        fence(Ordering::SeqCst);
        self.attach(CURRENT.get().0);
    }

    fn attach(&'static self, sessions: &'static [&'static Session]) {
        let links = sessions.iter().filter_map(|session| session.link(self.define(session)?));
        let links: Vec<&'static Link> = links.collect();
        self.link.set(match links[..] {
            [] => &SUSPENDED_LINK,
            [link] => link,
            // Never given back, as whoever records may be about to follow it.
            _ => {
                let several = links.leak();
                let switch = &SEVERAL_SWITCH;
                Box::leak(Box::new(Link { switch, id: 0, area: None, several }))
            }
        });
    }

    /// The instrument's id in a session; what it inherits from comes before it.
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

/// Attaches the instruments of this process to a session, those to come too. What was attached to
/// others leaves them.
pub fn attach(session: &'static Session) {
    change(|_| vec![session]);
}

/// Attaches the instruments of this process to one more session: each record goes to all of them,
/// and each session suspends for itself. While there are several, a record costs as much more, and
/// a suspended instrument a call.
///
/// What a counter or timer holds is asked of the session that was attached first.
pub fn join(session: &'static Session) {
    change(|sessions| {
        let others = sessions.iter().copied().filter(|one| !std::ptr::eq(*one, session));
        others.chain([session]).collect()
    });
}

/// Detaches the instruments of this process from one session; the others go on.
pub fn leave(session: &Session) {
    change(|sessions| {
        sessions.iter().copied().filter(|one| !std::ptr::eq(*one, session)).collect()
    });
}

/// Suspends the instruments of this process: they have no session any more.
pub fn detach() {
    change(|_| Vec::new());
}

/// The sessions of this process, in the order in which it was attached to them.
pub fn sessions() -> &'static [&'static Session] {
    CURRENT.get().0
}

fn change(to: impl FnOnce(&[&'static Session]) -> Vec<&'static Session>) {
    // Nothing is left half-changed by a panic: what follows only replaces.
    let _change = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
    let sessions: &'static [&'static Session] = to(CURRENT.get().0).leak();
    CURRENT.set(Box::leak(Box::new(Attached(sessions))));
    // Pairs with the fence in `Core::register`.
    fence(Ordering::SeqCst);
    let count = KNOWN_COUNT.load(Ordering::Acquire).min(MOST);
    // A place that is not filled yet is that of an instrument that will see the sessions.
    KNOWN[..count].iter().filter_map(OnceLock::get).for_each(|core| core.attach(sessions));
}
