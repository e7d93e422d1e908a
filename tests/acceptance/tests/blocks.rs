//! Writers and readers check every byte of two files, with far fewer frames than pages, so that
//! evictions, write-back and swaps coincide all the time.

use refit_acceptance::{CacheMode, Pace, Random, Served, pattern, possible};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::RwLock;
use std::thread;

/// The size of a block. It does not divide a page, so that most blocks share pages with their
/// neighbors, and some cross a page border.
const BLOCK: usize = 3000;
/// The number of blocks of one file: 12 MB in all, for 1 MiB of frames.
const BLOCKS: usize = 2000;
const FRAMES: u64 = 1 << 20;
/// The number of operations of each thread.
const ROUNDS: u64 = 20_000;

/// A file, and the version of each of its blocks. A thread that writes a block holds its lock, so
/// that a reader knows the expected bytes; blocks of one page are still written at the same time.
struct Checked {
    number: u64,
    file: File,
    versions: Vec<RwLock<u64>>,
}

impl Checked {
    fn new(number: u64, path: &Path) -> Self {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path).unwrap();
        let versions = (0..BLOCKS).map(|_| RwLock::new(0)).collect();
        Self { number, file, versions }
    }

    fn block(&self, block: usize, version: u64) -> Vec<u8> {
        if version == 0 {
            return vec![0; BLOCK];
        }
        let place = (self.number << 48) | ((block as u64) << 32);
        let mut bytes = (place | version).to_le_bytes().to_vec();
        bytes.extend(pattern(place | version, BLOCK - 8));
        bytes
    }

    fn write(&self, block: usize) {
        let mut version = self.versions[block].write().unwrap();
        *version += 1;
        let at = (block * BLOCK) as u64;
        self.file.write_all_at(&self.block(block, *version), at).unwrap();
    }

    fn check(&self, block: usize) {
        let version = self.versions[block].read().unwrap();
        let mut bytes = vec![0xEE; BLOCK];
        self.file.read_exact_at(&mut bytes, (block * BLOCK) as u64).unwrap();
        if bytes != self.block(block, *version) {
            let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let at = bytes.iter().zip(self.block(block, *version)).position(|(a, b)| *a != b);
            panic!(
                "file {}, block {block}: version {version} expected, head {found:#x}, \
                differs at {at:?}",
                self.number
            );
        }
    }

    fn check_all(&self) {
        (0..BLOCKS).for_each(|block| self.check(block));
    }
}

fn run(name: &str, cache: CacheMode) {
    if !possible() {
        return;
    }
    let mut served = Served::new(name, cache, FRAMES);
    let files = [1, 2].map(|n| Checked::new(n, &served.path(&format!("file{n}"))));
    for file in &files {
        file.file.set_len((BLOCKS * BLOCK) as u64).unwrap();
    }
    let storm = served.storm(Pace::EachMillisecond);
    thread::scope(|scope| {
        for thread in 0..4 {
            let files = &files;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for round in 0..ROUNDS {
                    let file = &files[random.below(2) as usize];
                    let block = random.below(BLOCKS as u64) as usize;
                    if thread < 2 {
                        file.write(block);
                    } else {
                        file.check(block);
                    }
                    if round % 4000 == 1000 * thread {
                        file.file.sync_data().unwrap();
                    }
                }
            });
        }
    });
    files.iter().for_each(Checked::check_all);
    let tally = storm.stop();
    assert!(tally.committed > 200, "{} swaps", tally.committed);
    let files = files.map(|file| (file.number, file.versions));
    served.unmount();
    for (number, versions) in files {
        // The host has the data that was written last.
        let file = File::open(served.host(&format!("file{number}"))).unwrap();
        Checked { number, file, versions }.check_all();
    }
}

#[test]
fn every_byte_is_what_was_written_last_direct() {
    run("blocks-direct", CacheMode::Direct);
}

#[test]
fn every_byte_is_what_was_written_last_kernel() {
    run("blocks-kernel", CacheMode::Kernel);
}
