//! The blocks of one file, in order, each of which is checked before it is used.
//!
//! Blocks are read, not mapped: accessing a mapped file that has been truncated kills the reader,
//! and a file of somebody else may be truncated.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use zerocopy::FromBytes;

use super::error::Error;
use crate::block::{self, BlockHead, FileHead, LONGEST, MAGIC, MARK, VERSION};

/// One file of a trace.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) file: File,
    length: u64,
}

/// The end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub enum Ending {
    /// The file ends after a complete block.
    Whole,
    /// The file ends within a block: its writer was killed, its disk was full, or it is still being
    /// written.
    Cut {
        /// The position of that block.
        at: u64,
    },
    /// The file ends with bytes that are not a valid block; the rest of the file is ignored.
    Damaged {
        /// The position of these bytes.
        at: u64,
    },
}

/// A block with a correct checksum.
pub(super) struct Block<'a> {
    /// The position of its content.
    pub(super) at: u64,
    /// The number of a [`block::Kind`], possibly of a later version.
    pub(super) kind: u16,
    pub(super) content: &'a [u8],
}

impl Part {
    /// Opens a file and checks whether it is a trace.
    pub(super) fn open(path: &Path) -> Result<Part, Error> {
        // Opening a pipe without a writer would block, so the file is opened without blocking and
        // refused by its type.
        let file = File::options()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(path)
            .map_err(Error::io(path))?;
        let metadata = file.metadata().map_err(Error::io(path))?;
        if !metadata.is_file() {
            return Err(Error::NoFile(path.to_owned()));
        }
        let part = Part { path: path.to_owned(), file, length: metadata.len() };
        part.check_head()?;
        Ok(part)
    }

    fn check_head(&self) -> Result<(), Error> {
        if self.length == 0 {
            return Err(Error::Empty(self.path.clone()));
        }
        let mut bytes = [0; size_of::<FileHead>()];
        let there = self.length.min(bytes.len() as u64) as usize;
        self.read(0, &mut bytes[..there])?;
        let same = there.min(MAGIC.len());
        if bytes[..same] != MAGIC[..same] {
            return Err(Error::NoTrace(self.path.clone()));
        }
        if there < bytes.len() {
            return Err(Error::Truncated { path: self.path.clone(), at: self.length });
        }
        let head: FileHead = zerocopy::transmute!(bytes);
        if head.version > VERSION {
            return Err(Error::Newer { path: self.path.clone(), version: head.version });
        }
        Ok(())
    }

    /// Fills `bytes` from an offset.
    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.file.read_exact_at(bytes, at).map_err(Error::io(&self.path))
    }

    /// Returns the length that the file had when it was opened.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Passes each block to `see` as long as it returns `true`, up to the end or to the first
    /// invalid block.
    pub(super) fn walk(&self, mut see: impl FnMut(Block<'_>) -> bool) -> Result<Ending, Error> {
        let mut at = size_of::<FileHead>() as u64;
        let mut content = Vec::new();
        loop {
            let left = self.length.saturating_sub(at);
            let mut head = [0; size_of::<BlockHead>()];
            if left == 0 {
                return Ok(Ending::Whole);
            }
            if left < head.len() as u64 {
                return Ok(Ending::Cut { at });
            }
            self.read(at, &mut head)?;
            let Ok(head) = BlockHead::read_from_bytes(&head) else {
                return Ok(Ending::Damaged { at });
            };
            let length = head.length as usize;
            if head.mark != MARK || length > LONGEST {
                return Ok(Ending::Damaged { at });
            }
            let begin = at + size_of::<BlockHead>() as u64;
            if begin + length as u64 > self.length {
                return Ok(Ending::Cut { at });
            }
            content.resize(length, 0);
            self.read(begin, &mut content)?;
            if block::checksum(head.kind, [content.as_slice()]) != head.checksum {
                return Ok(Ending::Damaged { at });
            }
            if !see(Block { at: begin, kind: head.kind, content: &content }) {
                return Ok(Ending::Whole);
            }
            at = begin + (length + block::padding(length)) as u64;
        }
    }
}
