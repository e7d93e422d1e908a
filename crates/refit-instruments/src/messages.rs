//! Messages: records of several slots, which snippets in watched programs write
//! (`refit_splice::Action::Print`).
//!
//! ```text
//!              word 0          1                  2          3
//! first slot   time, bit 0 set │ number, thread   │ word 0   │ word 1 of the message
//! next slots   time, bit 0 off │ word 2 + 3(n-1)  │ …        │ …
//! ```
//!
//! A session for messages has no recorder: its only reader is a [`Messages`].
//!
//! # Correctness
//!
//! All slots of a message are reserved by one compare-exchange, so they follow each other in the
//! ring, and what `ring` says of slots holds for each of them: one with a time is complete. The
//! reader takes a message once all of its slots have a time.
//!
//! A thread that stops within a message leaves slots without a time. The reader waits for them, and
//! then abandons them: it skips all slots that were reserved when it began to wait and still have
//! no time. The first slots of messages are told by their lowest bit, so the reader continues with
//! a whole message. A thread that resumes after that stores an old time into slots that belong to
//! another message by now; its time is then not that of the other slots, and the reader counts the
//! message as lost.

use std::time::{Duration, Instant};

use crate::ring::Ring;
#[cfg(not(loom))]
use crate::session::Session;

/// Words of a message in each slot; the first word of the first slot is the number and the thread.
pub const WORDS: usize = 3;
/// The time to wait for a message that was begun.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the number of slots of a message of this many words.
pub const fn slots(words: usize) -> usize {
    (1 + words).div_ceil(WORDS)
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The time, in ticks of the session's clock.
    pub time: u64,
    /// The processor.
    pub processor: usize,
    /// The number that tells what it is.
    pub what: u32,
    /// The thread, by its ID in the program's PID namespace.
    pub thread: u32,
    /// Its words.
    pub words: Vec<u64>,
}

/// The result of looking for a message at a slot.
#[derive(Debug)]
pub(crate) enum Slots {
    /// A message.
    Message { slots: u64, time: u64, what: u32, thread: u32, words: Vec<u64> },
    /// The first slot of a message of which other slots were overwritten.
    Torn,
    /// A slot that begins no message: its message was torn, or abandoned.
    Rest,
    /// Nothing yet.
    Nothing,
}

/// Takes the message that begins at the slot `number`, if it is complete; `reserved` slots are
/// reserved, that one among them. `words` returns the number of words of a message; `None` if there
/// is no such message.
pub(crate) fn take(
    ring: &Ring,
    number: u64,
    reserved: u64,
    words: impl Fn(u32) -> Option<usize>,
) -> Slots {
    let Ok([time, head, first @ ..]) = ring.read(number) else { return Slots::Nothing };
    let (what, thread) = (head as u32, (head >> 32) as u32);
    if time & 1 == 0 {
        return Slots::Rest;
    }
    let Some(length) = words(what) else { return Slots::Torn };
    let slots = slots(length) as u64;
    if number + slots > reserved {
        return Slots::Torn;
    }
    let mut found = first.to_vec();
    for next in number + 1..number + slots {
        match ring.read(next) {
            Ok([other, rest @ ..]) if other == time & !1 => found.extend(rest),
            Ok(_) => return Slots::Torn,
            Err(_) => return Slots::Nothing,
        }
    }
    found.truncate(length);
    Slots::Message { slots, time, what, thread, words: found }
}

/// Writes a message as snippets do.
#[cfg(test)]
pub(crate) fn write(
    ring: &Ring,
    clock: impl Fn() -> u64,
    head: u64,
    words: &[u64],
) -> Result<(), crate::ring::ReserveError> {
    use crate::sync::Ordering;
    let slots = slots(words.len());
    let (number, time) = ring.reserve(slots as u64, clock)?;
    let mut all = std::iter::once(head).chain(words.iter().copied());
    for index in 0..slots {
        let slot = &ring.slots[(number as usize + index) & (ring.slots.len() - 1)];
        slot[1..].iter().zip(&mut all).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        let mark = if index == 0 { time | 1 } else { time & !1 };
        // Pairs with the Acquire in `Ring::read`.
        slot[0].store(mark, Ordering::Release);
    }
    Ok(())
}

/// The reader of the messages in a session.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct Messages {
    session: &'static Session,
    rings: Vec<Cursor>,
    torn: u64,
}

/// The place up to which a ring was read.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    drained: u64,
    /// When the reader began to wait for that slot, and how many were reserved then.
    waiting: Option<(Instant, u64)>,
}

#[cfg(not(loom))]
impl Messages {
    /// Begins to read the messages in a session that nobody else reads.
    pub fn new(session: &'static Session) -> Self {
        let rings = vec![Cursor::default(); session.geometry().processors];
        Self { session, rings, torn: 0 }
    }

    /// Returns the session, into which messages are written.
    pub fn session(&self) -> &'static Session {
        self.session
    }

    /// Takes all messages that are complete, in the order of their times. `words` returns the
    /// number of words of a message; `None` if there is no such message.
    pub fn take(&mut self, words: impl Fn(u32) -> Option<usize>) -> Vec<Message> {
        let mut all = Vec::new();
        let rings = self.session.area().rings();
        for (processor, (cursor, ring)) in self.rings.iter_mut().zip(rings).enumerate() {
            let begin = cursor.drained;
            let reserved = ring.reserved();
            // A program that has written garbage to the count is not believed.
            let end = reserved.min(begin + ring.slots.len() as u64);
            while cursor.drained < end {
                match take(ring, cursor.drained, reserved, &words) {
                    Slots::Message { slots, time, what, thread, words } => {
                        all.push(Message { time, processor, what, thread, words });
                        cursor.advance(slots);
                    }
                    Slots::Torn => {
                        self.torn += 1;
                        cursor.advance(1);
                    }
                    Slots::Rest => cursor.advance(1),
                    Slots::Nothing if cursor.abandons(ring, reserved, TIMEOUT) => self.torn += 1,
                    Slots::Nothing => break,
                }
            }
            if cursor.drained > begin {
                ring.give_back(begin, cursor.drained);
            }
        }
        all.sort_by_key(|message| message.time);
        all
    }

    /// Returns the number of messages that were lost so far: those for which there was no room, and
    /// those that were not completed.
    pub fn lost(&self) -> u64 {
        use std::sync::atomic::Ordering::Relaxed;
        let rings = self.session.area().rings();
        self.torn + rings.iter().map(|ring| ring.lost.load(Relaxed)).sum::<u64>()
    }
}

impl Cursor {
    fn advance(&mut self, slots: u64) {
        self.drained += slots;
        self.waiting = None;
    }

    /// Skips what was reserved when the reader began to wait, and is not complete, if it has waited
    /// for `timeout`; `reserved` slots are reserved now.
    fn abandons(&mut self, ring: &Ring, reserved: u64, timeout: Duration) -> bool {
        let (since, reserved) = *self.waiting.get_or_insert_with(|| (Instant::now(), reserved));
        if since.elapsed() < timeout {
            return false;
        }
        // The first slot may be complete, and another one of its message not. A program that has
        // written garbage to the count is not believed.
        let end = reserved.min(self.drained + ring.slots.len() as u64);
        self.drained += 1;
        while self.drained < end && ring.read(self.drained).is_err() {
            self.drained += 1;
        }
        self.waiting = None;
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::session::Geometry;

    fn messages() -> Messages {
        let geometry = Geometry { processors: 2, records: 64, definitions: 1 };
        Messages::new(Session::create(geometry).expect("memory"))
    }

    fn put(messages: &Messages, ring: usize, time: u64, head: u64, words: &[u64]) -> bool {
        write(&messages.session.area().rings()[ring], || time, head, words).is_ok()
    }

    /// Messages of a number have as many words.
    fn read(messages: &mut Messages) -> Vec<(u64, usize, u32, u32, Vec<u64>)> {
        let all = messages.take(|what| (what < 30).then_some(what as usize));
        all.into_iter()
            .map(|one| (one.time & !1, one.processor, one.what, one.thread, one.words))
            .collect()
    }

    #[test]
    fn messages_of_all_lengths_are_read_in_order_of_time() {
        let mut messages = messages();
        for round in 0..50_u64 {
            let length = round % 30;
            let words: Vec<u64> = (round..round + length).collect();
            assert!(put(&messages, 1, 4 * round + 4, 9 << 32 | length, &words));
            assert!(put(&messages, 0, 4 * round + 2, 8 << 32, &[]));
            assert_eq!(
                read(&mut messages),
                [(4 * round + 2, 0, 0, 8, vec![]), (4 * round + 4, 1, length as u32, 9, words),]
            );
        }
        assert_eq!(messages.lost(), 0);
    }

    #[test]
    fn what_finds_no_room_is_counted_and_the_rest_is_whole() {
        let mut messages = messages();
        // Three slots each.
        let fit = (0..30).filter(|&n| put(&messages, 0, 2 * n + 2, 8, &[n; 8])).count();
        assert_eq!(fit, 21);
        messages.session.area().rings()[0].lost.fetch_add(9, std::sync::atomic::Ordering::Relaxed);
        let all = read(&mut messages);
        assert!(all.iter().zip(0..).all(|(one, n)| one.4 == [n; 8]) && all.len() == 21);
        assert_eq!(messages.lost(), 9);
        assert!(put(&messages, 0, 100, 8, &[1; 8]));
        assert_eq!(read(&mut messages).len(), 1);
    }

    #[test]
    fn a_message_that_is_never_completed_is_abandoned_with_nothing_else() {
        let mut messages = messages();
        let ring = messages.session.area().rings()[0];
        assert!(put(&messages, 0, 2, 5, &[7; 5]));
        let (torn, _) = ring.reserve(3, || 4).expect("room");
        assert!(put(&messages, 0, 6, 4, &[6; 4]));
        assert_eq!(read(&mut messages).len(), 1);
        let cursor = &mut messages.rings[0];
        assert!(!cursor.abandons(&ring, ring.reserved(), Duration::from_secs(3600)));
        // What is reserved later is not abandoned with it.
        let (later, _) = ring.reserve(2, || 8).expect("room");
        assert!(cursor.abandons(&ring, ring.reserved(), Duration::ZERO));
        assert_eq!(cursor.drained, torn + 3);
        assert_eq!(read(&mut messages), [(6, 0, 4, 0, vec![6; 4])]);
        assert_eq!(messages.rings[0].drained, later);
    }

    #[test]
    fn slots_of_another_message_make_a_message_torn() {
        let mut messages = messages();
        let ring = messages.session.area().rings()[0];
        assert!(put(&messages, 0, 10, 5, &[7; 5]) && put(&messages, 0, 12, 5, &[8; 5]));
        ring.slots[1][0].store(4, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(read(&mut messages), [(12, 0, 5, 0, vec![8; 5])]);
        assert_eq!(messages.lost(), 1);
        assert!(put(&messages, 0, 14, 31, &[1; 1]));
        assert_eq!(read(&mut messages), []);
    }
}
