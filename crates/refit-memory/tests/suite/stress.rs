//! Many threads on one file, with far fewer frames than pages and a swap every few calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use crate::host::{IMPLEMENTATIONS, PAGE_SIZE_U64, RANGE, Subject, pattern};

const ROUNDS: u64 = 2000;
/// The minimum number of operations of each helper before the writers stop.
const DISTURBANCES: u64 = 200;
const WRITERS: u64 = 3;
/// The number of records of each writer. They lie apart, so that each shares its page with another
/// writer's.
const RECORDS: u64 = 40;
const RECORD: usize = 600;
/// The offset from which no writer writes, and at which a thread makes the file grow.
const END: u64 = 3 * RANGE;

/// Returns the offset of a record. Some records cross the border of two pages, or of two
/// partitions.
fn place(writer: u64, record: u64) -> u64 {
    (record * WRITERS + writer) * 6000 % (END - 6000)
}

/// Returns a record. It contains its version, from which every byte follows.
fn record(writer: u64, record: u64, version: u64) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(pattern(version * 1000 + writer * 100 + record, RECORD - 8));
    bytes
}

fn within_page(at: u64) -> bool {
    at / PAGE_SIZE_U64 == (at + RECORD as u64 - 1) / PAGE_SIZE_U64
}

fn write_and_read_back(file: &Subject, writer: u64, enough: &dyn Fn() -> bool) -> Vec<u64> {
    let mut versions = vec![0; RECORDS as usize];
    for round in (1..).take_while(|&round| round <= ROUNDS || !enough()) {
        let which = (round * 7 + writer) % RECORDS;
        let at = place(writer, which);
        file.write(at, &record(writer, which, round)).unwrap();
        versions[which as usize] = round;
        let again = (round * 13) % RECORDS;
        if versions[again as usize] > 0 {
            let expected = record(writer, again, versions[again as usize]);
            let got = file.read(place(writer, again), RECORD).unwrap();
            assert!(got == expected, "writer {writer} finds another record {again}");
        }
    }
    versions
}

/// Reads records of others: a record within a page is read in one piece or not at all, even while
/// it is written.
fn read_others(file: &Subject, done: &AtomicBool) {
    let mut round = 0;
    while !done.load(Relaxed) {
        let (writer, which) = (round % WRITERS, round * 3 % RECORDS);
        round += 1;
        let at = place(writer, which);
        let got = file.read(at, RECORD).unwrap();
        if !within_page(at) || got.len() < RECORD {
            continue;
        }
        let version = u64::from_le_bytes(got[..8].try_into().unwrap());
        if version > 0 {
            assert!(got == record(writer, which, version), "a torn record of version {version}");
        }
    }
}

fn grow(file: &Subject, done: &AtomicBool, size: &AtomicU64) {
    let mut next = END;
    while !done.load(Relaxed) {
        next += 777;
        file.cache.truncate(next).unwrap();
        size.store(next, Relaxed);
        let got = file.read(END, (next - END).min(20_000) as usize).unwrap();
        assert!(got.iter().all(|&byte| byte == 0), "bytes appeared where nobody writes");
        assert_eq!(file.read(next, 1).unwrap(), [0u8; 0]);
        if next > END + 40 * PAGE_SIZE_U64 {
            // Truncates the file and makes it grow again where no other thread works.
            next = END;
        }
    }
}

fn run(first: &str, swaps: bool, failures: bool) {
    let mut file = Subject::new(first, 24, vec![0; END as usize]);
    file.attempts = 20_000;
    let file = file;
    let (done, size) = (AtomicBool::new(false), AtomicU64::new(END));
    let helpers: [&(dyn Fn(u64) + Sync); 4] = [
        &|_| {
            file.reclaim(3);
        },
        // Errors are expected if the host fails; the data must arrive nevertheless.
        &|_| {
            let _ = file.cache.flush(0, u64::MAX);
        },
        &|round| {
            let to = IMPLEMENTATIONS[round as usize % IMPLEMENTATIONS.len()];
            match round % 3 {
                _ if !swaps => {}
                0 => file.swap(to),
                1 => file.swap_by(to, "lazy"),
                // Leaves some pages to the calls, and to the next swap.
                _ => drop(file.swap_lazily(to, round % 4)),
            }
        },
        &|round| file.host.fail(false, failures && round % 4 == 0),
    ];
    let rounds = [const { AtomicU64::new(0) }; 4];
    let enough = || rounds.iter().all(|rounds| rounds.load(Relaxed) >= DISTURBANCES);
    let versions: Vec<_> = thread::scope(|scope| {
        for (helper, rounds) in helpers.into_iter().zip(&rounds) {
            let done = &done;
            scope.spawn(move || {
                let _counted = CountedOut(rounds);
                for round in 0.. {
                    if done.load(Relaxed) {
                        break;
                    }
                    helper(round);
                    rounds.store(round, Relaxed);
                    thread::yield_now();
                }
            });
        }
        let stop = StopOnDrop(&done);
        scope.spawn(|| read_others(&file, &done));
        if !failures {
            scope.spawn(|| grow(&file, &done, &size));
        }
        let write = |writer| {
            let (file, enough) = (&file, &enough);
            scope.spawn(move || write_and_read_back(file, writer, enough))
        };
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        let versions = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        drop(stop);
        versions
    });
    file.host.fail(false, false);
    file.flush();
    let bytes = file.host.bytes();
    assert_eq!(bytes.len() as u64, size.load(Relaxed));
    for (writer, versions) in (0..).zip(versions) {
        for (which, version) in (0..).zip(versions).filter(|&(_, version)| version > 0) {
            let at = place(writer, which) as usize;
            let expected = record(writer, which, version);
            assert!(bytes[at..at + RECORD] == expected, "the host has another record");
        }
    }
    file.check_all_free();
}

/// Counts a helper as finished on drop, so that the writers do not wait for a helper that has
/// failed.
struct CountedOut<'a>(&'a AtomicU64);

impl Drop for CountedOut<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Relaxed);
    }
}

/// Stops the helpers on drop, also when a writer fails; otherwise the test would hang instead of
/// failing.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn shared_under_load() {
    run("shared", false, false);
}

#[test]
fn partitioned_under_load() {
    run("partitioned", false, false);
}

#[test]
fn sequential_under_load() {
    run("sequential", false, false);
}

#[test]
fn swapping_under_load() {
    run("shared", true, false);
}

#[test]
fn swapping_under_load_with_a_failing_host() {
    run("partitioned", true, true);
}
