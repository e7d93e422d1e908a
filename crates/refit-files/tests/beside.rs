//! Tests of files that are changed in the source beside a live mount: the next open shows the
//! change.

mod common;

use common::{Served, clock_goes_on, in_watching_modes, pattern};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Timespec, Timestamps};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Reads a file through the mount, by opening it; its status has to fit.
fn read(served: &Served, name: &str) -> Vec<u8> {
    let bytes = fs::read(served.path(name)).unwrap();
    assert_eq!(fs::metadata(served.path(name)).unwrap().len(), bytes.len() as u64, "{name}");
    bytes
}

/// Changes a file of the source that is not open. On kernels before 6.13 a version is distinguished
/// from the previous one by the tick of a clock.
fn beside<T>(served: &Served, name: &str, change: impl FnOnce(&Path) -> T) -> T {
    // The kernel reports a close after the fact.
    while served.mount().stats().opens > 0 {
        std::thread::yield_now();
    }
    while_open(served, name, change)
}

/// As [`beside`], while it may be open.
fn while_open<T>(served: &Served, name: &str, change: impl FnOnce(&Path) -> T) -> T {
    clock_goes_on();
    change(&served.host(name))
}

fn overwrite(path: &Path, bytes: &[u8], offset: u64) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

/// Sets the modification time to what it was in `before`.
fn restore_time(path: &Path, before: &fs::Metadata) {
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(before.atime(), before.atime_nsec()),
        last_modification: time(before.mtime(), before.mtime_nsec()),
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

#[test]
fn the_next_open_sees_what_was_written_beside_the_mount() {
    in_watching_modes(|served| {
        let old = pattern(30_000, 1);
        fs::write(served.path("f"), &old).unwrap();
        for round in 0..4 {
            let sizes = [30_000, 70_000, 10, 0, 5000];
            for (step, size) in sizes.into_iter().enumerate() {
                let new = pattern(size, round * 10 + step as u64 + 2);
                beside(served, "f", |host| fs::write(host, &new)).unwrap();
                assert!(read(served, "f") == new, "{round} {step}");
                assert!(read(served, "f") == new, "{round} {step}: again");
            }
        }
        assert!(served.mount().stats().changed_beside >= 20);
        assert_eq!(served.mount().stats().written_over, 0);
    });
}

#[test]
fn a_change_of_the_same_size_with_the_old_time_is_seen() {
    in_watching_modes(|served| {
        fs::write(served.path("f"), pattern(9000, 1)).unwrap();
        served.mount().write_back().unwrap();
        assert!(read(served, "f") == pattern(9000, 1));
        beside(served, "f", |host| {
            let before = fs::metadata(host).unwrap();
            overwrite(host, b"quietly", 5000);
            restore_time(host, &before);
        });
        assert_eq!(&read(served, "f")[5000..5007], b"quietly");
    });
}

#[test]
fn a_file_that_was_only_looked_at_has_its_new_size() {
    in_watching_modes(|served| {
        fs::write(served.host("f"), "short").unwrap();
        assert_eq!(fs::metadata(served.path("f")).unwrap().len(), 5);
        beside(served, "f", |host| fs::write(host, "much longer")).unwrap();
        assert_eq!(read(served, "f"), b"much longer");
    });
}

#[test]
fn a_file_that_was_replaced_or_removed_is_not_opened() {
    in_watching_modes(|served| {
        fs::write(served.path("f"), "first").unwrap();
        fs::hard_link(served.path("f"), served.path("other")).unwrap();
        assert_eq!(read(served, "f"), b"first");
        for round in 0..3 {
            let text = format!("replaced {round}");
            beside(served, "f", |host| {
                let new = host.with_extension("new");
                fs::write(&new, &text).unwrap();
                fs::rename(&new, host).unwrap();
            });
            assert_eq!(read(served, "f"), text.as_bytes());
            assert_eq!(read(served, "other"), b"first");
        }
        beside(served, "f", |host| fs::remove_file(host)).unwrap();
        let error = File::open(served.path("f")).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        assert_eq!(read(served, "other"), b"first");
    });
}

#[test]
fn a_file_that_is_in_use_is_read_anew_by_who_opens_it() {
    in_watching_modes(|served| {
        fs::write(served.path("f"), pattern(20_000, 1)).unwrap();
        let before = File::open(served.path("f")).unwrap();
        let mut seen = vec![0; 20_000];
        before.read_exact_at(&mut seen, 0).unwrap();
        let new = pattern(50_000, 2);
        while_open(served, "f", |host| fs::write(host, &new)).unwrap();
        assert!(fs::read(served.path("f")).unwrap() == new);
        // A program that had the file open before sees the new bytes from then on, too.
        before.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == new[..20_000]);
        drop(before);
        let newer = pattern(60_000, 3);
        beside(served, "f", |host| fs::write(host, &newer)).unwrap();
        assert!(read(served, "f") == newer);
    });
}

#[test]
fn pages_that_are_not_stored_yet_are_written_over_it() {
    in_watching_modes(|served| {
        fs::write(served.path("f"), [b'0'; 20_000]).unwrap();
        let file = File::options().read(true).write(true).open(served.path("f")).unwrap();
        file.write_all_at(b"ours", 100).unwrap();
        while_open(served, "f", |host| overwrite(host, b"theirs", 9000));
        let seen = fs::read(served.path("f")).unwrap();
        assert_eq!((&seen[100..104], &seen[9000..9006]), (&b"ours"[..], &b"theirs"[..]));
        drop(file);
        served.mount().write_back().unwrap();
        assert!(fs::read(served.host("f")).unwrap() == seen);
    });
}

#[test]
fn what_goes_through_the_mount_is_no_change_beside_it() {
    in_watching_modes(|served| {
        let path = served.path("f");
        fs::write(&path, pattern(300_000, 1)).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let file = open();
        type Change<'a> = &'a dyn Fn(&File);
        let changes: [Change<'_>; 11] = [
            &|file| file.write_all_at(b"written", 1000).unwrap(),
            &|file| file.sync_all().unwrap(),
            &|file| file.set_len(250_000).unwrap(),
            &|_| fs::set_permissions(served.path("f"), fs::Permissions::from_mode(0o640)).unwrap(),
            &|file| restore_time(&served.path("f"), &file.metadata().unwrap()),
            &|file| rustix::fs::fchown(file, None, Some(rustix::fs::Gid::from_raw(1))).unwrap(),
            &|_| fs::hard_link(served.path("f"), served.path("g")).unwrap(),
            &|_| fs::remove_file(served.path("g")).unwrap(),
            &|_| {
                fs::rename(served.path("f"), served.path("h")).unwrap();
                fs::rename(served.path("h"), served.path("f")).unwrap();
            },
            &|file| {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, 5000, 20_000).unwrap();
            },
            &|file| {
                let (mut from, mut to) = (0, 100_000);
                let (from, to) = (Some(&mut from), Some(&mut to));
                rustix::fs::copy_file_range(file, from, file, to, 50_000).unwrap();
            },
        ];
        for (at, change) in changes.iter().enumerate() {
            change(&file);
            drop(open());
            served.mount().write_back().unwrap();
            drop(open());
            assert_eq!(served.mount().stats().changed_beside, 0, "after change {at}");
        }
    });
}

#[test]
fn an_open_never_fails_since_a_file_changes_all_the_time() {
    in_watching_modes(|served| {
        fs::write(served.path("log"), "").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let appending = scope.spawn(|| {
                let log = File::options().append(true).open(served.host("log")).unwrap();
                while !done.load(Relaxed) {
                    use std::io::Write;
                    (&log).write_all(b"line\n").unwrap();
                }
            });
            let opening: Vec<_> = std::iter::repeat_with(|| {
                scope.spawn(|| {
                    for _ in 0..300 {
                        // A line may be written up to the end of a page only.
                        let before = fs::metadata(served.host("log"))?.len() / 5 * 5;
                        let file = File::open(served.path("log"))?;
                        if before > 0 {
                            let mut last = [0; 5];
                            file.read_exact_at(&mut last, before - 5)?;
                            assert_eq!(&last, b"line\n");
                        }
                    }
                    Ok::<_, std::io::Error>(())
                })
            })
            .take(3)
            .collect();
            let outcomes: Vec<_> = opening.into_iter().map(|thread| thread.join()).collect();
            done.store(true, Relaxed);
            appending.join().unwrap();
            for outcome in outcomes {
                outcome.unwrap().unwrap();
            }
        });
    });
}
