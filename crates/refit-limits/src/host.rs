//! Checks whether this host and user can limit the memory of programs, before a program begins
//! rather than while it runs.

use std::io;
use std::path::{Path, PathBuf};

use refit_memory::store::SwapFile;
use refit_sys::pagemap::{Pagemap, Scan};
use refit_sys::userfault;

use crate::setup;

/// The smallest limit of a tree, in bytes: no program makes progress with less.
pub const MIN_LIMIT: u64 = 1 << 20;

/// Why memory cannot be limited.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// Less than [`MIN_LIMIT`] was asked for.
    #[error("a program needs at least {} MiB", MIN_LIMIT >> 20)]
    TooLittle,
    /// The kernel lacks features of userfaultfd.
    #[error("userfaultfd lacks {0}, which Linux 6.8 has")]
    Lacks(String),
    /// This user may not use userfaultfd for other programs.
    #[error("this user may not use userfaultfd without CAP_SYS_PTRACE: {0}")]
    Forbidden(io::Error),
    /// The kernel cannot report which pages are resident.
    #[error("the kernel lacks PAGEMAP_SCAN, which Linux 6.7 has: {0}")]
    NoScan(io::Error),
    /// There is no place for evicted pages.
    #[error("cannot create a swap file in {}: {source}", directory.display())]
    NoFile {
        /// The directory in which the swap file was to be made.
        directory: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// No thread or process can be made for the reclaimer.
    #[error("cannot create a thread or process for the reclaimer: {0}")]
    NoReclaimer(io::Error),
}

/// Checks whether programs of this user can be run within a limit, with a swap file in this
/// directory.
///
/// # Errors
/// [`LimitError`]: what is missing.
pub fn can_limit(directory: &Path) -> Result<(), LimitError> {
    check()?;
    swap_file(directory, 0).map(drop)
}

/// Checks everything but the swap file.
pub(crate) fn check() -> Result<(), LimitError> {
    let offered = userfault::offered().map_err(LimitError::Forbidden)?;
    let lacking: Vec<&str> =
        (setup::FEATURES - offered).iter_names().map(|(name, _)| name).collect();
    if !lacking.is_empty() {
        return Err(LimitError::Lacks(lacking.join(", ")));
    }
    userfault::permitted(setup::FEATURES).map_err(LimitError::Forbidden)?;
    // Tried on our own memory, where nothing is mapped.
    Pagemap::of(std::process::id())
        .and_then(|pages| pages.scan(0..4096, &Scan::default(), &mut Vec::new()))
        .map(drop)
        .map_err(LimitError::NoScan)
}

pub(crate) fn swap_file(directory: &Path, bytes: u64) -> Result<SwapFile, LimitError> {
    let no_file = |source| LimitError::NoFile { directory: directory.to_owned(), source };
    SwapFile::create(directory, bytes).map_err(no_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_told() {
        let error =
            swap_file(Path::new("/no/such/place"), 0).expect_err("there is none").to_string();
        assert!(error.starts_with("cannot create a swap file in /no/such/place: "), "{error}");
        assert_eq!(LimitError::TooLittle.to_string(), "a program needs at least 1 MiB");
    }
}
