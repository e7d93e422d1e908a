//! Files that refit keeps for this user: in directories for caches and for state that belong to the
//! user, readable and writable by nobody else.
//!
//! A file that somebody else owns or could have written, or that is a symbolic link, is not read. A
//! file is replaced as a whole: a reader sees the old content or the new one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, OFlags};

/// A directory of the user, as the XDG Base Directory Specification has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// For data that can be computed again: `$XDG_CACHE_HOME`, or `~/.cache`.
    Cache,
    /// For data that is lost if it is deleted: `$XDG_STATE_HOME`, or `~/.local/state`.
    State,
}

/// Why a file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// No file, or not of this user alone.
    #[error("it is no file that belongs to this user alone")]
    Foreign,
    /// Larger than refit writes such a file.
    #[error("it is larger than refit writes it")]
    Large,
}

impl From<Unfit> for io::Error {
    fn from(why: Unfit) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, why)
    }
}

/// Returns the directory `name` of refit's in a base directory; `None` if the environment names no
/// absolute path for it.
pub fn directory(base: Base, name: &str) -> Option<PathBuf> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    let set = |variable: &str| std::env::var_os(variable).and_then(absolute);
    let (variable, below_home) = match base {
        Base::Cache => ("XDG_CACHE_HOME", ".cache"),
        Base::State => ("XDG_STATE_HOME", ".local/state"),
    };
    let root = set(variable).or_else(|| set("HOME").map(|home| home.join(below_home)));
    root.map(|root| root.join("refit").join(name))
}

/// Creates a directory, and those above it, for this user alone; it may exist.
///
/// # Errors
/// The error of the system.
pub fn create_directory(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Creates a directory, as [`create_directory`] does, and waits until this process alone has it
/// locked. The lock ends when the result is dropped.
///
/// # Errors
/// The error of the system.
pub fn lock(directory: &Path) -> io::Result<File> {
    create_directory(directory)?;
    let opened = File::open(directory)?;
    rustix::fs::flock(&opened, FlockOperation::LockExclusive)?;
    Ok(opened)
}

/// Returns options with which a file is opened or created for this user alone, and symbolic links
/// are not followed.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Checks that an open file belongs to this user alone, and returns its size in bytes.
///
/// # Errors
/// [`Unfit::Foreign`], or the error of the system.
pub fn check(file: &File) -> io::Result<u64> {
    let meta = file.metadata()?;
    let own = meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o077 == 0;
    if meta.is_file() && own { Ok(meta.len()) } else { Err(Unfit::Foreign.into()) }
}

/// Reads a file of at most `largest` bytes.
///
/// # Errors
/// [`Unfit`], or the error of the system.
pub fn read(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let file = options().read(true).open(path)?;
    let size = check(&file)?;
    if size > largest {
        return Err(Unfit::Large.into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(largest).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces a file by one with these parts, one after the other, or creates it, with its
/// directories. If this fails, the old file stays.
///
/// # Errors
/// The error of the system.
pub fn replace(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    create_directory(directory)?;
    let process = std::process::id();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let new = directory.join(format!(".{}.{process}.{number}", name.to_string_lossy()));
    let mut file = options().write(true).create_new(true).open(&new)?;
    let written = parts.iter().try_for_each(|part| file.write_all(part));
    let written = written.and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Distinguishes the temporary files of this process's threads. Relaxed: only the number matters.
static NUMBER: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Returns a new directory, which the caller removes.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("refit-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_read_back() {
        let folder = folder("private");
        let path = folder.join("a/b");
        replace(&path, &[b"on", b"e"]).expect("created");
        replace(&path, &[b"two"]).expect("replaced");
        assert_eq!(read(&path, 3).expect("read"), b"two");
        assert!(read(&path, 2).is_err(), "too large");
        let names = fs::read_dir(folder.join("a")).expect("a folder").count();
        assert_eq!(names, 1, "nothing else is left");
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn what_others_could_have_written_is_not_read() {
        let folder = folder("foreign");
        let (path, link) = (folder.join("file"), folder.join("link"));
        replace(&path, &[b"one"]).expect("created");
        symlink(&path, &link).expect("a link");
        assert!(read(&link, 9).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).expect("permissions");
        assert!(read(&path, 9).is_err());
        assert!(read(&folder, 9).is_err(), "a directory");
        fs::remove_dir_all(folder).expect("removed");
    }
}
