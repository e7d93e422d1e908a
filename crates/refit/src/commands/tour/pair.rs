//! A writer and a reader that check every byte.
//!
//! Files are written in blocks whose length is no multiple of the page size, so that most of them
//! span two or three pages. Each write of a block increments its *version*, and every word of it is
//! computed from file, block, place and version, so that no data can be right by accident. The
//! writer publishes the version that it begins to write and, when `pwrite` has returned, the
//! version that is done. A reader loads the version done before it reads and the version begun
//! after it has read: every word must be of one of the versions between these. An older one is a
//! lost update, a newer one is impossible, anything else is corruption.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// The size of a block in bytes: a thousand words, not a multiple of the page size.
const BLOCK: usize = 8000;
const WORD: usize = size_of::<u64>();
/// The number of blocks of a file.
const BLOCKS: usize = 512;
/// The number of files, each with a cache of its own.
pub(super) const FILES: usize = 4;
/// The number of blocks that are read or written at once: long accesses are in progress when a swap
/// comes.
const RUN: usize = 12;
/// The pause between two accesses of each of the two, which check the data and are not the load.
const PACE: Duration = Duration::from_micros(500);
/// The number of writes after which the file is synchronized once.
const SYNC_EVERY: u64 = 256;

/// The results of the checks so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// The number of bytes that were read and compared.
    pub(super) checked: u64,
    /// The number of bytes that were written.
    pub(super) written: u64,
    /// The number of bytes that were wrong.
    pub(super) wrong: u64,
    /// The number of operations that failed.
    pub(super) failed: u64,
    /// The first wrong byte or failure, in words.
    pub(super) first: Option<String>,
}

impl Tally {
    fn take(&mut self, other: Tally) {
        self.checked += other.checked;
        self.wrong += other.wrong;
        self.first = self.first.take().or(other.first);
    }

    fn complain(&mut self, what: impl FnOnce() -> String) {
        if self.first.is_none() {
            self.first = Some(what());
        }
    }
}

/// The version of a block.
#[derive(Debug, Default)]
struct Version {
    begun: AtomicU64,
    done: AtomicU64,
}

/// Versions by file and block.
type Versions = Vec<Vec<Version>>;

struct Shared {
    files: Vec<File>,
    versions: Arc<Versions>,
    tally: Mutex<Tally>,
    stop: AtomicBool,
}

/// The writer and the reader.
pub(super) struct Pair {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// The results of the two; no file is held open, so that the mount can be removed.
pub(super) struct Written {
    versions: Arc<Versions>,
    tally: Tally,
}

impl Pair {
    /// Writes every block once, then starts the two threads.
    pub(super) fn start(directory: &Path) -> io::Result<Self> {
        let open = |i| {
            let path = directory.join(name(i));
            OpenOptions::new().read(true).write(true).create_new(true).open(path)
        };
        let shared = Arc::new(Shared {
            files: (0..FILES).map(open).collect::<io::Result<_>>()?,
            versions: Arc::new(
                (0..FILES).map(|_| (0..BLOCKS).map(|_| Version::default()).collect()).collect(),
            ),
            tally: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        for file in 0..FILES {
            for block in (0..BLOCKS).step_by(RUN) {
                shared.write(file, block)?;
            }
        }
        let write = Arc::clone(&shared);
        let read = Arc::clone(&shared);
        let threads = vec![
            thread::spawn(move || write.work(1, Shared::write_and_sometimes_sync)),
            thread::spawn(move || read.work(2, Shared::read_and_check)),
        ];
        Ok(Pair { shared, threads })
    }

    /// Returns the results so far.
    pub(super) fn tally(&self) -> Tally {
        self.shared.tally().clone()
    }

    /// Ends the two and closes the files.
    pub(super) fn stop(mut self) -> Written {
        self.end();
        Written { versions: Arc::clone(&self.shared.versions), tally: self.tally() }
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.end();
    }
}

impl Written {
    /// Returns the results of the time while the directory was served.
    pub(super) fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// Reads all files in the source directory and compares them with the last written data.
    pub(super) fn check_at_rest(&self, directory: &Path) -> Tally {
        let mut tally = Tally::default();
        let mut bytes = vec![0; BLOCK];
        for (i, versions) in self.versions.iter().enumerate() {
            let path = directory.join(name(i));
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(e) => {
                    tally.failed += 1;
                    tally.complain(|| format!("open {}: {e}", path.display()));
                    continue;
                }
            };
            for (block, version) in versions.iter().enumerate() {
                match file.read_exact_at(&mut bytes, offset(block)) {
                    Ok(()) => {
                        let done = version.done.load(Ordering::SeqCst);
                        compare(&mut tally, &bytes, (i, block), (done, done));
                    }
                    Err(e) => {
                        tally.failed += 1;
                        tally.complain(|| format!("read {}: {e}", path.display()));
                    }
                }
            }
        }
        tally
    }
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock()
    }

    fn work(&self, seed: u64, act: fn(&Self, usize, usize, u64) -> io::Result<()>) {
        let mut random = seed;
        let mut n = 0;
        while !self.stop.load(Ordering::Relaxed) {
            random = mix(random);
            let file = (random >> 8) as usize % FILES;
            let block = (random >> 32) as usize % BLOCKS;
            n += 1;
            if let Err(e) = act(self, file, block, n) {
                let mut tally = self.tally();
                tally.failed += 1;
                tally.complain(|| format!("{} block {block}: {e}", name(file)));
            }
            thread::sleep(PACE);
        }
    }

    /// Returns the blocks that are read or written together, from this one on.
    fn run(block: usize) -> std::ops::Range<usize> {
        block..(block + RUN).min(BLOCKS)
    }

    /// Writes a block; called by one thread only.
    fn write(&self, file: usize, block: usize) -> io::Result<()> {
        let versions = &self.versions[file];
        let mut bytes = Vec::with_capacity(RUN * BLOCK);
        for block in Self::run(block) {
            let next = versions[block].begun.load(Ordering::SeqCst) + 1;
            versions[block].begun.store(next, Ordering::SeqCst);
            bytes.extend(content(file, block, next));
        }
        self.files[file].write_all_at(&bytes, offset(block))?;
        for block in Self::run(block) {
            let begun = versions[block].begun.load(Ordering::SeqCst);
            versions[block].done.store(begun, Ordering::SeqCst);
        }
        self.tally().written += bytes.len() as u64;
        Ok(())
    }

    fn write_and_sometimes_sync(&self, file: usize, block: usize, n: u64) -> io::Result<()> {
        self.write(file, block)?;
        if n.is_multiple_of(SYNC_EVERY) { self.files[file].sync_data() } else { Ok(()) }
    }

    fn read_and_check(&self, file: usize, block: usize, _: u64) -> io::Result<()> {
        let blocks = Self::run(block);
        let versions = &self.versions[file][blocks.clone()];
        let mut bytes = vec![0; blocks.len() * BLOCK];
        let from: Vec<u64> = versions.iter().map(|v| v.done.load(Ordering::SeqCst)).collect();
        self.files[file].read_exact_at(&mut bytes, offset(block))?;
        let to: Vec<u64> = versions.iter().map(|v| v.begun.load(Ordering::SeqCst)).collect();
        let mut found = Tally::default();
        for (i, block) in blocks.enumerate() {
            let bytes = &bytes[i * BLOCK..(i + 1) * BLOCK];
            compare(&mut found, bytes, (file, block), (from[i], to[i]));
        }
        self.tally().take(found);
        Ok(())
    }
}

fn compare(tally: &mut Tally, bytes: &[u8], place: (usize, usize), versions: (u64, u64)) {
    let (file, block) = place;
    let seeds: Vec<u64> = (versions.0..=versions.1).map(|v| seed(file, block, v)).collect();
    tally.checked += bytes.len() as u64;
    let (words, _) = bytes.as_chunks::<WORD>();
    for (i, word) in words.iter().enumerate() {
        let found = u64::from_le_bytes(*word);
        if seeds.iter().any(|seed| word_at(*seed, i) == found) {
            continue;
        }
        tally.wrong += WORD as u64;
        tally.complain(|| {
            let at = offset(block) + (i * WORD) as u64;
            let old = (0..versions.0).rev().find(|v| word_at(seed(file, block, *v), i) == found);
            let what = match old {
                Some(old) => format!("is of version {old}"),
                None => format!("holds {found:#018x}"),
            };
            let (a, b) = versions;
            format!("{} byte {at} {what}; expected a version from {a} to {b}", name(file))
        });
    }
}

fn name(file: usize) -> String {
    file.to_string()
}

fn offset(block: usize) -> u64 {
    (block * BLOCK) as u64
}

fn content(file: usize, block: usize, version: u64) -> Vec<u8> {
    let seed = seed(file, block, version);
    (0..BLOCK / WORD).flat_map(|i| word_at(seed, i).to_le_bytes()).collect()
}

fn seed(file: usize, block: usize, version: u64) -> u64 {
    mix(version ^ (file as u64) << 60 ^ (block as u64) << 44)
}

fn word_at(seed: u64, i: usize) -> u64 {
    mix(seed.wrapping_add(i as u64))
}

/// The finalizer of SplitMix64: a bijection without a pattern.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_file_system_passes() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let pair = Pair::start(directory.path()).expect("it starts");
        while pair.tally().checked < 50 * BLOCK as u64 {
            thread::yield_now();
        }
        let written = pair.stop();
        let tally = written.tally();
        assert_eq!((tally.wrong, tally.failed, tally.first), (0, 0, None));
        assert!(tally.written >= (FILES * BLOCKS * BLOCK) as u64);
        let at_rest = written.check_at_rest(directory.path());
        assert_eq!((at_rest.wrong, at_rest.failed), (0, 0));
        assert_eq!(at_rest.checked, (FILES * BLOCKS * BLOCK) as u64);

        let path = directory.path().join(name(2));
        let file = OpenOptions::new().write(true).open(path).expect("it is there");
        file.write_all_at(b"!", 12_345).expect("written");
        let at_rest = written.check_at_rest(directory.path());
        assert_eq!((at_rest.wrong, at_rest.failed), (WORD as u64, 0), "one flipped byte is found");
    }

    #[test]
    fn lost_updates_and_torn_words_are_told() {
        let check = |bytes: &[u8], versions| {
            let mut tally = Tally::default();
            compare(&mut tally, bytes, (1, 7), versions);
            tally
        };
        let (old, new) = (content(1, 7, 4), content(1, 7, 5));
        let mixed = [&new[..4000], &old[4000..]].concat();
        assert_eq!(check(&mixed, (4, 5)).wrong, 0, "while it is being written both are right");
        let tally = check(&mixed, (5, 5));
        assert_eq!(tally.wrong, 4000);
        assert!(tally.first.is_some_and(|f| f.contains("is of version 4")));
        assert_eq!(check(&content(1, 8, 5), (5, 5)).wrong, 8000, "another block's content");
        assert_eq!(check(&[0; BLOCK], (5, 5)).wrong, 8000);
    }
}
