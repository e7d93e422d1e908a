//! Why a file cannot be analysed.

use std::path::PathBuf;

use thiserror::Error;

/// Why a file cannot be analysed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}; check the path and who may read it")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is not an ELF file, or a damaged one.
    #[error("{path} is not an ELF program or library that can be read: {why}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// It is for another machine.
    #[error("{path} is for {machine}; only 64-bit x86 is understood")]
    Machine {
        /// Which file.
        path: PathBuf,
        /// For which.
        machine: String,
    },
    /// It is no program and no library.
    #[error("{path} is {what}; give a program or a shared object")]
    Kind {
        /// Which file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It is larger than what is read.
    #[error("{path} has {size} bytes; more than {limit} are not read")]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// Its bytes.
        size: u64,
        /// Bytes that are read at most.
        limit: u64,
    },
}
