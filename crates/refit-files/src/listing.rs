//! Operations that list directories.

use crate::attributes;
use crate::directory::{Entry, Stream};
use crate::host::reopen;
use crate::image::request;
use crate::inode::Inode;
use crate::server::Server;
use crate::table::ROOT;
use fuser::{FileAttr, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

/// A consumer of the entries of a directory.
pub(crate) trait Listing {
    /// Adds an entry of `directory`. Returns whether there was no room for it.
    fn add(&mut self, server: &Server, directory: &Inode, entry: &Entry) -> Result<bool, Errno>;
}

impl Server {
    pub(crate) fn list(
        &self,
        node: u64,
        position: u64,
        listing: &mut impl Listing,
    ) -> Result<(), Errno> {
        let directory = self.inode(node)?;
        if directory.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        let mut slot = directory.stream.lock();
        let stream = match &mut *slot {
            Some(stream) => stream,
            empty => empty
                .insert(Stream::new(reopen(&directory.fd(), OFlags::RDONLY | OFlags::DIRECTORY)?)),
        };
        let mut outcome = Ok(());
        let mut any = false;
        stream.read(position, |mut entry| {
            entry.number = self.shown_number(&directory, &entry);
            match listing.add(self, &directory, &entry) {
                Ok(full) => {
                    any = true;
                    !full
                }
                // The next request begins with this entry and returns the error.
                Err(_) if any => false,
                Err(errno) => {
                    outcome = Err(errno);
                    false
                }
            }
        })?;
        outcome
    }

    fn shown_number(&self, directory: &Inode, entry: &Entry) -> u64 {
        match entry.name.as_encoded_bytes() {
            b"." => directory.node,
            b".." if directory.node == ROOT => ROOT,
            b".." => self.table.place(directory).parent,
            _ => self.table.shown_number(directory.key.device, entry.number),
        }
    }

    pub(crate) fn fsyncdir(&self, node: u64) -> Result<(), Errno> {
        let directory = self.inode(node)?;
        // The lock is not held, so that listings do not wait for the disk.
        let listed = directory.stream.lock().as_ref().map(Stream::fd);
        let fd = match listed {
            Some(fd) => fd,
            None => reopen(&directory.fd(), OFlags::RDONLY | OFlags::DIRECTORY)?.into(),
        };
        rustix::fs::fsync(fd)
    }
}

/// A listing of names only.
impl Listing for ReplyDirectory {
    fn add(&mut self, _: &Server, _: &Inode, entry: &Entry) -> Result<bool, Errno> {
        let kind = attributes::kind(entry.kind);
        Ok(self.add(INodeNo(entry.number), entry.next, kind, &entry.name))
    }
}

/// A listing of names with attributes. Each entry counts as a look-up, so that programs that ask
/// for every file's status after the listing cause no requests.
impl Listing for ReplyDirectoryPlus {
    fn add(&mut self, server: &Server, directory: &Inode, entry: &Entry) -> Result<bool, Errno> {
        let dots = matches!(entry.name.as_encoded_bytes(), b"." | b"..");
        if !request::has_room() {
            // The slot logs no further look-up, so a request that came again could not take it
            // back. The kernel asks for the next entries with another request.
            return Ok(true);
        }
        let child = if dots { Err(Errno::NOENT) } else { server.child(directory, &entry.name) };
        let known = match child {
            Ok(known) => Some(known),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        let (attr, node) = match &known {
            Some((inode, stat)) => (attributes::overlaid(inode, stat), Some(inode.node)),
            // The entries `.` and `..` are not look-ups. A name that disappeared meanwhile has no
            // attributes; the inode number 0 says so, and programs skip the entry.
            None => (unknown(if dots { entry.number } else { 0 }, entry.kind), None),
        };
        let full = self.add(
            attr.ino,
            entry.next,
            &entry.name,
            &crate::answer::TTL,
            &attr,
            crate::answer::GENERATION,
        );
        if full && let Some(node) = node {
            server.take_back(node);
        }
        Ok(full)
    }
}

fn unknown(number: u64, kind: FileType) -> FileAttr {
    FileAttr { ino: INodeNo(number), kind: attributes::kind(kind), ..attributes::absent() }
}
