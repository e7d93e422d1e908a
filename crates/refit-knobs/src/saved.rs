//! Settings that are kept on disk, by the build id of the file that they belong to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use refit_analysis::Module;
use refit_sys::private_file::{self, Base};
use serde::{Deserialize, Serialize};

use crate::knob::Knob;

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Build id of the file, in hexadecimal digits.
    pub build_id: String,
    /// Path of the file when the knob was set; for people.
    pub file: String,
    /// Name of the knob; for people.
    pub name: String,
    /// Address of its instruction in the file.
    pub address: u64,
    /// The number of the file.
    pub original: i64,
    /// The number that is set.
    pub value: i64,
    /// Whether the risks are taken.
    #[serde(default)]
    pub unchecked: bool,
}

/// Why settings cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// There is no directory for them.
    #[error("neither XDG_STATE_HOME nor HOME names a directory")]
    NoDirectory,
    /// The file has no build id.
    #[error("{file} has no build id, by which its settings could be found again")]
    NoBuildId {
        /// The file.
        file: String,
    },
    /// The file of settings cannot be read or written.
    #[error("could not {what} {}: {source}", .path.display())]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file of settings is damaged.
    #[error("{} is not a list of settings: {source}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error of the reader.
        source: serde_json::Error,
    },
}

/// Returns this user's file of settings: `refit/knobs.json` in `$XDG_STATE_HOME` or
/// `~/.local/state`.
///
/// # Errors
/// [`SavedError::NoDirectory`].
pub fn path() -> Result<PathBuf, SavedError> {
    private_file::directory(Base::State, "knobs.json").ok_or(SavedError::NoDirectory)
}

impl Saved {
    /// Returns the setting of a knob.
    ///
    /// # Errors
    /// [`SavedError::NoBuildId`].
    pub fn of(
        module: &Module,
        file: &Path,
        knob: &Knob,
        value: i64,
        unchecked: bool,
    ) -> Result<Self, SavedError> {
        let file = file.display().to_string();
        let build_id = build_id(module);
        if build_id.is_empty() {
            return Err(SavedError::NoBuildId { file });
        }
        let (name, address, original) = (knob.name.clone(), knob.address(), knob.value);
        Ok(Self { build_id, file, name, address, original, value, unchecked })
    }
}

/// Returns the build id of a file in hexadecimal digits; empty if it has none.
pub fn build_id(module: &Module) -> String {
    module.image().build_id().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads all settings; none if there is no file.
///
/// # Errors
/// [`SavedError`].
pub fn read(path: &Path) -> Result<Vec<Saved>, SavedError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(SavedError::File { what: "read", path: path.into(), source }),
    };
    serde_json::from_slice(&text)
        .map_err(|source| SavedError::Damaged { path: path.into(), source })
}

/// Adds a setting, in place of an earlier one of the same knob.
///
/// # Errors
/// [`SavedError`].
pub fn add(path: &Path, saved: Saved) -> Result<(), SavedError> {
    let _lock = lock(path)?;
    let mut all = read(path)?;
    all.retain(|one| !is_same(one, &saved.build_id, saved.address));
    all.push(saved);
    write(path, &all)
}

/// Removes the setting of a knob; whether there was one.
///
/// # Errors
/// [`SavedError`].
pub fn remove(path: &Path, build_id: &str, address: u64) -> Result<bool, SavedError> {
    let _lock = lock(path)?;
    let mut all = read(path)?;
    let before = all.len();
    all.retain(|one| !is_same(one, build_id, address));
    let removed = all.len() < before;
    if removed {
        write(path, &all)?;
    }
    Ok(removed)
}

fn is_same(one: &Saved, build_id: &str, address: u64) -> bool {
    one.build_id == build_id && one.address == address
}

/// Writes all settings. A reader finds the old ones or the new ones.
fn write(path: &Path, all: &[Saved]) -> Result<(), SavedError> {
    let text = serde_json::to_vec_pretty(all).map_err(io::Error::from);
    let written = text.and_then(|text| private_file::replace(path, &[&text, b"\n"]));
    written.map_err(|source| SavedError::File { what: "write", path: path.into(), source })
}

/// Waits until this process alone changes the settings.
fn lock(path: &Path) -> Result<fs::File, SavedError> {
    let locked = private_file::lock(path.parent().unwrap_or(Path::new("/")));
    locked.map_err(|source| SavedError::File { what: "lock", path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(address: u64, value: i64) -> Saved {
        Saved {
            build_id: "00ff".into(),
            file: "/bin/x".into(),
            name: "f+0x1:limit".into(),
            address,
            original: 64,
            value,
            unchecked: false,
        }
    }

    #[test]
    fn settings_are_replaced_and_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state/refit/knobs.json");
        assert_eq!(read(&path).expect("none"), []);
        for (address, value) in [(1, 10), (2, 20), (1, 30)] {
            add(&path, one(address, value)).expect("added");
        }
        assert_eq!(read(&path).expect("two"), [one(2, 20), one(1, 30)]);
        assert!(remove(&path, "00ff", 2).expect("removed"));
        assert!(!remove(&path, "00fe", 1).expect("another file's"));
        assert_eq!(read(&path).expect("one"), [one(1, 30)]);
    }

    #[test]
    fn a_damaged_file_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("knobs.json");
        for text in ["", "{", "[{}]", "[1]", "\0\0"] {
            fs::write(&path, text).expect("written");
            assert!(matches!(read(&path), Err(SavedError::Damaged { .. })), "{text:?}");
            assert!(add(&path, one(1, 1)).is_err());
            assert_eq!(fs::read(&path).expect("there"), text.as_bytes());
        }
    }
}
