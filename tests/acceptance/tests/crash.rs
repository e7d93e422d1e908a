//! The server is killed while it works and while its caches are swapped. All data that was
//! acknowledged to a program as stored is there afterwards, byte for byte.

use refit_acceptance::{CacheMode, Random, Served, ServedElsewhere, pattern, possible, scratch};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The number of acknowledged syncs after which the server is killed.
const SYNCS: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(100);
/// The number of records in the file that is written in place; some of them cross page borders.
const RECORDS: u64 = 64;
const RECORD: usize = 1500;

/// Appends to a file; `synced` is the number of its bytes that have been acknowledged.
fn append(directory: &Path, name: &str, seed: u64, synced: &AtomicU64) -> io::Result<()> {
    let file = File::create(directory.join(name))?;
    let mut random = Random::new(seed);
    let mut end = 0;
    loop {
        for _ in 0..random.below(6) {
            let len = 1 + random.below(9000) as usize;
            file.write_all_at(&appended(seed, end, len), end)?;
            end += len as u64;
        }
        if random.below(2) == 0 {
            file.sync_all()?
        } else {
            file.sync_data()?
        };
        synced.store(end, Relaxed);
    }
}

/// Returns the bytes `[at, at + len)` of a file that grows; they do not depend on the pieces in
/// which it was written.
fn appended(seed: u64, at: u64, len: usize) -> Vec<u8> {
    let byte = |at: u64| ((at ^ seed << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
    (at..at + len as u64).map(byte).collect()
}

/// Overwrites the records of a file again and again; `synced` is the acknowledged version of each.
fn overwrite(directory: &Path, synced: &[AtomicU64]) -> io::Result<()> {
    let file = File::create(directory.join("records"))?;
    let mut random = Random::new(5);
    for version in 1.. {
        let record = random.below(RECORDS);
        file.write_all_at(&versioned(record, version), record * RECORD as u64)?;
        if version % 3 == 0 {
            file.sync_data()?;
            synced[record as usize].store(version, Relaxed);
        }
    }
    Ok(())
}

fn versioned(record: u64, version: u64) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(pattern(version << 8 | record, RECORD - 8));
    bytes
}

/// Replaces a file as programs do: a new file is written and synced, and is renamed to the old one.
/// `synced` is the version that has the name.
fn replace(directory: &Path, synced: &AtomicU64) -> io::Result<()> {
    for version in 1.. {
        let file = File::create(directory.join("replaced.new"))?;
        file.write_all_at(&pattern(version, 20_000), 0)?;
        file.sync_all()?;
        drop(file);
        fs::rename(directory.join("replaced.new"), directory.join("replaced"))?;
        synced.store(version, Relaxed);
    }
    Ok(())
}

/// The acknowledged data at the time when the server was killed.
#[derive(Default)]
struct Synced {
    grown: [AtomicU64; 2],
    records: Vec<AtomicU64>,
    replaced: AtomicU64,
}

/// Writes until the server is gone.
fn write_until_killed(directory: &Path, server: &mut ServedElsewhere, synced: &Synced) {
    let until = Instant::now() + LIMIT;
    thread::scope(|scope| {
        let mut writers = vec![
            scope.spawn(|| overwrite(directory, &synced.records)),
            scope.spawn(|| replace(directory, &synced.replaced)),
        ];
        for (number, synced) in (0..).zip(&synced.grown) {
            let name = format!("grown{number}");
            writers.push(scope.spawn(move || append(directory, &name, number, synced)));
        }
        let records = || synced.records.iter().map(|version| version.load(Relaxed)).max();
        while synced.replaced.load(Relaxed) * 4 < SYNCS || records() < Some(SYNCS) {
            let failed = writers.iter().any(thread::ScopedJoinHandle::is_finished);
            if failed || Instant::now() > until {
                break;
            }
            thread::yield_now();
        }
        server.kill();
        for writer in writers {
            let error = writer.join().unwrap().unwrap_err();
            let gone = [Errno::NOTCONN, Errno::CONNABORTED].map(|errno| Some(errno.raw_os_error()));
            assert!(gone.contains(&error.raw_os_error()), "a writer failed before: {error}");
        }
        assert!(Instant::now() <= until, "too little has been written within {LIMIT:?}");
    });
}

fn check(directory: &Path, synced: &Synced) {
    for (number, synced) in (0..).zip(&synced.grown) {
        let bytes = fs::read(directory.join(format!("grown{number}"))).unwrap();
        let synced = synced.load(Relaxed) as usize;
        assert!(bytes.len() >= synced, "{synced} bytes were synced, {} are there", bytes.len());
        assert!(bytes[..synced] == appended(number, 0, synced), "synced bytes have changed");
    }
    let file = OpenOptions::new().read(true).open(directory.join("records")).unwrap();
    for (record, synced) in (0..).zip(&synced.records) {
        let synced = synced.load(Relaxed);
        if synced == 0 {
            continue;
        }
        let mut bytes = vec![0; RECORD];
        file.read_exact_at(&mut bytes, record * RECORD as u64).unwrap();
        let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        // A later version can have been stored as well; in part, if it was in progress.
        assert!(version >= synced, "record {record}: {synced} was synced, {version} is there");
        let later = version > synced;
        assert!(later || bytes == versioned(record, version), "record {record}, {version}");
    }
    let synced = synced.replaced.load(Relaxed);
    let bytes = fs::read(directory.join("replaced")).unwrap();
    let known = [synced, synced + 1].iter().any(|&version| bytes == pattern(version, 20_000));
    assert!(
        known,
        "version {synced} had the name, and what has it now is neither that nor the next"
    );
}

fn survives(name: &str, cache: CacheMode, storm: bool) {
    if !possible() {
        return;
    }
    let scratch = scratch();
    let [source, mountpoint] = ["source", "mnt"].map(|name| scratch.path().join(name));
    for directory in [&source, &source.join(name), &mountpoint] {
        fs::create_dir(directory).unwrap();
    }
    let program = env!("CARGO_BIN_EXE_acceptance-serve");
    // Few frames, so that unsynced data is written back and evicted all the time.
    let mut server =
        ServedElsewhere::start(program, (&source, &mountpoint), cache, 512 << 10, storm);
    let records = (0..RECORDS).map(|_| AtomicU64::new(0)).collect();
    let synced = Synced { records, ..Synced::default() };
    write_until_killed(&mountpoint.join(name), &mut server, &synced);
    drop(server);
    let mut again = Served::of(name, source, mountpoint, scratch, cache, 4 << 20);
    check(&again.directory(), &synced);
    again.unmount();
}

#[test]
fn synced_data_survives_direct() {
    survives("crash-direct", CacheMode::Direct, true);
}

#[test]
fn synced_data_survives_kernel() {
    survives("crash-kernel", CacheMode::Kernel, true);
}
