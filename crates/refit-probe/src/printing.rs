//! The messages that the probes of a program write (`printf`).
//!
//! A program has buffers of its own for them, which its forked children share.

use std::io;

use parking_lot::Mutex;
use refit_instruments::messages::Messages;
use refit_instruments::session::{Geometry, Session, SessionError};
use refit_splice::{Action, Item};
use refit_sys::clock;

use crate::action::Do;
use crate::argument::PlaceKind;
use crate::datum::{Context, Moment};
use crate::format::Format;
use crate::steps::Watching;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// The time, in nanoseconds since the system was started (`CLOCK_MONOTONIC`).
    pub time: u64,
    /// The thread, by its ID in the program's PID namespace.
    pub thread: u32,
    /// Index of the place among those that are watched.
    pub place: usize,
    /// The text.
    pub text: String,
}

/// Most slots of a buffer, of 32 bytes each: a power of two.
const RECORDS: usize = 1 << 17;

/// A kind of messages, which have the same number.
#[derive(Clone, Debug)]
struct Kind {
    /// Index of the place.
    place: usize,
    /// The kind of the place.
    kind: PlaceKind,
    format: Format,
    /// Number of words.
    words: usize,
}

/// The messages of a program.
#[derive(Debug)]
pub(crate) struct Printing {
    messages: Mutex<Messages>,
    session: &'static Session,
    /// The kinds of messages by their numbers.
    kinds: Vec<Option<Kind>>,
    /// The time at which the buffers were made, in ticks.
    began: u64,
}

impl Printing {
    /// Makes the buffers for the messages among these actions of places, if there are any.
    pub(crate) fn of<'w>(
        actions: impl Iterator<Item = (usize, &'w Watching)>,
    ) -> Result<Option<Self>, SessionError> {
        let mut kinds = Vec::new();
        for (place, watching) in actions {
            let (Action::Print { what, items }, Do::Print(format)) =
                (&watching.step.action, &watching.what)
            else {
                continue;
            };
            let at = *what as usize;
            kinds.resize(kinds.len().max(at + 1), None);
            let words = items.iter().map(Item::words).sum();
            let (kind, format) = (watching.kind, format.clone());
            kinds[at] = Some(Kind { place, kind, format, words });
        }
        if kinds.is_empty() {
            return Ok(None);
        }
        let host = Geometry::of_host();
        let records = host.records.min(RECORDS);
        let geometry = Geometry { records, definitions: 1, ..host };
        let session = Session::create(geometry)?;
        let messages = Mutex::new(Messages::new(session));
        Ok(Some(Self { messages, session, kinds, began: clock::counter() }))
    }

    /// Returns the session that has the buffers.
    pub(crate) fn session(&self) -> &'static Session {
        self.session
    }

    /// Takes the messages that are complete. `context` returns what is known of a place, by its
    /// index and kind, and of a time.
    pub(crate) fn take<'a>(
        &self,
        context: impl Fn(usize, PlaceKind, Moment) -> Context<'a>,
    ) -> io::Result<Vec<Printed>> {
        let known = |what: u32| self.kinds.get(what as usize)?.as_ref();
        let all = self.messages.lock().take(|what| Some(known(what)?.words));
        let (now, wall, ticks) = (clock::monotonic(), clock::wall(), clock::counter());
        let mut printed = Vec::with_capacity(all.len());
        for message in all {
            let Some(Kind { place, kind, format, .. }) = known(message.what) else { continue };
            let ago = clock::nanos(ticks.saturating_sub(message.time));
            let elapsed = clock::nanos(message.time.saturating_sub(self.began));
            let time = now.saturating_sub(ago);
            let moment = Moment { monotonic: time, elapsed, wall: wall.saturating_sub(ago) };
            let context = context(*place, *kind, moment);
            let text = format.render(&context.decode(format.arguments(), &message.words)?);
            printed.push(Printed { time, thread: message.thread, place: *place, text });
        }
        Ok(printed)
    }

    /// Returns the number of messages that were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.messages.lock().lost()
    }
}
