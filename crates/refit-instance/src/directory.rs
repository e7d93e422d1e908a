//! The directories in which instances create their sockets, and the search for instances.
//!
//! An instance listens on `PID.sock` in a directory that only its user can enter:
//! `$XDG_RUNTIME_DIR/refit`, for root `/run/refit`, otherwise `/tmp/refit-UID`.
//! `$REFIT_RUNTIME_DIR` overrides all of them. Since a user may be logged in with and without a
//! runtime directory (`su`, `sudo`, cron), an instance listens in the first of these and is
//! searched for in each.
//!
//! The socket of an instance that was killed remains as a file that refuses connections. It cannot
//! be mistaken for the socket of an instance that is starting: the file gets its name only after
//! the socket listens.
//!
//! The file `PID.log` beside the socket records internal errors of an instance that has no
//! terminal. It is kept after the end of the instance if it exists.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

use crate::refusal::{Kind, Refusal};

/// The environment variable that overrides the directory; messages mention it.
const OVERRIDE: &str = "REFIT_RUNTIME_DIR";

/// A directory for sockets that belongs to this user alone.
#[derive(Clone, Debug)]
pub struct SocketDirectory(PathBuf);

/// The result of the search for instances.
#[derive(Debug, Default)]
pub struct RunningInstances {
    /// Sockets that accept connections, with the process that bound them, sorted by process.
    pub live: Vec<(u32, PathBuf)>,
    /// Processes whose sockets were left behind; the sockets have been removed.
    pub dead: Vec<u32>,
    /// Directories that were skipped because others than this user can write to them. Their
    /// contents cannot be trusted, and anybody can create some of these directories.
    pub distrusted: Vec<Refusal>,
}

impl SocketDirectory {
    /// Opens the directory in which an instance of this user listens, and creates it if it is
    /// missing.
    ///
    /// # Errors
    ///
    /// The directory cannot be created, or others can write to it.
    pub fn open() -> Result<Self, Refusal> {
        let path = candidates().into_iter().next().unwrap_or_else(|| per_user(Path::new("/tmp")));
        Self::at(&path)
    }

    /// Opens a directory of the caller's choice, and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// The directory cannot be created, or others can write to it.
    pub fn at(path: &Path) -> Result<Self, Refusal> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(refused(path, format!("cannot be created: {}", reason(&e))));
            }
            _ => {}
        }
        check(path)?;
        Ok(SocketDirectory(path.to_owned()))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the socket of a process.
    pub fn socket(&self, pid: u32) -> PathBuf {
        self.0.join(format!("{pid}.sock"))
    }

    /// Returns the path of the file to which a process without a terminal writes internal errors.
    pub fn log(&self, pid: u32) -> PathBuf {
        self.0.join(format!("{pid}.log"))
    }

    /// Listens on the socket of a process, which has the mode 0600.
    ///
    /// # Errors
    ///
    /// Returns the error of the system call that failed.
    pub(crate) fn listen(&self, pid: u32) -> io::Result<UnixListener> {
        let making = self.0.join(format!(".{pid}.new"));
        let _ = fs::remove_file(&making);
        let listener = UnixListener::bind(&making)?;
        fs::set_permissions(&making, fs::Permissions::from_mode(0o600))?;
        fs::rename(&making, self.socket(pid))?;
        Ok(listener)
    }
}

/// Searches for the instances of this user, and removes the sockets of those that have died.
///
/// # Errors
///
/// The directory named by `REFIT_RUNTIME_DIR` can be written by others.
pub fn find() -> Result<RunningInstances, Refusal> {
    let named = named();
    let found = look_for(&candidates());
    match found.distrusted.first() {
        Some(refusal) if named.is_some() => Err(refusal.clone()),
        _ => Ok(found),
    }
}

fn look_for(directories: &[PathBuf]) -> RunningInstances {
    let mut found = RunningInstances::default();
    for directory in directories {
        if fs::symlink_metadata(directory).is_ok() {
            match check(directory) {
                Ok(()) => look_into(directory, &mut found),
                Err(refusal) => found.distrusted.push(refusal),
            }
        }
    }
    found.live.sort();
    found.dead.sort_unstable();
    found
}

/// Returns the directory that the environment names.
fn named() -> Option<PathBuf> {
    env::var_os(OVERRIDE).filter(|name| !name.is_empty()).map(PathBuf::from)
}

fn look_into(directory: &Path, found: &mut RunningInstances) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Some(pid) = pid_of(&path) else { continue };
        match knock(&path) {
            // An instance whose queue of connections is full is alive, too.
            Ok(()) | Err(Errno::AGAIN) => found.live.push((pid, path)),
            Err(Errno::CONNREFUSED) => {
                let log = path.with_extension("log");
                if log.metadata().is_ok_and(|log| log.len() == 0) {
                    let _ = fs::remove_file(log);
                }
                if fs::remove_file(&path).is_ok() {
                    found.dead.push(pid);
                }
            }
            // Removed since the directory was read, or inaccessible: neither alive nor known to be
            // dead.
            Err(_) => {}
        }
    }
}

/// Returns whether a process listens on the socket, busy or not.
pub(crate) fn listens(path: &Path) -> bool {
    matches!(knock(path), Ok(()) | Err(Errno::AGAIN))
}

/// Connects to the socket without waiting for `accept`.
fn knock(path: &Path) -> rustix::io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

fn pid_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()
}

/// Returns the directories in which a socket of this user may be, the preferred one first.
fn candidates() -> Vec<PathBuf> {
    if let Some(path) = named() {
        return vec![path];
    }
    let mut all = Vec::new();
    if let Some(runtime) = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        // After `su` the variable may still name the runtime directory of another user.
        if fs::metadata(&runtime).is_ok_and(|m| m.is_dir() && m.uid() == geteuid().as_raw()) {
            all.push(runtime.join("refit"));
        }
    }
    let login = PathBuf::from(format!("/run/user/{}", geteuid().as_raw()));
    if geteuid().is_root() {
        all.push(PathBuf::from("/run/refit"));
        all.push(login.join("refit"));
    } else {
        all.push(per_user(Path::new("/tmp")));
        all.push(login.join("refit"));
    }
    all.dedup();
    all
}

fn per_user(parent: &Path) -> PathBuf {
    parent.join(format!("refit-{}", geteuid().as_raw()))
}

/// Checks that no other user can write to the directory, since that user could create a socket in
/// it.
fn check(path: &Path) -> Result<(), Refusal> {
    let meta = fs::symlink_metadata(path)
        .map_err(|e| refused(path, format!("cannot be read: {}", reason(&e))))?;
    if !meta.is_dir() {
        return Err(refused(path, "is not a directory".into()));
    }
    if meta.uid() != geteuid().as_raw() {
        return Err(refused(path, format!("belongs to uid {}", meta.uid())));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(refused(path, "can be written by others".into()));
    }
    Ok(())
}

fn refused(path: &Path, obstacle: String) -> Refusal {
    Refusal::new(
        Kind::Failed,
        format!("use {} for control sockets", path.display()),
        obstacle,
        format!("correct that, or name another directory in {OVERRIDE}"),
    )
}

/// Returns the system's text for an error, without the number that `io::Error` appends.
pub(crate) fn reason(e: &io::Error) -> String {
    let text = e.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn makes_a_directory_for_this_user_alone() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = top.path().join("refit");
        SocketDirectory::at(&path).expect("it can be made");
        let mode = fs::metadata(&path).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o700);
        SocketDirectory::at(&path).expect("it can be used again");
    }

    #[test]
    fn refuses_what_others_could_have_prepared() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let open = top.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("opened");
        let why = SocketDirectory::at(&open).expect_err("others can write into it");
        assert_eq!(why.obstacle, "can be written by others");

        let link = top.path().join("link");
        symlink(top.path(), &link).expect("linked");
        let why = SocketDirectory::at(&link).expect_err("it is a link");
        assert_eq!(why.obstacle, "is not a directory");

        let why = SocketDirectory::at(&top.path().join("a/b")).expect_err("no parent");
        assert_eq!(why.obstacle, "cannot be created: no such file or directory");
    }

    /// Anybody can create `/tmp/refit-UID`, which must not hide the instances in other directories
    /// from the user.
    #[test]
    fn a_directory_of_somebody_else_hides_no_instance() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let foreign = top.path().join("foreign");
        fs::create_dir(&foreign).expect("made");
        fs::set_permissions(&foreign, fs::Permissions::from_mode(0o777)).expect("opened");
        let directory = SocketDirectory::at(&top.path().join("refit")).expect("made");
        let _listener = directory.listen(41).expect("listens");
        fs::write(foreign.join("42.sock"), "not a socket").expect("written");
        let found = look_for(&[foreign, directory.path().to_owned(), top.path().join("missing")]);
        assert_eq!(found.live, [(41, directory.socket(41))]);
        assert_eq!(found.dead, [0; 0], "nothing in a foreign directory is touched");
        let [refusal] = &found.distrusted[..] else { panic!("{:?}", found.distrusted) };
        assert_eq!(refusal.obstacle, "can be written by others");
    }

    #[test]
    fn tells_the_living_from_the_dead() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let directory = SocketDirectory::at(&top.path().join("refit")).expect("made");
        let listener = directory.listen(41).expect("listens");
        let mode = fs::metadata(directory.socket(41)).expect("is there").mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(directory.listen(42).expect("listens"));
        fs::write(directory.0.join("notes.txt"), "not a socket").expect("written");

        let mut found = RunningInstances::default();
        look_into(&directory.0, &mut found);
        assert_eq!(found.live, [(41, directory.socket(41))]);
        assert_eq!(found.dead, [42]);
        assert!(!directory.socket(42).exists(), "what the dead left behind is gone");
        drop(listener);
    }
}
