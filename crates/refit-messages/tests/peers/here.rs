//! Tests of instances on one host.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use refit_messages::{InstanceId, LIMIT, Layer, MessageError, Refusal, Transport};

use crate::pair::{Double, Echo, Note, Nothing, Pair, Unknown, builder, next, until};

const ONE: InstanceId = InstanceId(1);
const TWO: InstanceId = InstanceId(2);

#[test]
fn messages_arrive_in_order_and_questions_are_answered_from_both_sides() {
    let pair = Pair::here();
    for count in 0..1000 {
        pair.one.send(TWO, &Note(count), &count.to_le_bytes()).unwrap();
        pair.two.send(ONE, &Note(count), &[]).unwrap();
    }
    for count in 0..1000_u64 {
        assert_eq!(next(&pair.by_two.notes), (ONE, count, count.to_le_bytes().to_vec()));
        assert_eq!(next(&pair.by_one.notes), (TWO, count, vec![]));
    }
    assert_eq!(pair.one.ask(TWO, &Double(21), &[1, 2, 3]).unwrap(), (42, vec![3, 2, 1]));
    assert_eq!(pair.two.ask(ONE, &Double(4), &[]).unwrap(), (8, vec![]));
    let [peer] = &pair.one.peers()[..] else { panic!("one peer") };
    assert_eq!(peer.transport, Transport::Shared);
    assert_eq!((peer.id, peer.asks, peer.waiting), (TWO, 1, 0));
    assert_eq!(peer.urgent.sent, 1002);
    assert_eq!(peer.urgent.received, 1002);
    // The peer times one of 16 messages.
    assert_eq!(peer.urgent.timed, 1002_u64.div_ceil(16));
    assert!(peer.urgent.mean_transit > Duration::ZERO);
    assert!(peer.urgent.mean_transit <= peer.urgent.longest_transit);
    assert!(peer.longest_wait > Duration::ZERO);
    let other = &pair.two.peers()[0];
    assert!(!peer.dialed && other.dialed, "the second has joined the first");
    assert_eq!(peer.urgent.received_bytes, other.urgent.sent_bytes);
    assert_eq!(peer.urgent.sent_bytes, other.urgent.received_bytes);
    assert!(peer.urgent.received_bytes > 28 * 1002);
    assert_eq!(peer.bulk.sent, 0);
}

#[test]
fn long_bodies_both_ways_at_once_do_not_stand_in_each_others_way() {
    let pair = Pair::here();
    let ask = |from: &Layer, to| {
        for length in [0, 1, 70_000, 9 << 20] {
            let body: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            assert!(from.ask(to, &Echo, &body).unwrap().1 == body);
        }
    };
    thread::scope(|scope| {
        let (one, two) = (&pair.one, &pair.two);
        for _ in 0..3 {
            scope.spawn(|| ask(one, TWO));
            scope.spawn(|| ask(two, ONE));
        }
    });
}

#[test]
fn many_threads_ask_at_once_and_each_gets_its_own_answer() {
    let pair = Pair::here();
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let one = &pair.one;
            scope.spawn(move || {
                for count in 0..300 {
                    let number = thread << 32 | count;
                    assert_eq!(one.ask(TWO, &Double(number), &[]).unwrap().0, 2 * number);
                }
            });
        }
    });
}

#[test]
fn what_cannot_be_sent_is_refused_and_harms_nobody() {
    let pair = Pair::here();
    let long = vec![0; LIMIT];
    assert!(matches!(
        pair.one.ask(TWO, &Echo, &[&long[..], &[0]].concat()),
        Err(MessageError::TooLong(_))
    ));
    assert!(matches!(
        pair.one.send(InstanceId(7), &Note(1), &[]),
        Err(MessageError::NotConnected(InstanceId(7)))
    ));
    assert!(matches!(pair.one.send(ONE, &Note(1), &[]), Err(MessageError::NotConnected(ONE))));
    assert!(matches!(pair.one.ask(TWO, &Nothing(1), &[]), Err(MessageError::Unanswered(TWO))));
    // An answer that is too long is none.
    assert!(matches!(pair.one.ask(TWO, &Nothing(3), &[]), Err(MessageError::Unanswered(TWO))));
    assert_eq!(pair.one.ask(TWO, &Double(1), &[]).unwrap().0, 2);
    assert_eq!(pair.one.peers()[0].waiting, 0, "no question waits");
    assert!(pair.one.ask(TWO, &Echo, &long[1..]).unwrap().1.len() == LIMIT - 1);
}

#[test]
fn who_closes_is_lost_to_the_other_and_its_questions_fail() {
    let pair = Pair::here();
    thread::scope(|scope| {
        let two = &pair.two;
        let asks = scope.spawn(|| two.ask(ONE, &Nothing(0), &[]));
        until(|| pair.one.peers()[0].urgent.received == 1);
        assert_eq!(two.peers()[0].waiting, 1);
        pair.one.close();
        let lost = asks.join().unwrap().unwrap_err();
        assert!(matches!(lost, MessageError::Lost { peer: ONE, .. }), "{lost}");
    });
    assert_eq!(next(&pair.by_two.lost), (ONE, "its connection has ended".to_owned()));
    until(|| pair.two.peers().is_empty());
    assert!(matches!(pair.one.ask(TWO, &Double(1), &[]), Err(MessageError::Closed)));
    assert!(!pair.path.exists());
    assert!(matches!(pair.one.listen_here(&pair.path), Err(MessageError::Closed)));
    assert!(pair.by_one.lost.try_recv().is_err(), "it parted by itself");
}

#[test]
fn what_cannot_be_understood_and_a_panic_end_the_connection_with_a_reason() {
    let pair = Pair::here();
    pair.one.send(TWO, &Unknown, &[]).unwrap();
    let (peer, why) = next(&pair.by_two.lost);
    assert_eq!(
        (peer, why.as_str()),
        (ONE, "a message is of kind 99, which this instance does not handle")
    );
    next(&pair.by_one.lost);
    // The instance can join again.
    until(|| pair.two.join_here(&pair.path).is_ok());
    let pair = pair.settled();
    let outcome = pair.one.ask(TWO, &Nothing(2), &[]);
    assert!(matches!(outcome, Err(MessageError::Unanswered(_) | MessageError::Lost { .. })));
    assert_eq!(next(&pair.by_two.lost).1, "the handler of its message of kind 4 panicked");
}

/// Messages of types that the two sides know differently.
mod differently {
    use refit_messages::{Message, Request, Way};
    use serde::{Deserialize, Serialize};

    /// [`Double`](crate::pair::Double), but as a message without an answer.
    #[derive(Serialize, Deserialize)]
    pub(super) struct DoubleNote(pub(super) u64);

    impl Message for DoubleNote {
        const KIND: u16 = 2;
        const WAY: Way = Way::Urgent;
    }

    /// [`Note`](crate::pair::Note), but by the other way.
    #[derive(Serialize, Deserialize)]
    pub(super) struct SlowNote(pub(super) u64);

    impl Message for SlowNote {
        const KIND: u16 = 1;
        const WAY: Way = Way::Bulk;
    }

    /// [`Double`](crate::pair::Double), but with another answer.
    #[derive(Serialize, Deserialize)]
    pub(super) struct DoubleText(pub(super) u64);

    impl Message for DoubleText {
        const KIND: u16 = 2;
        const WAY: Way = Way::Urgent;
    }

    impl Request for DoubleText {
        type Answer = (u64, u64);
    }

    /// [`Note`](crate::pair::Note), but with a second number.
    #[derive(Serialize, Deserialize)]
    pub(super) struct LongNote(pub(super) u64, pub(super) u64);

    impl Message for LongNote {
        const KIND: u16 = 1;
        const WAY: Way = Way::Urgent;
    }
}

#[test]
fn a_message_that_the_two_sides_know_differently_ends_the_connection() {
    use differently::{DoubleNote, DoubleText, LongNote, SlowNote};
    type Send = fn(&Layer);
    let sent: [(Send, &str); 3] = [
        (
            |one| one.send(TWO, &DoubleNote(1), &[]).unwrap(),
            "a message of kind 2 is a question on one side",
        ),
        (|one| one.send(TWO, &SlowNote(1), &[]).unwrap(), "a message of kind 1 came the Bulk way"),
        (
            |one| one.send(TWO, &LongNote(1, 1), &[]).unwrap(),
            "a message of kind 1 cannot be decoded",
        ),
    ];
    for (send, reason) in sent {
        let pair = Pair::here();
        send(&pair.one);
        let (peer, why) = next(&pair.by_two.lost);
        assert!(peer == ONE && why.starts_with(reason), "{why}");
        assert_eq!(next(&pair.by_one.lost).0, TWO);
        assert!(pair.by_two.notes.try_recv().is_err(), "it was not handled");
    }
    // The asker finds that the answer is of another type.
    let pair = Pair::here();
    let lost = pair.one.ask(TWO, &DoubleText(1), &[]).unwrap_err();
    assert!(lost.to_string().contains("a message of kind 2 cannot be decoded"), "{lost}");
    assert!(next(&pair.by_one.lost).1.starts_with("a message of kind 2 cannot be decoded"));
}

#[test]
fn a_new_peer_is_reported_before_its_messages_and_a_panic_hides_no_loss() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one");
    let (events, heard) = std::sync::mpsc::channel();
    let (found, note, lost) = (events.clone(), events.clone(), events);
    let one = Layer::builder(ONE)
        .found(move |peer| found.send(format!("{} joins, {}", peer.id.0, peer.dialed)).unwrap())
        .on(move |from, Note(count), _| note.send(format!("{} says {count}", from.0)).unwrap())
        .lost(|_, _| panic!("as a test does"))
        .lost(move |peer, _| lost.send(format!("{} is lost", peer.0)).unwrap())
        .start()
        .unwrap();
    one.listen_here(&path).unwrap();
    let (two, _heard) = builder(2);
    let two = two.start().unwrap();
    for round in 0..3 {
        until(|| two.join_here(&path).is_ok());
        two.send(ONE, &Note(round), &[]).unwrap();
        assert_eq!(next(&heard), "2 joins, false");
        assert_eq!(next(&heard), format!("2 says {round}"));
        two.send(ONE, &Unknown, &[]).unwrap();
        assert_eq!(next(&heard), "2 is lost");
        until(|| two.peers().is_empty());
    }
    one.close();
    assert!(matches!(two.join_here(&path), Err(MessageError::System { .. })));
    two.close();
}

#[test]
fn a_handler_cannot_wait_for_an_answer_but_sends_and_answers() {
    use std::sync::{OnceLock, mpsc};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one");
    let own: &'static OnceLock<std::sync::Arc<Layer>> = Box::leak(Box::default());
    let (errors, hears) = mpsc::channel();
    let one = Layer::builder(ONE)
        .on(move |from, Note(count), _| {
            let layer = own.get().unwrap();
            errors.send(layer.ask(from, &Double(count), &[]).unwrap_err().to_string()).unwrap();
            layer.send(from, &Note(count + 1), &[]).unwrap();
        })
        .start()
        .unwrap();
    own.set(one.clone()).unwrap();
    one.listen_here(&path).unwrap();
    let (two, by_two) = builder(2);
    let two = two.start().unwrap();
    two.join_here(&path).unwrap();
    two.send(ONE, &Note(1), &[]).unwrap();
    assert!(next(&hears).contains("from another thread"));
    assert_eq!(next(&by_two.notes).1, 2);
    one.close();
    two.close();
}

#[test]
fn who_does_not_suit_is_refused_on_both_sides() {
    let pair = Pair::here();
    let (same, _) = builder(1);
    let same = same.start().unwrap();
    let refused = same.join_here(&pair.path).unwrap_err();
    let MessageError::Refused { why: Refusal::SameId(ONE), .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!(
        next(&pair.by_one.refused),
        "it calls itself instance 1, like this instance; give one of them another number"
    );
    let (again, _) = builder(2);
    let refused = again.start().unwrap().join_here(&pair.path).unwrap_err();
    assert!(
        refused.to_string().contains("there is another connection with instance 2"),
        "{refused}"
    );
    next(&pair.by_one.refused);

    // A valid beginning, but of another version.
    let mut old = UnixStream::connect(&pair.path).unwrap();
    let mut hello = [0; 64];
    old.read_exact(&mut hello).unwrap();
    hello[8] = 77;
    old.write_all(&hello).unwrap();
    let mut verdict = [0];
    old.read_exact(&mut verdict).unwrap();
    assert_eq!(verdict, [2]);
    drop(old);
    assert!(next(&pair.by_one.refused).contains("version 77"));

    // First bytes that no instance sends; then a second connection without a first one.
    let mut stranger = UnixStream::connect(&pair.path).unwrap();
    stranger.read_exact(&mut hello).unwrap();
    stranger.write_all(&[b'G'; 64]).unwrap();
    drop(stranger);
    assert!(next(&pair.by_one.refused).contains("not an instance of refit"));
    let mut half = UnixStream::connect(&pair.path).unwrap();
    half.read_exact(&mut hello).unwrap();
    (hello[10], hello[12]) = (9, 1);
    half.write_all(&hello).unwrap();
    drop(half);
    assert!(next(&pair.by_one.refused).contains("without its first"));
    drop(UnixStream::connect(&pair.path).unwrap());
    assert!(next(&pair.by_one.refused).contains("closed the connection"));
    assert_eq!(pair.one.ask(TWO, &Double(3), &[]).unwrap().0, 6);
}

#[test]
fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one");
    drop(UnixListener::bind(&path).unwrap());
    let (one, _) = builder(1);
    let one = one.start().unwrap();
    assert!(matches!(one.join_here(&path), Err(MessageError::System { .. })));
    one.listen_here(&path).unwrap();
    let (two, _) = builder(2);
    assert!(matches!(two.start().unwrap().listen_here(&path), Err(MessageError::System { .. })));
    one.close();
    let (kind, _) = builder(3);
    assert!(matches!(kind.on(|_, _: Note, _| ()).start(), Err(MessageError::KindTwice(1))));
}

#[test]
fn who_was_refused_can_join_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one");
    let layer = |id| builder(id).0.start().unwrap();
    let (one, first, second) = (layer(1), layer(2), layer(2));
    one.listen_here(&path).unwrap();
    first.join_here(&path).unwrap();
    until(|| one.peers().len() == 1);
    let refused = second.join_here(&path).unwrap_err();
    assert!(matches!(refused, MessageError::Refused { .. }), "{refused}");
    first.close();
    until(|| one.peers().is_empty());
    // The number may still be taken for a moment.
    until(|| second.join_here(&path).is_ok());
    until(|| one.peers().len() == 1);
}

#[test]
fn connections_that_ended_do_not_count_among_those_that_begin() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one");
    let layer = |id| builder(id).0.start().unwrap();
    let (one, two) = (layer(1), layer(2));
    one.listen_here(&path).unwrap();
    // More than may be in their handshake at a time.
    for _ in 0..100 {
        drop(UnixStream::connect(&path).unwrap());
    }
    until(|| two.join_here(&path).is_ok());
    until(|| one.peers().len() == 1);
}

#[test]
fn who_is_lost_is_no_peer_any_more_when_its_loss_is_reported() {
    use std::sync::{OnceLock, mpsc};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one");
    let own: &'static OnceLock<std::sync::Arc<Layer>> = Box::leak(Box::default());
    let (losses, lost) = mpsc::channel();
    let one = Layer::builder(ONE)
        .lost(move |peer, _| losses.send((peer, own.get().unwrap().peers().len())).unwrap())
        .start()
        .unwrap();
    own.set(one.clone()).unwrap();
    one.listen_here(&path).unwrap();
    let two = builder(2).0.start().unwrap();
    two.join_here(&path).unwrap();
    until(|| one.peers().len() == 1);
    two.close();
    assert_eq!(next(&lost), (TWO, 0));
    one.close();
}

#[test]
fn what_connects_while_many_are_in_their_handshake_is_turned_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one");
    let (one, two) = (builder(1).0.start().unwrap(), builder(2).0.start().unwrap());
    one.listen_here(&path).unwrap();
    let mut hello = [0; 64];
    let silent: Vec<UnixStream> = (0..64)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.read_exact(&mut hello).unwrap();
            stream
        })
        .collect();
    let mut late = UnixStream::connect(&path).unwrap();
    assert_eq!(late.read(&mut hello).unwrap(), 0, "it is closed without a word");
    drop(silent);
    until(|| two.join_here(&path).is_ok());
    one.close();
    two.close();
}
