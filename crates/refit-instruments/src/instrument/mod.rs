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

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

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
        self.core().way().is_some()
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
static UNKNOWN_LINK: Link = Link { switch: &UNKNOWN_SWITCH, id: 0, area: None };

/// Known, but there is no session.
static SUSPENDED_SWITCH: AtomicU64 = AtomicU64::new(Switch::System as u64);
static SUSPENDED_LINK: Link = Link { switch: &SUSPENDED_SWITCH, id: 0, area: None };

/// How many instruments a process can have; more stay suspended.
const MOST: usize = 4096;
/// All that were used or registered. A place is taken by counting up and then filled, so no lock is needed.
static KNOWN: [OnceLock<&'static Core>; MOST] = [const { OnceLock::new() }; MOST];
static KNOWN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The session of this process.
static CURRENT: Latest<Attached> = Latest::new(&Attached(None));

#[derive(Debug)]
struct Attached(Option<&'static Session>);

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

    /// The instrument's id and the memory to write to, if it records.
    #[inline(always)]
    fn way(&'static self) -> Option<(u32, &'static Area)> {
        self.on().and_then(|link| self.way_of(link))
    }

    /// The same for a link that is on.
    #[inline(always)]
    fn way_of(&'static self, link: &'static Link) -> Option<(u32, &'static Area)> {
        match link.area {
            Some(area) => Some((link.id, area)),
            None => self.first_use(),
        }
    }

    #[cold]
    #[inline(never)]
    fn first_use(&'static self) -> Option<(u32, &'static Area)> {
        self.register();
        let link = self.link.get();
        let records = link.switch.load(Ordering::Relaxed) == 0;
        link.area.filter(|_| records).map(|area| (link.id, area))
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

    fn attach(&'static self, session: Option<&'static Session>) {
        let link = session.and_then(|session| session.link(self.define(session)?));
        self.link.set(link.unwrap_or(&SUSPENDED_LINK));
    }

    /// The instrument's id in a session; what it inherits from comes before it.
    fn define(&'static self, session: &'static Session) -> Option<u32> {
        let parent = self.parent.and_then(|parent| parent.define(session)).unwrap_or(0);
        let Self { kind, manager, name, role, fields, .. } = *self;
        session.define(&Described { name, manager, kind, role, fields, parent })
    }

    fn switch(&'static self, suspended: bool) {
        self.register();
        if let Some(session) = CURRENT.get().0
            && let Some(id) = self.define(session)
        {
            session.switch_one(id, Switch::Own, suspended);
        }
    }

    fn reset(&'static self) {
        let link = self.link.get();
        if let Some(area) = link.area {
            area.reset(link.id);
        }
    }
}

/// Attaches the instruments of this process to a session, those to come too. What was attached to another leaves it.
pub fn attach(session: &'static Session) {
    attach_to(Some(session));
}

/// Suspends the instruments of this process: they have no session any more.
pub fn detach() {
    attach_to(None);
}

/// The session of this process.
pub fn current() -> Option<&'static Session> {
    CURRENT.get().0
}

fn attach_to(session: Option<&'static Session>) {
    CURRENT.set(Box::leak(Box::new(Attached(session))));
    // Pairs with the fence in `Core::register`.
    fence(Ordering::SeqCst);
    let count = KNOWN_COUNT.load(Ordering::Acquire).min(MOST);
    // A place that is not filled yet is that of an instrument that will see the session.
    KNOWN[..count].iter().filter_map(OnceLock::get).for_each(|core| core.attach(session));
}
