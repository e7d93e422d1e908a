//! The files of a trace: blocks are appended, and when a file has reached its length the next one
//! begins.
//!
//! The files are called FILE, FILE.1, FILE.2 and so on. Each can be read individually, since each
//! begins with a head (which contains its number), all definitions, and a clock pair.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use zerocopy::IntoBytes;

use crate::block::{self, FileHead, Head, Kind};

/// When the next file begins, and how many files are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The length in bytes after which the next file begins; 0 means never.
    pub bytes: u64,
    /// The number of files to keep, the newest ones; 0 means all.
    pub keep: u32,
}

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The file cannot be created.
    #[error("cannot write the trace {}: {source}", path.display())]
    Create {
        /// The path.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The kernel cannot create the thread that writes.
    #[error("cannot start the thread that writes the trace: {0}")]
    Thread(io::Error),
}

/// A trace that is being written.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    head: Head,
    rotation: Rotation,
    file: File,
    /// The length of the complete blocks in the file, in bytes.
    length: u64,
    /// The blocks with which each file begins, after its head.
    prologue: Vec<(Kind, Vec<u8>)>,
    buffer: Vec<u8>,
    /// The last error, for the summary.
    pub(super) trouble: Option<io::Error>,
}

impl Output {
    /// Creates or truncates the first file.
    pub(super) fn create(path: &Path, head: Head, rotation: Rotation) -> Result<Self, OutputError> {
        let failed = |source| OutputError::Create { path: path.to_owned(), source };
        let file = File::create(path).map_err(failed)?;
        let mut output = Self {
            path: path.to_owned(),
            head,
            rotation,
            file,
            length: 0,
            prologue: Vec::new(),
            buffer: Vec::new(),
            trouble: None,
        };
        output.begin_file().map_err(failed)?;
        Ok(output)
    }

    /// Appends a block, with which each later file begins, too.
    pub(super) fn keep(&mut self, kind: Kind, content: &impl Serialize) -> bool {
        let content = json(content);
        let written = self.block(kind, &[&content]);
        self.prologue.push((kind, content));
        written
    }

    /// Appends a block that contains JSON.
    pub(super) fn json(&mut self, kind: Kind, content: &impl Serialize) -> bool {
        self.block(kind, &[&json(content)])
    }

    /// Appends a block. Returns whether it is complete; an incomplete one is removed again.
    pub(super) fn block(&mut self, kind: Kind, parts: &[&[u8]]) -> bool {
        if self.rotation.bytes != 0 && self.length >= self.rotation.bytes {
            self.rotate();
        }
        let done = self.append(kind, parts);
        self.note(done)
    }

    /// Returns the number of files so far.
    pub(super) fn parts(&self) -> u32 {
        self.head.part + 1
    }

    fn append(&mut self, kind: Kind, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > block::LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.buffer.clear();
        block::append(&mut self.buffer, kind as u16, parts);
        self.write()
    }

    /// Writes the buffer after the existing contents.
    fn write(&mut self) -> io::Result<()> {
        let done = self.file.write_all_at(&self.buffer, self.length);
        match done {
            Ok(()) => self.length += self.buffer.len() as u64,
            // Readers ignore an incomplete block; removing it lets the next block follow.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        done
    }

    fn begin_file(&mut self) -> io::Result<()> {
        let head = FileHead { magic: block::MAGIC, version: block::VERSION, reserved: 0 };
        self.buffer.clear();
        self.buffer.extend_from_slice(head.as_bytes());
        self.write()?;
        let content = json(&self.head);
        self.append(Kind::Head, &[&content])?;
        let prologue = std::mem::take(&mut self.prologue);
        let done = prologue.iter().try_for_each(|(kind, content)| self.append(*kind, &[content]));
        self.prologue = prologue;
        done
    }

    /// Continues in the next file, or in this one if the next cannot be created.
    fn rotate(&mut self) {
        let part = self.head.part + 1;
        let path = part_path(&self.path, part);
        let Ok(file) = File::create(&path) else { return };
        let (old, length) = (std::mem::replace(&mut self.file, file), self.length);
        (self.length, self.head.part) = (0, part);
        let begun = self.begin_file();
        if !self.note(begun) {
            (self.file, self.length, self.head.part) = (old, length, part - 1);
            let _ = std::fs::remove_file(&path);
            return;
        }
        if self.rotation.keep != 0
            && let Some(old) = part.checked_sub(self.rotation.keep)
        {
            // A file that cannot be removed stays.
            let _ = std::fs::remove_file(part_path(&self.path, old));
        }
    }

    fn note(&mut self, done: io::Result<()>) -> bool {
        done.map_err(|error| self.trouble = Some(error)).is_ok()
    }
}

/// Returns the path of a file of a trace.
pub fn part_path(path: &Path, part: u32) -> PathBuf {
    if part == 0 {
        return path.to_owned();
    }
    let mut name = OsString::from(path);
    name.push(format!(".{part}"));
    name.into()
}

/// Serializes a value. None of those that are written here can fail.
fn json(content: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(content).unwrap_or_default()
}
