//! Where instances put their sockets, and how they are found again.
//!
//! An instance listens on `PID.sock` in a directory that only its user may enter: `$XDG_RUNTIME_DIR/refit`,
//! for root `/run/refit`, else `/tmp/refit-UID`. `$REFIT_RUNTIME_DIR` overrides all of them. Since a user may
//! be logged in with and without a runtime directory (`su`, `sudo`, cron), an instance is served in the first
//! of these and looked for in each.
//!
//! A socket whose owner was killed stays behind as a file that refuses connections. That cannot be mistaken
//! for an instance that is just starting: the file gets its name only after the socket listens.
//!
//! Beside it, `PID.log` tells of faults of the instance's own, where it has no terminal. It is left where there is one.

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

/// The directory, by which it is named in messages, and how to go round it.
const OVERRIDE: &str = "REFIT_RUNTIME_DIR";

/// A directory for sockets that belongs to this user alone.
#[derive(Clone, Debug)]
pub struct SocketDirectory(PathBuf);

/// What was found when looking for instances.
#[derive(Debug, Default)]
pub struct Found {
    /// Sockets that answer, with the process that bound them, by process.
    pub live: Vec<(u32, PathBuf)>,
    /// Processes whose sockets were left behind; the sockets are gone now.
    pub dead: Vec<u32>,
    /// Directories that were passed over, since they are not this user's alone: what is in them cannot be trusted, and anybody can make some
    /// of them.
    pub distrusted: Vec<Refusal>,
}

impl SocketDirectory {
    /// The directory in which an instance of this user listens; it is made if it is missing.
    ///
    /// # Errors
    /// It cannot be made, or it is not this user's alone.
    pub fn open() -> Result<Self, Refusal> {
        let path = candidates().into_iter().next().unwrap_or_else(|| per_user(Path::new("/tmp")));
        Self::at(&path)
    }

    /// A directory of the caller's choice; it is made if it is missing.
    ///
    /// # Errors
    /// It cannot be made, or it is not this user's alone.
    pub fn at(path: &Path) -> Result<Self, Refusal> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(refused(path, format!("cannot be made: {}", reason(&e))));
            }
            _ => {}
        }
        check(path)?;
        Ok(SocketDirectory(path.to_owned()))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The socket of a process.
    pub fn socket(&self, pid: u32) -> PathBuf {
        self.0.join(format!("{pid}.sock"))
    }

    /// Where a process that has no terminal writes what it never should have to.
    pub fn log(&self, pid: u32) -> PathBuf {
        self.0.join(format!("{pid}.log"))
    }

    /// Listens on the socket of a process, mode 0600.
    ///
    /// # Errors
    /// The system call that failed.
    pub(crate) fn listen(&self, pid: u32) -> io::Result<UnixListener> {
        let making = self.0.join(format!(".{pid}.new"));
        let _ = fs::remove_file(&making);
        let listener = UnixListener::bind(&making)?;
        fs::set_permissions(&making, fs::Permissions::from_mode(0o600))?;
        fs::rename(&making, self.socket(pid))?;
        Ok(listener)
    }
}

/// Looks for the instances of this user; sockets of dead ones are removed.
///
/// # Errors
/// The directory that `REFIT_RUNTIME_DIR` names is not this user's alone.
pub fn find() -> Result<Found, Refusal> {
    let named = named();
    let found = look_for(&candidates());
    match found.distrusted.first() {
        Some(refusal) if named.is_some() => Err(refusal.clone()),
        _ => Ok(found),
    }
}

fn look_for(directories: &[PathBuf]) -> Found {
    let mut found = Found::default();
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

/// The directory that the environment names.
fn named() -> Option<PathBuf> {
    env::var_os(OVERRIDE).filter(|name| !name.is_empty()).map(PathBuf::from)
}

fn look_into(directory: &Path, found: &mut Found) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Some(pid) = pid_of(&path) else { continue };
        match knock(&path) {
            // One that has a queue at its door lives, too.
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
            // Gone since the directory was read, or out of reach: neither live nor known to be dead.
            Err(_) => {}
        }
    }
}

/// Whether somebody listens there, busy or not.
pub(crate) fn listens(path: &Path) -> bool {
    matches!(knock(path), Ok(()) | Err(Errno::AGAIN))
}

/// Calls, and does not wait until they have time.
fn knock(path: &Path) -> rustix::io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

fn pid_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()
}

/// Directories in which a socket of this user may be, the preferred one first.
fn candidates() -> Vec<PathBuf> {
    if let Some(path) = named() {
        return vec![path];
    }
    let mut all = Vec::new();
    if let Some(runtime) = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        // After `su` the variable may still name the runtime directory of somebody else.
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

/// Whoever may write into the directory could put a socket of their own there.
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
        format!("put it right, or name another directory in {OVERRIDE}"),
    )
}

/// The words of the system for an error, without the number that `io::Error` puts after them.
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
        assert_eq!(why.obstacle, "cannot be made: no such file or directory");
    }

    /// Anybody can make `/tmp/refit-UID`: that must not keep the user from the instances in other directories.
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

        let mut found = Found::default();
        look_into(&directory.0, &mut found);
        assert_eq!(found.live, [(41, directory.socket(41))]);
        assert_eq!(found.dead, [42]);
        assert!(!directory.socket(42).exists(), "what the dead left behind is gone");
        drop(listener);
    }
}
