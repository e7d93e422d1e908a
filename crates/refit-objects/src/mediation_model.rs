//! The model of [`Mediation`]: calls while an object is switched.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// Two implementations count the calls inside. No call may be in the old one during the
/// transfer, and none may be lost: each call is served once.
fn switch_under_calls(reentrant: bool) {
    loom::model(move || {
        let mediation = Arc::new(Mediation::new(2));
        let in_old = Arc::new(AtomicUsize::new(0));
        let served = Arc::new(AtomicUsize::new(0));
        let transferred = Arc::new(AtomicUsize::new(0));

        let call = move |m: &Mediation, old: &AtomicUsize, t: &AtomicUsize, cpu: usize| match m
            .enter(cpu, false, Caller::default())
        {
            Admission::Tracked(ticket) => {
                old.fetch_add(1, Ordering::SeqCst);
                if reentrant {
                    let inner = m.enter(1 - cpu, true, Caller::default());
                    let Admission::Tracked(inner) = inner else { panic!("blocked inside") };
                    assert_eq!(t.load(Ordering::SeqCst), 0, "in the old one after transfer");
                    m.leave(1 - cpu, inner);
                }
                assert_eq!(t.load(Ordering::SeqCst), 0, "in the old one after transfer");
                old.fetch_sub(1, Ordering::SeqCst);
                m.leave(cpu, ticket);
            }
            Admission::Pass(outcome) => {
                assert_eq!(outcome, Outcome::New);
                assert_eq!(t.load(Ordering::SeqCst), 1, "in the new one before transfer");
            }
        };
        let callers: Vec<_> = (0..if reentrant { 1 } else { 2 })
            .map(|cpu| {
                let (m, old, s, t) =
                    (mediation.clone(), in_old.clone(), served.clone(), transferred.clone());
                thread::spawn(move || {
                    call(&m, &old, &t, cpu);
                    s.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        let expected = callers.len();

        mediation.block();
        while !mediation.drained() {
            thread::yield_now();
        }
        assert_eq!(in_old.load(Ordering::SeqCst), 0, "somebody is in the old one");
        transferred.store(1, Ordering::SeqCst);
        mediation.complete(Outcome::New);
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(served.load(Ordering::SeqCst), expected);
    });
}

#[test]
fn nobody_is_in_the_old_one_during_the_transfer() {
    switch_under_calls(false);
}

#[test]
fn a_call_from_inside_is_never_blocked() {
    switch_under_calls(true);
}

/// Two objects as one change. A request calls one and then the other, and finds each in the old
/// root, behind the mediator, or in the new root, whichever is in place at that moment; it must
/// not see a mix.
#[test]
fn a_request_sees_one_side_of_a_coordinated_switch() {
    const OLD: usize = 0;
    const MEDIATOR: usize = 1;
    const NEW: usize = 2;
    loom::model(|| {
        let mediation = Arc::new(Mediation::new(1));
        // The mediators are installed and a generation has passed.
        let places = Arc::new([AtomicUsize::new(MEDIATOR), AtomicUsize::new(MEDIATOR)]);
        let request = {
            let (mediation, places) = (mediation.clone(), places.clone());
            move || {
                let mut held = None;
                let seen = [0, 1].map(|object| match places[object].load(Ordering::Acquire) {
                    MEDIATOR if held.is_some() => OLD,
                    MEDIATOR => match mediation.enter(0, false, Caller::default()) {
                        Admission::Tracked(ticket) => {
                            held = Some(ticket);
                            OLD
                        }
                        Admission::Pass(Outcome::New) => NEW,
                        Admission::Pass(Outcome::Old) => OLD,
                    },
                    place => place,
                });
                assert_eq!(seen[0], seen[1], "a mix");
                if let Some(ticket) = held {
                    mediation.leave(0, ticket);
                }
            }
        };
        let callers = [thread::spawn(request.clone()), thread::spawn(request)];
        mediation.block();
        while !mediation.drained() {
            thread::yield_now();
        }
        places.iter().for_each(|place| place.store(NEW, Ordering::Release));
        mediation.complete(Outcome::New);
        for caller in callers {
            caller.join().unwrap();
        }
    });
}
