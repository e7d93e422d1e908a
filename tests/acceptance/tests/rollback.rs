//! Swaps that fail, on a mounted file that is being used: for every reason of the failure, the old
//! cache continues, and the file is what it would have been without the swap.

use refit_acceptance::{
    CacheMode, Random, Served, ServedElsewhere, caches, pattern, possible, scratch,
};
use refit_change::{End, Phase, Report};
use refit_objects::{ObjectInfo, SwapOptions, object, swap_named};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const SWAP_DEADLINE: Duration = Duration::from_secs(20);
const SIZE: usize = 300_000;

fn cache_of(served: &Served, file: &str) -> ObjectInfo {
    let name = format!("{}{file}", served.prefix());
    let mut found = caches(&name);
    found.retain(|cache| cache.name == name);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.remove(0)
}

fn other(implementation: &str) -> &'static str {
    if implementation == "shared" { "partitioned" } else { "shared" }
}

/// Writes and reads at random places until it is told to stop; returns the expected contents.
fn use_file(file: &File, mut expected: Vec<u8>, stop: &AtomicBool, rounds: &AtomicU64) -> Vec<u8> {
    let mut random = Random::new(99);
    while !stop.load(Relaxed) {
        let at = random.below((SIZE - 9000) as u64) as usize;
        let data = pattern(random.number(), 1 + random.below(9000) as usize);
        file.write_all_at(&data, at as u64).unwrap();
        expected[at..at + data.len()].copy_from_slice(&data);
        let (at, mut again) = (random.below((SIZE - 20_000) as u64) as usize, vec![0; 20_000]);
        file.read_exact_at(&mut again, at as u64).unwrap();
        assert!(again == expected[at..at + again.len()], "other bytes at {at}");
        rounds.fetch_add(1, Relaxed);
    }
    expected
}

/// Runs `swaps` while a file is used, and compares every byte in the end.
fn under_load(name: &str, swaps: impl FnOnce(&Served, &dyn Fn())) {
    if !possible() {
        return;
    }
    let mut served = Served::new(name, CacheMode::Direct, 256 << 10);
    let begin = pattern(7, SIZE);
    fs::write(served.path("file"), &begin).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(served.path("file")).unwrap();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let expected = thread::scope(|scope| {
        let user = scope.spawn(|| use_file(&file, begin, &stop, &rounds));
        let _stop = StopOnDrop(&stop);
        // The file is used before and after whatever happens in between.
        let used = || {
            let begin = rounds.load(Relaxed);
            while rounds.load(Relaxed) < begin + 20 {
                assert!(!user.is_finished(), "the user of the file has failed");
                thread::yield_now();
            }
        };
        used();
        swaps(&served, &used);
        used();
        stop.store(true, Relaxed);
        user.join().unwrap()
    });
    let mut found = vec![0; SIZE];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == expected, "the file has other bytes");
    drop(file);
    served.unmount();
    assert!(fs::read(served.host("file")).unwrap() == expected, "the host has other bytes");
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn options(hook: impl Fn(Phase) -> Result<(), String> + Send + Sync + 'static) -> SwapOptions {
    SwapOptions { deadline: SWAP_DEADLINE, hook: Some(Arc::new(hook)), ..SwapOptions::default() }
}

fn assert_rolled_back(report: &Report, why: &str) {
    let End::RolledBack(reason) = &report.end else { panic!("{report:?}") };
    assert!(reason.contains(why), "{reason}");
}

#[test]
fn a_failure_at_any_phase_changes_nothing() {
    under_load("fails", |served, used| {
        for round in 0..10 {
            for phase in
                [Phase::Prepare, Phase::Install, Phase::Quiesce, Phase::Transfer, Phase::Commit]
            {
                let before = cache_of(served, "file");
                let fail = move |now| {
                    if now == phase { Err(format!("fails at {phase:?}")) } else { Ok(()) }
                };
                let to = other(&before.implementation);
                let report = swap_named(before.id, to, round, &options(fail));
                assert_rolled_back(&report, &format!("fails at {phase:?}"));
                assert_eq!(object(before.id).unwrap().implementation, before.implementation);
                used();
            }
            // The next swap succeeds, so that both implementations are the old one in turn.
            let cache = cache_of(served, "file");
            let report =
                swap_named(cache.id, other(&cache.implementation), round, &options(|_| Ok(())));
            assert!(report.committed(), "{report:?}");
        }
    });
}

#[test]
fn a_requester_that_goes_away_changes_nothing() {
    under_load("cancelled", |served, used| {
        for phase in [Phase::Prepare, Phase::Install, Phase::Quiesce, Phase::Transfer] {
            let before = cache_of(served, "file");
            let cancel = Arc::new(AtomicBool::new(false));
            let goes = Arc::clone(&cancel);
            let hook = move |now| {
                goes.fetch_or(now == phase, Relaxed);
                Ok(())
            };
            let options = SwapOptions { cancel: Some(cancel), ..options(hook) };
            let report = swap_named(before.id, other(&before.implementation), 1, &options);
            assert_rolled_back(&report, "its requester went away");
            assert_eq!(object(before.id).unwrap().implementation, before.implementation);
            used();
        }
    });
}

/// A file whose host has stopped responding, with a program that waits for it.
struct Stalled<'a> {
    served: &'a Served,
    host: &'a ServedElsewhere,
    file: &'a File,
}

impl Stalled<'_> {
    /// Runs `swap` while a read of `[at, at + len)` waits for the host; returns the bytes that were
    /// read.
    fn during_a_read(&self, at: u64, len: usize, swap: impl FnOnce()) -> Vec<u8> {
        // An answer is counted after it is given, so its receiver may be ahead of the count.
        let waits = || {
            let stats = self.served.mount().stats();
            stats.requests > stats.replies
        };
        while waits() {
            thread::yield_now();
        }
        self.host.hold();
        let _again = GoOn(self.host);
        thread::scope(|scope| {
            let read = scope.spawn(move || {
                let mut bytes = vec![0; len];
                self.file.read_exact_at(&mut bytes, at).map(|()| bytes)
            });
            // The read has begun, and cannot end without the host.
            let needs_the_host = || assert!(!read.is_finished(), "the read did not need the host");
            while !waits() {
                needs_the_host();
                thread::yield_now();
            }
            swap();
            needs_the_host();
            self.host.go_on();
            read.join().unwrap().unwrap()
        })
    }
}

/// Continues the server on drop, because the reader would wait for ever if the test failed.
struct GoOn<'a>(&'a ServedElsewhere);

impl Drop for GoOn<'_> {
    fn drop(&mut self) {
        self.0.go_on();
    }
}

#[test]
fn a_read_that_waits_for_the_host_makes_no_swap_late() {
    if !possible() {
        return;
    }
    // The host's directory is served by another process; while that is stopped, the host does not
    // respond.
    let scratch = scratch();
    let [far, source, mountpoint] = ["far", "near", "mnt"].map(|name| scratch.path().join(name));
    for directory in [&far, &far.join("late"), &source, &mountpoint] {
        fs::create_dir(directory).unwrap();
    }
    let bytes = pattern(11, 4 << 20);
    fs::write(far.join("late/file"), &bytes).unwrap();
    let program = env!("CARGO_BIN_EXE_acceptance-serve");
    let host = ServedElsewhere::start(program, (&far, &source), CacheMode::Direct, 1 << 20, false);
    let mut served =
        Served::of("late", source.clone(), mountpoint, scratch, CacheMode::Direct, 2 << 20);
    let file = File::open(served.path("file")).unwrap();
    // This page is read from the host now, and not while the server is stopped.
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    let cache = cache_of(&served, "file").id;
    let stalled = Stalled { served: &served, host: &host, file: &file };

    for (round, at) in [1_000_000, 2_000_000, 3_000_000].into_iter().enumerate() {
        let read = stalled.during_a_read(at, 100_000, || {
            let before = object(cache).unwrap().implementation;
            let report = swap_named(cache, other(&before), 1, &options(|_| Ok(())));
            assert!(report.committed(), "round {round}: {report:?}");
        });
        assert!(read == bytes[at as usize..][..read.len()], "round {round}");
    }
    let mut all = vec![0; bytes.len()];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all == bytes);
    drop(file);
    served.unmount();
    drop(host);
}
