//! Invalid files: each is refused before the dynamic linker sees it, with a message that says what
//! to do.

mod common;

use std::path::Path;

use common::build;
use example_store::StoreInterface;
use proptest::prelude::*;
use refit_objects::plugin::{self, Obstacle, inspect};

fn library() -> Vec<u8> {
    plugin::accept::<StoreInterface>();
    build("example-store-sorted", "")
}

/// Returns the position of the note's content.
fn note(library: &[u8]) -> usize {
    let owner = b"refit\0\0\0refit-so";
    let found = library.windows(owner.len()).position(|window| window == owner);
    found.expect("it has a note") + 8
}

/// Checks the library with `bytes` written at `at`.
fn patched(at: usize, bytes: &[u8]) -> Result<(), Obstacle> {
    let mut library = library();
    library[at..at + bytes.len()].copy_from_slice(bytes);
    inspect(&library).map(drop)
}

/// Checks the library with the first occurrence of `from` in the note replaced by `to`.
fn replaced(from: &[u8], to: &[u8]) -> Result<(), Obstacle> {
    let library = library();
    let note = note(&library);
    let found = library[note..].windows(from.len()).position(|window| window == from);
    patched(note + found.expect("it is there"), to)
}

#[test]
fn as_it_was_built_it_is_taken() {
    let checked = inspect(&library()).expect("it is right");
    let names: Vec<_> = checked.manifest.implementations.iter().map(|i| &*i.name).collect();
    assert_eq!(names, ["sorted", "broken"]);
    assert_eq!(checked.manifest.package, "example-store-sorted 0.1.0");
}

#[test]
fn every_truncation_is_refused() {
    let library = library();
    for end in (0..library.len()).step_by(64) {
        match inspect(&library[..end]) {
            Err(Obstacle::Damaged(_) | Obstacle::NotALibrary(_)) => {}
            other => panic!("{end} of {}: {other:?}", library.len()),
        }
    }
}

#[test]
fn wrong_notes_are_refused_each_for_its_reason() {
    let library = library();
    let note = note(&library);
    let missing = patched(note - 8, b"other\0");
    assert_eq!(missing, Err(Obstacle::NoNote));
    assert!(matches!(patched(note, b"X"), Err(Obstacle::BadNote(_))));
    assert_eq!(patched(note + 8, &[9]), Err(Obstacle::Format { has: 9, wants: 2 }));
    assert!(matches!(patched(note + 12, &[1]), Err(Obstacle::BadNote(_))));
    assert_eq!(patched(note + 16, &[0]), Err(Obstacle::Aborts));
    let target = replaced(b"-linux-", b"-other-");
    assert!(matches!(target, Err(Obstacle::Target { .. })), "{target:?}");
    let interface = replaced(b"\x05\0store\x02", b"\x05\0stork");
    let Err(Obstacle::UnknownInterface { known, .. }) = interface else { panic!("{interface:?}") };
    assert_eq!(known, "store");
    let method = replaced(b"remove", b"delete");
    let Err(Obstacle::Method { index, method, has, .. }) = method else { panic!("{method:?}") };
    assert_eq!((index, method, &*has), (2, "remove", "delete: fn(&self, &[u8]) -> bool"));
    let hash = replaced(b"\x06\0remove", b"\x06\0remove\x00\x11\x22");
    assert!(matches!(hash, Err(Obstacle::Method { index: 2, .. })), "{hash:?}");
    let state = replaced(b"Pairs", b"Peers");
    assert!(matches!(state, Err(Obstacle::State { .. })), "{state:?}");
    let name = replaced(b"\x06\0sorted", b"\x06\0so@ted");
    assert_eq!(name, Err(Obstacle::BadName("so@ted".into())));
    // A note must not write control sequences to the terminal of the user who reads the refusal.
    assert!(matches!(replaced(b"sorted", b"\x1b[31mX"), Err(Obstacle::BadNote(_))));
}

#[test]
fn other_files_are_refused_each_for_its_reason() {
    plugin::accept::<StoreInterface>();
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |path: &Path| {
        let error = plugin::load(path).expect_err("it is no plugin");
        let text = error.to_string();
        assert!(text.starts_with("refused: ") && text.contains("; "), "{text}");
        error.obstacle
    };
    assert!(matches!(refused(&directory.path().join("none")), Obstacle::Unreadable(_)));
    assert!(matches!(refused(directory.path()), Obstacle::Unreadable(_)));
    assert!(matches!(refused(Path::new("/dev/zero")), Obstacle::Unreadable(_)));
    let file = directory.path().join("file");
    for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n"] {
        std::fs::write(&file, bytes).expect("it can be written");
        assert!(matches!(refused(&file), Obstacle::NotALibrary(_)));
    }
    // This test is a position-independent executable, which as an ELF file is a library without a
    // note.
    assert_eq!(refused(&std::env::current_exe().expect("it has a path")), Obstacle::NoNote);
    let other_machine = patched(18, &[0x28, 0]);
    assert!(matches!(other_machine, Err(Obstacle::Target { .. })), "{other_machine:?}");
}

/// The number of damaged files that are tried; the nightly script sets a higher one.
fn cases() -> u32 {
    std::env::var("REFIT_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000)
}

#[test]
fn no_damage_makes_the_check_panic() {
    let library = library();
    // The parts that the check reads (the headers, the note, the dynamic section and the
    // relocations) are near the beginning and the end of the mapped part.
    let interesting = 4096.min(library.len());
    let at = prop_oneof![0..64_usize, 0..interesting, 0..library.len()];
    let damage = prop::collection::vec((at, any::<u8>()), 1..12);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&damage, |damage| {
        let mut bytes = library.clone();
        for (at, byte) in damage {
            bytes[at] = byte;
        }
        let _ = inspect(&bytes);
        Ok(())
    });
    result.expect("every file is taken or refused");
}
