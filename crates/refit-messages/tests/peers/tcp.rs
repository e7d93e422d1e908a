//! Tests of instances that are connected by TCP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use refit_messages::{InstanceId, MessageError, Refusal, Security, Transport};

use crate::pair::{Double, Echo, LOOPBACK, Note, Pair, builder, next, until};

const ONE: InstanceId = InstanceId(1);
const TWO: InstanceId = InstanceId(2);
const NONE: Security = Security::None { anywhere: false };
/// The verdict that two connections do not belong together.
const HALF: u8 = 6;

#[test]
fn what_holds_on_one_host_holds_by_tcp() {
    all_there_is(&Pair::by_tcp([&NONE, &NONE]));
}

/// Checks the order of messages, answers, long bodies in both directions at once, and the end.
pub(crate) fn all_there_is(pair: &Pair) {
    for count in 0..1000 {
        pair.one.send(TWO, &Note(count), &[]).unwrap();
    }
    for count in 0..1000 {
        assert_eq!(next(&pair.by_two.notes), (ONE, count, vec![]));
    }
    assert_eq!(pair.two.ask(ONE, &Double(21), &[1, 2]).unwrap(), (42, vec![2, 1]));
    let (one, two) = (&pair.one, &pair.two);
    thread::scope(|scope| {
        for (from, to) in [(one, TWO), (two, ONE), (one, TWO), (two, ONE)] {
            scope.spawn(move || {
                let body: Vec<u8> = (0..5 << 20).map(|byte: u32| byte as u8).collect();
                for _ in 0..3 {
                    assert!(from.ask(to, &Echo, &body).unwrap().1 == body);
                }
            });
        }
    });
    let peer = &pair.one.peers()[0];
    assert_eq!(peer.transport, Transport::Tcp);
    assert_eq!(peer.urgent.timed, 0, "the clocks of two hosts differ");
    pair.two.close();
    assert_eq!(next(&pair.by_one.lost).0, TWO);
    until(|| pair.one.peers().is_empty());
}

#[test]
fn what_others_can_reach_is_refused_unless_it_is_meant() {
    let (one, _) = builder(1);
    let one = one.start().unwrap();
    let anywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    assert!(matches!(one.listen(anywhere, &NONE), Err(MessageError::Insecure(_))));
    assert!(matches!(one.join("192.0.2.1:7", &NONE), Err(MessageError::Insecure(_))));
    let free = one.listen(LOOPBACK, &NONE).unwrap();
    one.close();
    let (two, _) = builder(2);
    let refused = two.start().unwrap().join(&free.to_string(), &NONE).unwrap_err();
    assert!(matches!(refused, MessageError::System { .. }), "{refused}");
}

#[test]
fn heartbeats_keep_those_together_that_have_nothing_to_say() {
    let (one, by_one) = builder(1);
    let (two, _) = builder(2);
    // Long enough for a busy machine, short enough for the test to observe.
    let silence = Duration::from_secs(3);
    let (one, two) = (one.silence(silence).start().unwrap(), two.silence(silence).start().unwrap());
    let address = one.listen(LOOPBACK, &NONE).unwrap();
    two.join(&address.to_string(), &NONE).unwrap();
    assert!(by_one.lost.recv_timeout(2 * silence).is_err());
    let [peer] = &one.peers()[..] else { panic!("one peer") };
    assert_eq!((peer.urgent.sent, peer.urgent.received), (0, 0), "heartbeats are not counted");
    assert_eq!(two.ask(ONE, &Double(1), &[]).unwrap().0, 2);
    two.close();
    one.close();
}

/// Exchanges hellos as an instance of this number, which answers with the token that it is sent.
fn greet(stream: &mut TcpStream, id: u8) {
    let mut hello = [0; 64];
    stream.read_exact(&mut hello).unwrap();
    hello[10] = id;
    stream.write_all(&hello).unwrap();
}

/// Sends a verdict, and returns the other side's.
fn judge(stream: &mut TcpStream, verdict: u8) -> u8 {
    stream.write_all(&[verdict]).unwrap();
    let mut heard = [0];
    stream.read_exact(&mut heard).unwrap();
    heard[0]
}

#[test]
fn two_connections_that_reach_different_instances_are_no_peer() {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (two, _) = builder(2);
    let two = two.start().unwrap();
    thread::scope(|scope| {
        let joins = scope.spawn(|| two.join(&address, &NONE));
        let mut urgent = listener.accept().unwrap().0;
        greet(&mut urgent, 7);
        assert_eq!(judge(&mut urgent, 0), 0);
        let mut bulk = listener.accept().unwrap().0;
        greet(&mut bulk, 8);
        assert_eq!(judge(&mut bulk, 0), HALF);
        let refused = joins.join().unwrap().unwrap_err();
        assert!(matches!(refused, MessageError::Refused { why: Refusal::Half, .. }), "{refused}");
    });
    assert!(two.peers().is_empty());
}

#[test]
fn a_second_connection_after_its_first_was_given_up_is_refused() {
    let (one, by_one) = builder(1);
    let one = one.start().unwrap();
    let address = one.listen(LOOPBACK, &NONE).unwrap();
    let mut urgent = TcpStream::connect(address).unwrap();
    greet(&mut urgent, 7);
    assert_eq!(judge(&mut urgent, HALF), 0);
    assert!(next(&by_one.refused).contains("without its first"));
    let mut bulk = TcpStream::connect(address).unwrap();
    let mut hello = [0; 64];
    bulk.read_exact(&mut hello).unwrap();
    (hello[10], hello[12]) = (7, 1);
    bulk.write_all(&hello).unwrap();
    assert_eq!(judge(&mut bulk, 0), HALF);
    one.close();
}
