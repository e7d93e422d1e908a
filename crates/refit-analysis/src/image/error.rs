//! The error of opening a file.

use std::path::PathBuf;

use thiserror::Error;

/// Why a file cannot be analysed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is damaged or is no ELF file.
    #[error("{path} is not an ELF program or library that can be read: {why}")]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
    /// The file is for another machine.
    #[error("{path} is for {machine}; only 64-bit x86 is supported")]
    Machine {
        /// Path of the file.
        path: PathBuf,
        /// The machine it is for.
        machine: String,
    },
    /// The file is neither a program nor a shared object.
    #[error("{path} is {what}; give a program or a shared object")]
    Kind {
        /// Path of the file.
        path: PathBuf,
        /// The kind of the file.
        what: &'static str,
    },
    /// The file is larger than the limit.
    #[error("{path} has {size} bytes; more than {limit} are not read")]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file in bytes.
        size: u64,
        /// The limit in bytes ([`LARGEST`](super::LARGEST)).
        limit: u64,
    },
}
