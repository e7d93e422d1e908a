//! Files whose data could not be stored, and the reasons.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The number of files that a message names. Of the others it gives the number.
const MAX_NAMED: usize = 5;

/// A file whose data could not be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotStored {
    /// Its path in the mount.
    pub path: PathBuf,
    /// The `errno` value from the host.
    pub errno: i32,
}

/// The files whose data could not be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unstored(pub Vec<NotStored>);

impl Unstored {
    /// Returns whether everything is stored.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::error::Error for Unstored {}

impl fmt::Display for Unstored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = if self.0.len() == 1 { "file" } else { "files" };
        write!(f, "{} {files} (", self.0.len())?;
        for (index, NotStored { path, errno }) in self.0.iter().take(MAX_NAMED).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {}", path.display(), io::Error::from_raw_os_error(*errno))?;
        }
        if self.0.len() > MAX_NAMED {
            write!(f, " and {} more", self.0.len() - MAX_NAMED)?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_named() {
        let file = |n| NotStored { path: format!("/f{n}").into(), errno: libc::ENOSPC };
        let one = Unstored(vec![file(0)]).to_string();
        assert_eq!(one, "1 file (/f0: No space left on device (os error 28))");
        let many = Unstored((0..9).map(file).collect()).to_string();
        assert!(many.starts_with("9 files (/f0: ") && many.ends_with(" and 4 more)"), "{many}");
    }
}
