//! A directory that is served for one test.

#![allow(dead_code, unreachable_pub, reason = "not every test file uses everything")]

use refit_files::{CacheMode, Mount, MountError, MountOptions, Users, mount};
use std::path::{Path, PathBuf};

pub struct Served {
    mount: Option<Mount>,
    pub source: PathBuf,
    pub mountpoint: PathBuf,
    _directory: tempfile::TempDir,
}

/// Waits until the clock that stamps files has advanced, so that a later write gets a later time.
pub fn clock_goes_on() {
    use rustix::time::{ClockId, clock_gettime};
    // The server stamps files from the coarse clock, which advances by a tick at a time. The kernel
    // stamps a file whose times were read since with a finer clock (Linux 6.13). The next tick is
    // later than both.
    let now = clock_gettime(ClockId::Realtime);
    while clock_gettime(ClockId::RealtimeCoarse) <= now {
        std::thread::yield_now();
    }
}

/// Returns whether other users can reach the directories of the tests; prints a message if they
/// cannot.
pub fn others_reach_us() -> bool {
    let reached = refit_sys::credentials::anybody_reaches(Path::new("/var/tmp"));
    if !reached {
        println!("skipped: other users may not pass through the directories above /var/tmp");
    }
    reached
}

/// Returns whether mounts can be tested on this host.
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
        users: Users::Owner,
        read_only: false,
        xattrs: true,
        awake: false,
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
    /// Mounts an empty directory; `None` where mounts are not possible.
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
        let mount = match mount(options) {
            Err(error @ MountError::NoPassthrough { .. }) => {
                eprintln!("skipped: {error}");
                return None;
            }
            mounted => Some(mounted.unwrap()),
        };
        Some(Self { mount, source, mountpoint, _directory: directory })
    }

    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().unwrap()
    }

    /// Returns a path in the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    /// Returns the path of the same file on the host.
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

/// Runs a test in every cache mode.
pub fn in_every_mode(test: impl Fn(&Served)) {
    in_modes(&[CacheMode::Exclusive], &test);
    in_watching_modes(test);
}

/// Runs a test in every cache mode in which an open notices what others have changed.
pub fn in_watching_modes(test: impl Fn(&Served)) {
    in_modes(&[CacheMode::Kernel, CacheMode::Direct, CacheMode::Passthrough], test);
}

/// Runs a test in every cache mode in which an open creates the objects of a file.
pub fn in_opening_modes(test: impl Fn(&Served)) {
    in_modes(&[CacheMode::Kernel, CacheMode::Direct], test);
}

fn in_modes(modes: &[CacheMode], test: impl Fn(&Served)) {
    for &mode in modes {
        if let Some(served) = Served::new(mode) {
            test(&served);
            served.unmount();
        }
    }
}

/// Returns bytes that differ from place to place.
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
