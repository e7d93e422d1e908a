//! A directory that is served for one test.

#![allow(dead_code, unreachable_pub, reason = "not every test file uses everything")]

use refit_files::{CacheMode, Mount, MountOptions, mount};
use std::path::{Path, PathBuf};

pub struct Served {
    mount: Option<Mount>,
    pub source: PathBuf,
    pub mountpoint: PathBuf,
    _directory: tempfile::TempDir,
}

/// Returns when the clock that file times are taken from has gone on: what is written then is later than before.
pub fn clock_goes_on() {
    use rustix::time::{ClockId, clock_gettime};
    // The server stamps files from the coarse clock, which goes on by a tick at a time; the kernel stamps more finely
    // what somebody has looked at (Linux 6.13). The next tick is after both.
    let now = clock_gettime(ClockId::Realtime);
    while clock_gettime(ClockId::RealtimeCoarse) <= now {
        std::thread::yield_now();
    }
}

/// Whether other users can get to where the tests work; says so where they cannot.
pub fn others_reach_us() -> bool {
    let reached = refit_sys::credentials::anybody_reaches(Path::new("/var/tmp"));
    if !reached {
        println!("skipped: other users may not pass through the directories above /var/tmp");
    }
    reached
}

/// Whether mounts can be tested here.
pub fn possible() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: needs root and /dev/fuse");
        return false;
    }
    true
}

pub fn options(source: &Path, mountpoint: &Path, cache: CacheMode) -> MountOptions {
    MountOptions {
        source: source.to_owned(),
        mountpoint: mountpoint.to_owned(),
        frames_bytes: 4 << 20,
        cache,
        workers: Some(2),
        composition: refit_files::composition("shared"),
        allow_other: false,
        read_only: false,
    }
}

pub fn directories() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::Builder::new().prefix("refit-files").tempdir_in("/var/tmp").unwrap();
    let (source, mountpoint) = (directory.path().join("source"), directory.path().join("mnt"));
    std::fs::create_dir(&source).unwrap();
    std::fs::create_dir(&mountpoint).unwrap();
    (directory, source, mountpoint)
}

impl Served {
    /// A mount of an empty directory; none where that is not possible.
    pub fn new(cache: CacheMode) -> Option<Self> {
        Self::with(cache, |_| {})
    }

    pub fn with(cache: CacheMode, change: impl FnOnce(&mut MountOptions)) -> Option<Self> {
        if !possible() {
            return None;
        }
        let (directory, source, mountpoint) = directories();
        let mut options = options(&source, &mountpoint, cache);
        change(&mut options);
        let mount = Some(mount(options).unwrap());
        Some(Self { mount, source, mountpoint, _directory: directory })
    }

    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().unwrap()
    }

    /// A path in the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    /// The same file on the host.
    pub fn host(&self, name: &str) -> PathBuf {
        self.source.join(name)
    }

    pub fn take_mount(&mut self) -> Mount {
        self.mount.take().unwrap()
    }

    pub fn unmount(mut self) {
        self.mount.take().unwrap().unmount().unwrap();
        assert!(!is_mounted(&self.mountpoint));
    }
}

pub fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == path.to_str())
}

/// Runs a test in every mode.
pub fn in_both_modes(test: impl Fn(&Served)) {
    for mode in [CacheMode::Kernel, CacheMode::Direct] {
        if let Some(served) = Served::new(mode) {
            test(&served);
            served.unmount();
        }
    }
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(len)
    .collect()
}
