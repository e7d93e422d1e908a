//! A directory that this process serves for one test.

use crate::storm::{Pace, Storm};
use crate::tools::skip;
use crate::watchdog::Watchdog;
use refit_files::{CacheMode, Mount, MountOptions, Users, mount};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Returns whether mounts can be tested on this host; prints the reason if not.
pub fn possible() -> bool {
    let possible = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !possible {
        skip("needs root and /dev/fuse");
    }
    possible
}

/// Creates a directory for the files of a test: in `REFIT_SCRATCH`, or in `/var/tmp`, which is a
/// real file system nearly everywhere. Its path is short, because the paths of the sockets that are
/// bound below it are limited to 107 bytes.
///
/// # Panics
///
/// The directory cannot be created.
pub fn scratch() -> TempDir {
    let place = std::env::var_os("REFIT_SCRATCH").unwrap_or_else(|| "/var/tmp".into());
    let made = tempfile::Builder::new().prefix("refit-").tempdir_in(place);
    let made = made.expect("a scratch directory can be made");
    // Some tests act as other users.
    fs::set_permissions(made.path(), Permissions::from_mode(0o755)).expect("it is ours");
    made
}

/// A mount of an empty directory, and a directory in it in which the test works.
#[derive(Debug)]
pub struct Served {
    mount: Option<Mount>,
    /// Dropped after the mount.
    _watchdog: Watchdog,
    name: String,
    source: PathBuf,
    mountpoint: PathBuf,
    scratch: TempDir,
}

impl Served {
    /// Serves an empty directory. `name` becomes the name of the directory in which the test works;
    /// no other test of the process may use it.
    ///
    /// # Panics
    ///
    /// The mount fails.
    pub fn new(name: &str, cache: CacheMode, frames_bytes: u64) -> Self {
        let scratch = scratch();
        let (source, mountpoint) = (scratch.path().join("source"), scratch.path().join("mnt"));
        for directory in [&source, &mountpoint, &source.join(name)] {
            fs::create_dir(directory).expect("the scratch directory is ours");
        }
        Self::of(name, source, mountpoint, scratch, cache, frames_bytes)
    }

    /// Serves `source`, which contains a directory called `name`.
    ///
    /// # Panics
    ///
    /// The mount fails.
    pub fn of(
        name: &str,
        source: PathBuf,
        mountpoint: PathBuf,
        scratch: TempDir,
        cache: CacheMode,
        frames_bytes: u64,
    ) -> Self {
        let options = MountOptions {
            source: source.clone(),
            mountpoint: mountpoint.clone(),
            frames_bytes,
            cache,
            workers: None,
            composition: refit_files::composition("shared"),
            users: Users::All,
            read_only: false,
            xattrs: true,
            awake: false,
        };
        let watchdog = Watchdog::of(mountpoint.clone());
        let mount = mount(options).unwrap_or_else(|error| panic!("{error}"));
        let name = name.to_owned();
        Self { mount: Some(mount), _watchdog: watchdog, name, source, mountpoint, scratch }
    }

    /// Returns the mount.
    ///
    /// # Panics
    ///
    /// It has been unmounted.
    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().expect("it is mounted")
    }

    /// Returns the directory in which the test works.
    pub fn directory(&self) -> PathBuf {
        self.mountpoint.join(&self.name)
    }

    /// Returns the path of a file in the mount.
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory().join(file)
    }

    /// Returns the path of the same file on the host.
    pub fn host(&self, file: &str) -> PathBuf {
        self.source.join(&self.name).join(file)
    }

    /// Returns a directory on the host outside of the mount.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the prefix of the names of the test's file caches.
    pub fn prefix(&self) -> String {
        format!("fcm:/{}/", self.name)
    }

    /// Begins to swap all file caches of this test.
    pub fn storm(&self, pace: Pace) -> Storm {
        Storm::start(self.prefix(), pace)
    }

    /// Unmounts, after which all written data is on the host.
    ///
    /// # Panics
    ///
    /// The unmount failed, a request made the server panic, or the server was unable to write data.
    pub fn unmount(&mut self) {
        let mount = self.mount.take().expect("it is mounted");
        let stats = mount.stats();
        mount.unmount().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((stats.panics, stats.write_back_errors), (0, 0), "{stats:?}");
    }
}
