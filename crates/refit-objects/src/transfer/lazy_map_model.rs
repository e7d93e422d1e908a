//! A loom model of the map: calls, the drain and a second swap race for one item. In contrast to
//! the model of `lazy`, the map itself keeps the rules here.

use super::*;
use loom::thread;

type Map = LazyMap<u8, u32>;

const KEY: u8 = 0;

fn old() -> Arc<Map> {
    let map = Map::new(1);
    map.insert(KEY, 10).expect("there is no source yet");
    Arc::new(map)
}

fn over(source: Arc<Map>) -> Arc<Map> {
    let map = Map::new(1);
    map.attach(source);
    Arc::new(map)
}

fn found(map: &Map) -> Option<u32> {
    map.get(&KEY, |item| *item).expect("the source does not fail")
}

/// Runs a call while another thread drains, and checks the state afterwards.
fn while_it_is_drained(call: fn(&Map), afterwards: Option<u32>) {
    loom::model(move || {
        let map = over(old());
        let drainer = {
            let map = Arc::clone(&map);
            thread::spawn(move || while map.drain(1).expect("the source does not fail").open {})
        };
        call(&map);
        drainer.join().unwrap();
        assert_eq!(found(&map), afterwards);
        assert_eq!(map.len(), u64::from(afterwards.is_some()));
    });
}

#[test]
fn an_item_that_moves_is_found() {
    while_it_is_drained(|map| assert_eq!(found(map), Some(10)), Some(10));
}

#[test]
fn an_item_that_was_overwritten_does_not_come_back() {
    while_it_is_drained(|map| assert_eq!(map.insert(KEY, 11).unwrap(), Some(10)), Some(11));
}

#[test]
fn an_item_that_was_removed_does_not_come_back() {
    while_it_is_drained(|map| assert_eq!(map.remove(&KEY).unwrap(), Some(10)), None);
}

#[test]
fn an_item_that_moves_is_changed_once() {
    let change = |map: &Map| {
        let changed = map.update(&KEY, |item| item.as_mut().map(|n| *n += 1));
        assert_eq!(changed.unwrap(), Some(()));
    };
    while_it_is_drained(change, Some(11));
}

/// A change is one step: no change sees the item removed by another, and none is lost.
#[test]
fn two_changes_at_once_are_both_made() {
    loom::model(|| {
        let map = old();
        let change = |map: &Map| {
            let changed = map.update(&KEY, |item| item.as_mut().map(|n| *n += 1));
            assert_eq!(changed.unwrap(), Some(()));
        };
        let other = {
            let map = Arc::clone(&map);
            thread::spawn(move || change(&map))
        };
        change(&map);
        other.join().unwrap();
        assert_eq!(found(&map), Some(12));
    });
}

/// A third map takes over from a second that is still being drained: it must not mistake "in hand"
/// for "absent", neither when a call needs the item nor when it asks for what is left.
#[test]
fn a_second_swap_finds_what_the_first_has_not_moved() {
    loom::model(|| {
        let second = over(old());
        let drainer = {
            let second = Arc::clone(&second);
            thread::spawn(move || {
                second.drain(1).expect("the source does not fail");
            })
        };
        let third = over(second);
        let progress = third.drain(usize::MAX).expect("the source does not fail");
        assert!(!progress.open, "all has moved");
        assert_eq!(third.own_len(), 1);
        assert_eq!(found(&third), Some(10));
        drainer.join().unwrap();
    });
}
