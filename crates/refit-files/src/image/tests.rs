//! The counts of inodes at every instant at which a server can end.

use super::Image;
use super::record::{Count, Unfinished, Uses};
use super::recorded::RecordedInode;
use super::request::{self, Logged, Slot, UnfinishedRequest, after_each_store};
use crate::values::HostKey;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The state that another server finds in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StateFound {
    lookups: u64,
    uses: Uses,
    logged: Logged,
}

fn found(image: &Image, slot: u32) -> StateFound {
    let mut inode = RecordedInode::read(image, 0).expect("the record is valid");
    let request = UnfinishedRequest::read(image, slot);
    if let Some(unfinished) = Unfinished::read(image, slot) {
        inode.restore(unfinished);
    }
    let logged = request.map_or_else(Logged::default, |request| {
        request.continue_in(image, slot + 1, 0);
        let slot = image.slot_words(slot + 1);
        request::logged(slot)
    });
    StateFound { lookups: inode.lookups(), uses: inode.uses(), logged }
}

/// Returns a copy of an image.
fn copy(image: &Image) -> Arc<Image> {
    let copy = Image::new(4).unwrap();
    for (to, from) in copy.words().iter().zip(image.words()) {
        let value = from.load(Relaxed);
        if value != 0 {
            to.store(value, Relaxed);
        }
    }
    copy
}

/// Returns the state that is found at each instant of `act`, from before its first store to after
/// its last.
fn at_each_instant(before: &[Count], act: &[Count]) -> Vec<StateFound> {
    let image = Image::new(4).unwrap();
    let record = image.take_record().unwrap();
    record.begin(7, HostKey { device: 1, number: 7 }, 0o100_644, false);
    record.set_descriptor(3, None);
    record.set_lookups(5);
    let slot = Slot::new(&image, 0);
    slot.begin(99);
    request::set_current(Some(slot));
    before.iter().for_each(|count| record.count(*count));
    let instants = Rc::new(RefCell::new(vec![found(&copy(&image), 0)]));
    let (seen, watched) = (Rc::clone(&instants), Arc::clone(&image));
    after_each_store(Some(Box::new(move || seen.borrow_mut().push(found(&copy(&watched), 0)))));
    act.iter().for_each(|count| record.count(*count));
    after_each_store(None);
    request::set_current(None);
    instants.take()
}

/// Asserts that at each instant either both the counts and the log have a change or neither has.
fn consistent(instants: &[StateFound]) {
    for found in instants {
        let logged = found.logged.looked_up.len() as u64;
        assert_eq!(found.lookups, 5 + logged, "{found:?}");
        let used = found.logged.used.map_or(Uses::default(), |(_, uses)| uses);
        assert_eq!(found.uses, used, "{found:?}");
    }
    assert!(instants.len() > 5, "{} stores were seen", instants.len());
}

#[test]
fn a_look_up_is_counted_and_logged_or_neither() {
    let instants = at_each_instant(&[], &[Count::Lookups(1), Count::Lookups(1)]);
    consistent(&instants);
    assert_eq!(instants.last().unwrap().lookups, 7);
}

#[test]
fn a_look_up_is_taken_back_in_both_or_in_neither() {
    let counted = [Count::Lookups(1), Count::Lookups(1)];
    let instants = at_each_instant(&counted, &[Count::Lookups(-1), Count::Lookups(-1)]);
    consistent(&instants);
    assert_eq!(instants.last().unwrap().lookups, 5);
}

#[test]
fn an_open_is_counted_and_logged_or_neither() {
    let uses = Uses::one(true, false);
    let instants = at_each_instant(&[], &[Count::Opened(uses)]);
    consistent(&instants);
    assert_eq!(instants.last().unwrap().uses, uses);
    consistent(&at_each_instant(&[Count::Opened(uses)], &[Count::Closed(uses)]));
}

#[test]
fn a_close_is_taken_back_as_it_was_counted() {
    let uses = Uses::one(true, true);
    let image = Image::new(4).unwrap();
    let record = image.take_record().unwrap();
    record.begin(7, HostKey { device: 1, number: 7 }, 0o100_644, false);
    record.count(Count::Opened(uses));
    let slot = Slot::new(&image, 0);
    slot.begin(99);
    request::set_current(Some(slot));
    record.count(Count::Closed(uses));
    assert_eq!(record.uses(), Uses::default());
    let mut slot = request::set_current(None).unwrap();
    let (index, by) = slot.repeat().used.unwrap();
    assert_eq!(index, 0);
    request::set_current(Some(slot));
    record.count(Count::Closed(by));
    assert_eq!(record.uses(), uses);
    request::set_current(None);
}

#[test]
fn three_counts_share_the_word_of_uses() {
    let image = Image::new(4).unwrap();
    let record = image.take_record().unwrap();
    record.begin(7, HostKey { device: 1, number: 7 }, 0o100_644, false);
    let (reads, writes, collects) =
        (Uses::one(false, false), Uses::one(true, false), Uses::one(true, true));
    for uses in [reads, reads, writes, collects] {
        record.count(Count::Opened(uses));
    }
    record.count(Count::Closed(reads));
    let uses = record.uses();
    assert_eq!((uses.opens(), uses.writers(), uses.collecting()), (3, 2, 1));
}

#[test]
fn a_record_is_used_again_after_its_inode() {
    let image = Image::new(2).unwrap();
    let first = image.take_record().unwrap();
    let second = image.take_record().unwrap();
    assert!(image.take_record().is_none());
    first.begin(7, HostKey { device: 1, number: 7 }, 0o100_644, false);
    assert_eq!(image.node_of(0), Some(7));
    drop(first);
    assert_eq!(image.node_of(0), None);
    assert_eq!(image.take_record().map(|record| record.index()), Some(0));
    drop(second);
}

#[test]
fn what_is_no_image_is_refused() {
    let open = |image: &Image| {
        use std::os::fd::AsFd;
        Image::open(image.as_fd().try_clone_to_owned().unwrap()).map(drop)
    };
    let image = Image::new(4).unwrap();
    assert!(open(&image).is_ok());
    // The second word is the version, the fourth the number of records.
    for (word, value, says) in
        [(1, 2, "has version 2"), (3, 100, "another length"), (4, 1, "layout"), (0, 0, "begin")]
    {
        let image = Image::new(4).unwrap();
        image.words()[word].store(value, Relaxed);
        let error = open(&image).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
