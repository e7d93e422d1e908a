//! The files of a trace: blocks are appended, and when a file is long enough the next one begins.
//!
//! Files are called FILE, FILE.1, FILE.2 …; each can be read by itself, since each begins with a head (which tells its
//! number), all definitions, and a pair of clocks.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use zerocopy::IntoBytes;

use crate::block::{self, FileHead, Head, Kind};

/// When a file is long enough, and how many stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The next file begins once one has so many bytes; 0: never.
    pub bytes: u64,
    /// How many files stay, the newest; 0: all.
    pub keep: u32,
}

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The file cannot be made.
    #[error("cannot write the trace {}: {source}", path.display())]
    Create {
        /// Where.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The kernel gives no thread to write it.
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
    /// Bytes of whole blocks in the file.
    length: u64,
    /// Blocks with which each file begins, after its head.
    prologue: Vec<(Kind, Vec<u8>)>,
    buffer: Vec<u8>,
    /// The last thing that went wrong, for the end.
    pub(super) trouble: Option<io::Error>,
}

impl Output {
    /// Makes the first file, or empties it.
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

    /// Appends a block and remembers to begin each later file with it too.
    pub(super) fn keep(&mut self, kind: Kind, content: &impl Serialize) -> bool {
        let content = json(content);
        let written = self.block(kind, &[&content]);
        self.prologue.push((kind, content));
        written
    }

    /// Appends a block with JSON in it.
    pub(super) fn json(&mut self, kind: Kind, content: &impl Serialize) -> bool {
        self.block(kind, &[&json(content)])
    }

    /// Appends a block; whether it is there. What was written of it when it is not is cut off again.
    pub(super) fn block(&mut self, kind: Kind, parts: &[&[u8]]) -> bool {
        if self.rotation.bytes != 0 && self.length >= self.rotation.bytes {
            self.rotate();
        }
        let done = self.append(kind, parts);
        self.note(done)
    }

    /// How many files there are so far.
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

    /// Writes the buffer behind what is there.
    fn write(&mut self) -> io::Result<()> {
        let done = self.file.write_all_at(&self.buffer, self.length);
        match done {
            Ok(()) => self.length += self.buffer.len() as u64,
            // A reader takes what is before half a block; cutting it off lets the next block follow.
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

    /// Goes on in the next file; in this one if there cannot be a next.
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
            // One that cannot be removed stays.
            let _ = std::fs::remove_file(part_path(&self.path, old));
        }
    }

    fn note(&mut self, done: io::Result<()>) -> bool {
        done.map_err(|error| self.trouble = Some(error)).is_ok()
    }
}

/// Where a file of a trace is.
pub fn part_path(path: &Path, part: u32) -> PathBuf {
    if part == 0 {
        return path.to_owned();
    }
    let mut name = OsString::from(path);
    name.push(format!(".{part}"));
    name.into()
}

/// Nothing that is written here can fail to be JSON.
fn json(content: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(content).unwrap_or_default()
}
