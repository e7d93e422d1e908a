//! Continuing a mount that another server has served and left, by its image.
//!
//! Everything in the image and every descriptor that it names comes from another process and is
//! checked: a descriptor must refer to the inode that the record says, and numbers must lie within
//! their tables. An inode that does not pass is left out: the kernel then gets `ESTALE` for it.
//!
//! The steps, in order:
//!
//! 1. The inodes get descriptors and records of their own, in a new image.
//! 2. The requests that were being executed keep their slots (`image::request`).
//! 3. Pages that had not been stored go to the new caches, as if they were written now.
//! 4. The kernel is made to send again what was not answered, and the workers begin.

use crate::answer::Fuse;
use crate::error::MountError;
use crate::image::header::{MountIdentity, Negotiation};
use crate::image::layout::SLOTS;
use crate::image::record::{Record, RecordedInode, Unfinished};
use crate::image::request::UnfinishedRequest;
use crate::image::{Image, ImageError};
use crate::inode::Inode;
use crate::kernel_mount::KernelMount;
use crate::mount::{self, KnownState, Mount};
use crate::negotiation;
use crate::options::MountOptions;
use crate::requests::Requests;
use crate::server::Server;
use crate::source_lock::SourceLock;
use crate::table::{ROOT, Table};
use crate::values::{Access, HostKey};
use refit_memory::{PAGE_SIZE, UnwrittenPages};
use refit_sys::descriptors::Descriptors;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use tracing::{info, warn};

/// Why a mount could not be continued.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// Its image cannot be read.
    #[error("cannot continue {}: {error}", mountpoint.display())]
    Image {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason.
        #[source]
        error: ImageError,
    },
    /// The kernel or the other server does not permit it.
    #[error("cannot continue {}: {what}: {error}", mountpoint.display())]
    System {
        /// The mount point.
        mountpoint: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// A server with these options cannot be made.
    #[error(transparent)]
    Server(#[from] MountError),
}

/// Returns the options of a mount in the words of its owner; see [`Mount::describe`].
///
/// # Errors
///
/// The memfd is not an image that this version of refit can read.
pub fn description(image: OwnedFd) -> Result<Vec<u8>, ImageError> {
    Ok(Image::open(image)?.description())
}

/// The parts of a mount that the image names.
struct Left {
    image: Image,
    mount: MountIdentity,
    agreed: Negotiation,
    device: OwnedFd,
    locks: Vec<OwnedFd>,
    unwritten: Option<UnwrittenPages>,
}

/// Continues the mount of `image`, whose server has ended, with the descriptors of that server's
/// process. The mount's source and mount point are those of `options`. `publish` is called with the
/// memfd of the new image before any request is executed: from then on it, and no longer the old
/// one, says how to continue the mount.
///
/// # Errors
///
/// See [`AdoptError`]. The descriptors that were taken are closed then: the mount ends.
pub fn adopt(
    options: MountOptions,
    image: OwnedFd,
    from: &dyn Descriptors,
    publish: impl FnOnce(RawFd),
) -> Result<Mount, AdoptError> {
    let mountpoint = options.mountpoint.clone();
    let failed = |what| {
        let mountpoint = mountpoint.clone();
        move |error: io::Error| AdoptError::System { mountpoint, what, error }
    };
    let left = Left::take(image, from)
        .map_err(|error| AdoptError::Image { mountpoint: mountpoint.clone(), error })?;
    let image = mount::new_image(&mountpoint)?;
    let (table, inodes) = continue_inodes(&left.image, &image, from)
        .map_err(|error| AdoptError::Image { mountpoint: mountpoint.clone(), error })?;
    let requests = Requests::new(&image, continue_requests(&left.image, &image));
    let lock = SourceLock::continued(left.locks);
    image.set_description(&left.image.description());
    let known = KnownState { image, table, requests, lock };
    let (server, jobs) = mount::new_server(&options, &mountpoint, known)?;
    let ours = left.device.try_clone().map_err(failed("keep the connection"))?;
    let attached = KernelMount::continued(&mountpoint, left.mount, ours);
    let fuse = Fuse { server: Arc::clone(&server) };
    let acl = mount::acl(mount::allows_others(&server, &options));
    let config = mount::session_config(&options);
    let session = negotiation::resume(fuse, &left.device, acl, config, &left.agreed)
        .map_err(failed("agree to what was negotiated with the kernel"))?;
    if let Some(unwritten) = &left.unwritten {
        server.continue_writing(unwritten, &inodes);
    }
    server.forget_unknown(&inodes);
    mount::record_connection(&server.image, &attached, &left.agreed);
    publish(server.image.as_fd().as_raw_fd());
    if let Err(error) = negotiation::resend(&left.device) {
        // The mount was being unmounted, or the kernel is too old. What was not stored still is.
        let _ = server.finish();
        return Err(failed("make the kernel send unanswered requests again")(error));
    }
    let threads = mount::spawn(&server, session, jobs).map_err(failed("start its threads"))?;
    info!(?mountpoint, inodes = inodes.len(), "continues a mount");
    Ok(threads.serve(options.source, mountpoint, attached, &server))
}

impl Left {
    fn take(image: OwnedFd, from: &dyn Descriptors) -> Result<Self, ImageError> {
        let image = Image::open(image)?;
        let mount = image.mount().ok_or(ImageError::Damaged("the mount was not attached"))?;
        let agreed = image.negotiation();
        let agreed = agreed.ok_or(ImageError::Damaged("nothing was negotiated"))?;
        let device = image.device().ok_or(ImageError::Damaged("it has no connection"))?;
        let device = from.take(device)?;
        let locks = image.locks().into_iter().map(|lock| from.take(lock));
        let locks = locks.collect::<io::Result<_>>()?;
        let unwritten = match image.frames() {
            Some([memory, descriptors]) => {
                Some(UnwrittenPages::open([from.take(memory)?, from.take(descriptors)?])?)
            }
            None => None,
        };
        Ok(Self { image, mount, agreed, device, locks, unwritten })
    }
}

/// The inodes that are continued, by their records.
type Inodes = HashMap<u32, (RecordedInode, Arc<Inode>)>;

/// Creates the table of a server that continues the inodes of an image.
fn continue_inodes(
    old: &Image,
    new: &Arc<Image>,
    from: &dyn Descriptors,
) -> Result<(Table, Inodes), ImageError> {
    let used = old.records_used();
    if used as usize > new.capacity() {
        return Err(ImageError::Damaged("it has more inodes than this process may open files"));
    }
    let mut recorded: HashMap<u32, RecordedInode> =
        (0..used).filter_map(|index| Some((index, RecordedInode::read(old, index)?))).collect();
    for slot in 0..SLOTS as u32 {
        if let Some(unfinished) = Unfinished::read(old, slot)
            && let Some(inode) = recorded.get_mut(&unfinished.record())
        {
            inode.restore(unfinished);
        }
    }
    let root = recorded.values().find(|inode| inode.node == ROOT);
    let device = root.ok_or(ImageError::Damaged("it has no root"))?.key.device;
    let table = Table::empty(new, device, old.next_foreign());
    let mut inodes = Inodes::new();
    let mut freed = Vec::new();
    for index in 0..used {
        let taken = recorded.remove(&index).and_then(|inode| {
            let fd = from.take(inode.descriptor).ok()?;
            let stat = rustix::fs::fstat(&fd).ok().filter(|stat| HostKey::of(stat) == inode.key);
            stat.map(|_| (inode, fd))
        });
        let Some((recorded, fd)) = taken else {
            freed.push(index);
            continue;
        };
        let record = Record::copied(new, index);
        let inode = Arc::new(Inode::continued(&recorded, fd, record));
        table.insert_continued(Arc::clone(&inode));
        inodes.insert(index, (recorded, inode));
    }
    new.records_taken(used, freed);
    Ok((table, inodes))
}

/// Copies the requests that were being executed. Returns their slots, by request.
fn continue_requests(old: &Image, new: &Image) -> HashMap<u64, u32> {
    let mut slots = HashMap::new();
    for slot in 0..SLOTS as u32 {
        if let Some(request) = UnfinishedRequest::read(old, slot) {
            request.continue_in(new, slot);
            slots.insert(request.unique, slot);
        }
    }
    slots
}

impl Server {
    /// Writes the pages that had not been stored to the caches of this server, which store them.
    fn continue_writing(&self, unwritten: &UnwrittenPages, inodes: &Inodes) {
        let regular = |inode: &&(RecordedInode, Arc<Inode>)| {
            inode.1.kind == FileType::RegularFile && inode.0.cache != 0
        };
        let by_cache: HashMap<u64, &(RecordedInode, Arc<Inode>)> =
            inodes.values().filter(regular).map(|inode| (inode.0.cache, inode)).collect();
        let mut pages = 0_u64;
        for page in unwritten.pages() {
            let Some((recorded, inode)) = by_cache.get(&page.cache) else { continue };
            let start = page.page.saturating_mul(PAGE_SIZE as u64);
            let length = recorded.size.saturating_sub(start).min(PAGE_SIZE as u64) as usize;
            let Ok(bytes) = unwritten.read(page) else { continue };
            let written = self.write_continued(inode, start, &bytes[..length]);
            if let Err(errno) = written {
                warn!(node = inode.node, page = page.page, %errno, "a page could not be kept");
            }
            pages += 1;
        }
        for (recorded, inode) in inodes.values() {
            if recorded.modified.is_some() {
                // Its time reaches the host with its data, or without any.
                let _ = self.data(inode, Access::Write).map(drop);
                self.queue.add(inode);
            }
        }
        info!(pages, "took over pages that were not stored");
    }

    fn write_continued(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        mut bytes: &[u8],
    ) -> Result<(), Errno> {
        let data = self.data(inode, Access::Write)?;
        let mut at = offset;
        while !bytes.is_empty() {
            let n = self.memory.write(&data, at, bytes)?;
            (at, bytes) = (at + n as u64, &bytes[n..]);
        }
        inode.record.grow(at);
        drop(data);
        self.queue.add(inode);
        Ok(())
    }

    /// Removes the inodes that the kernel had forgotten when the other server ended.
    fn forget_unknown(&self, inodes: &Inodes) {
        for (_, inode) in inodes.values() {
            if inode.record.lookups() == 0 {
                self.forgotten(inode);
            }
        }
    }
}

/// The part of a mount that lets another server continue it.
impl Mount {
    /// Records the options of the mount for the server that continues it. Returns whether there is
    /// room for them (64 KiB).
    pub fn describe(&self, options: &[u8]) -> bool {
        self.server.image.set_description(options)
    }

    /// Returns the number of the memfd with the image of the mount, for [`adopt`]; `None` if no
    /// other server can continue the mount, because the kernel cannot send requests again.
    pub fn image(&self) -> Option<RawFd> {
        let image = &self.server.image;
        image.mount().is_some().then(|| image.as_fd().as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::layout;
    use std::sync::atomic::Ordering::Relaxed;

    /// A process whose descriptors all refer to one file.
    struct OneFile(OwnedFd);

    impl Descriptors for OneFile {
        fn take(&self, _: RawFd) -> io::Result<OwnedFd> {
            self.0.try_clone()
        }
    }

    #[test]
    fn whatever_is_in_an_image_is_read_without_panic() {
        let file = OneFile(tempfile::tempfile().unwrap().into());
        let mut random = 7_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        let mut roots = 0;
        for _ in 0..300 {
            let old = Image::new(16).unwrap();
            old.records_taken(16, Vec::new());
            for _ in 0..200 {
                let value = [0, 1, 2, 3, u64::MAX, 1 << 32, 1 << 63, 16][next(8)];
                let (record, slot) = (next(16) as u32, next(4) as u32);
                old.record_words(record)[next(layout::RECORD_WORDS)].store(value, Relaxed);
                old.slot_words(slot)[next(20)].store(value, Relaxed);
            }
            let new = Image::new(16).unwrap();
            roots += usize::from(continue_inodes(&old, &new, &file).is_ok());
            continue_requests(&old, &new);
        }
        assert!(roots > 0, "some of the images have a root");
    }

    #[test]
    fn a_descriptor_that_refers_to_another_inode_is_left_out() {
        let old = Image::new(4).unwrap();
        let file = tempfile::tempfile().unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        for (node, key) in [(ROOT, HostKey::of(&stat)), (5, HostKey { device: 1, number: 5 })] {
            let record = old.take_record().unwrap();
            record.begin(node, key, stat.st_mode, false);
            record.set_descriptor(3, None);
            std::mem::forget(record);
        }
        let new = Image::new(4).unwrap();
        let from = OneFile(file.into());
        let (table, inodes) = continue_inodes(&old, &new, &from).unwrap();
        assert_eq!(inodes.len(), 1);
        assert!(table.get(ROOT).is_some() && table.get(5).is_none());
        assert_eq!(new.take_record().map(|record| record.index()), Some(1));
    }
}
