//! Images of earlier versions, as they were written then: a server that takes over from an older
//! one reads them.
//!
//! `snapshots/N.txt` has the words of an image of version N that are not zero, each with its place.
//! When the layout changes, [`header::VERSION`] becomes N + 1, the image that [`written`] makes
//! becomes another file, and the test below reads both.

use super::Image;
use super::header::{self, MountIdentity, Negotiation};
use super::record::{Count, Flag, Uses};
use super::recorded::RecordedInode;
use super::request::{Effect, Operation, Slot, UnfinishedRequest, about_to, set_current};
use crate::image::ImageError;
use crate::values::{Access, HostKey};
use std::fmt::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const RECORDS: u64 = 4;

const NEWEST: &str = include_str!("snapshots/1.txt");

/// Makes an image that has something everywhere.
fn written() -> Arc<Image> {
    let image = Image::new(RECORDS).unwrap();
    image.set_device(9);
    image.set_frames([10, 11]);
    image.set_locks(&[12, 13]);
    image.set_next_foreign((1 << 63) + 5);
    image.set_mount(MountIdentity { id: 77, unique: true, file_system: (0, 49) });
    image.set_negotiation(&Negotiation { request: vec![1; 20], reply: vec![2; 12] });
    image.set_description(b"the options");
    let root = image.take_record().unwrap();
    root.begin(1, HostKey { device: 2049, number: 2 }, 0o40_755, false);
    root.set_descriptor(14, None);
    root.set_lookups(1);
    let file = image.take_record().unwrap();
    file.begin(55, HostKey { device: 2049, number: 55 }, 0o100_644, true);
    file.set_descriptor(15, Some(Access::Write));
    file.set_cache(3, 4096);
    file.grow(5000);
    file.set_outdated_lookups(1);
    file.set_times(Some((1, 2)), Some(((3, 4), Some((5, 6)))));
    file.set_version(Some(((7, 8), (9, 10), 11)), true);
    file.set(Flag::StaleInKernel, true);
    let slot = Slot::new(&image, 3);
    slot.begin(42);
    set_current(Some(slot));
    file.count(Count::Lookups(2));
    file.count(Count::Opened(Uses::one(true, false)));
    let before = HostKey { device: 2049, number: 56 };
    assert_eq!(about_to(Effect::new(Operation::Remove, Some(before))), None);
    set_current(None);
    // They are the records of a server that has ended.
    std::mem::forget((root, file));
    image
}

fn text(image: &Image) -> String {
    let words = image.words().iter().enumerate().map(|(place, word)| (place, word.load(Relaxed)));
    let mut text = String::new();
    for (place, word) in words.filter(|(_, word)| *word != 0) {
        writeln!(text, "{place} {word:#x}").unwrap();
    }
    text
}

/// Returns the image with these words, as another process opens it.
fn read(text: &str) -> Result<Image, ImageError> {
    let image = Image::new(RECORDS).unwrap();
    for line in text.lines() {
        let (place, word) = line.split_once(" 0x").unwrap();
        let place: usize = place.parse().unwrap();
        image.words()[place].store(u64::from_str_radix(word, 16).unwrap(), Relaxed);
    }
    Image::open(image.as_fd().try_clone_to_owned().unwrap())
}

#[test]
fn the_layout_has_not_changed_without_a_new_version() {
    let now = text(&written());
    assert!(
        now == NEWEST,
        "an image of version {} is other than before; snapshots.rs says what to do:\n{now}",
        header::VERSION
    );
}

#[test]
fn images_of_all_versions_are_read() {
    {
        let snapshot = NEWEST;
        let image = read(snapshot).unwrap();
        assert_eq!((image.device(), image.frames()), (Some(9), Some([10, 11])));
        assert_eq!((image.locks(), image.next_foreign()), (vec![12, 13], (1 << 63) + 5));
        let mount = MountIdentity { id: 77, unique: true, file_system: (0, 49) };
        assert_eq!(image.mount(), Some(mount));
        let agreed = Negotiation { request: vec![1; 20], reply: vec![2; 12] };
        assert_eq!(image.negotiation(), Some(agreed));
        assert_eq!(image.description(), b"the options");
        assert_eq!(image.records_used(), 2);
        let root = RecordedInode::read(&image, 0).unwrap();
        assert_eq!((root.node(), root.lookups(), root.access()), (1, 1, None));
        let file = RecordedInode::read(&image, 1).unwrap();
        assert_eq!((file.node(), file.key()), (55, HostKey { device: 2049, number: 55 }));
        assert_eq!((file.descriptor(), file.access()), (Some(15), Some(Access::Write)));
        assert_eq!((file.cache(), file.size(), file.lookups()), (3, 5000, 2));
        assert_eq!((file.uses().opens(), file.uses().writers()), (1, 1));
        assert_eq!(file.modified(), Some((1, 2)));
        assert_eq!(file.changed(), Some(((3, 4), Some((5, 6)))));
        assert_eq!((file.version(), file.by_others()), (Some(((7, 8), (9, 10), 11)), true));
        assert_eq!(UnfinishedRequest::read(&image, 3).map(|request| request.unique), Some(42));
    }
}

#[test]
fn an_image_of_the_future_is_refused_by_its_version() {
    let version = |line: &str| line.starts_with("1 0x").then(|| format!("1 {:#x}", 99));
    let future: Vec<String> =
        NEWEST.lines().map(|line| version(line).unwrap_or_else(|| line.to_owned())).collect();
    let error = read(&future.join("\n")).map(drop).unwrap_err().to_string();
    assert!(error.contains("version 99"), "{error}");
}

#[test]
fn the_old_description_stays_until_the_new_one_is_complete() {
    let image = Image::new(1).unwrap();
    let mut last = Vec::new();
    for text in [&b"first"[..], b"the second one", b"3", &[7; 32 << 10]] {
        assert_eq!(image.description(), last);
        assert!(image.set_description(text));
        last = text.to_vec();
    }
    assert!(!image.set_description(&[7; (32 << 10) + 1]));
    assert_eq!(image.description(), last);
}
