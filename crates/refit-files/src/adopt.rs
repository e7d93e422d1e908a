//! Continuing a mount that another server has served and left, by its image.
//!
//! Everything in the image and every descriptor that it names comes from another process and is
//! checked: a descriptor must refer to the inode that the record says, and numbers must lie within
//! their tables. An inode that does not pass is left out: the kernel then gets `ESTALE` for it.
//!
//! The steps, in order:
//!
//! 1. [`Adoption::prepare`]: the inodes get descriptors and records of their own, in a new image.
//!    The other server may still serve.
//! 2. [`Adoption::complete`], when it has ended: the inodes that have changed are taken again, the
//!    requests that were being executed keep their slots (`image::request`), and pages that had not
//!    been stored go to the new caches, as if they were written now. From then on the new image,
//!    and no longer the old one, says how to continue the mount.
//! 3. [`Adopted::serve`]: the kernel is made to send again what was not answered, and the workers
//!    begin.

use crate::adopted_inodes::AdoptedInodes;
use crate::error::MountError;
use crate::image::header::{MountIdentity, Negotiation};
use crate::image::{Image, ImageError};
use crate::inode::Inode;
use crate::jobs::Jobs;
use crate::kernel_mount::KernelMount;
use crate::modes::CacheMode;
use crate::mount::{self, KnownState, Mount};
use crate::negotiation;
use crate::options::MountOptions;
use crate::requests::Requests;
use crate::server::Server;
use crate::source_lock::SourceLock;
use crate::values::Access;
use crate::workers::Workers;
use refit_memory::{PAGE_SIZE, UnwrittenPages};
use refit_sys::descriptors::Descriptors;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tracing::{debug, info, warn};

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
    unwritten: Option<UnwrittenPages>,
}

/// A mount that is about to be continued, and that another server may still serve.
pub struct Adoption {
    options: MountOptions,
    left: Left,
    image: Arc<Image>,
    inodes: AdoptedInodes,
    server: Arc<Server>,
    jobs: Jobs<Server>,
}

/// A mount that is continued as soon as its server begins.
pub struct Adopted {
    options: MountOptions,
    attached: KernelMount,
    server: Arc<Server>,
    jobs: Jobs<Server>,
    workers: Workers,
    /// The inodes whose data was in a cache.
    cached: Vec<Arc<Inode>>,
    /// The parts that the other server has left, which stay until this one serves.
    left: Left,
}

impl Adoption {
    /// Prepares to continue the mount of `image` with the descriptors of its server's process. The
    /// mount's source and mount point are those of `options`.
    ///
    /// # Errors
    ///
    /// See [`AdoptError`].
    pub fn prepare(
        options: MountOptions,
        image: OwnedFd,
        from: &dyn Descriptors,
    ) -> Result<Self, AdoptError> {
        let mountpoint = options.mountpoint.clone();
        let unreadable = |error| AdoptError::Image { mountpoint: mountpoint.clone(), error };
        let (left, lock) = Left::take(image, from).map_err(unreadable)?;
        let image = mount::new_image(&mountpoint)?;
        let (table, inodes) = AdoptedInodes::take(&left.image, &image, from).map_err(unreadable)?;
        let requests = Requests::new(&image);
        image.set_description(&left.image.description());
        let known = KnownState { image: Arc::clone(&image), table, requests, lock };
        let (server, jobs) = mount::new_server(&options, &mountpoint, known)?;
        Ok(Self { options, left, image, inodes, server, jobs })
    }

    /// Returns the options of the mount in the words of its owner, as they are now.
    pub fn description(&self) -> Vec<u8> {
        self.left.image.description()
    }

    /// Takes over the state of the mount, whose server has ended. `crashed`: it was not killed, so
    /// that a request may be the cause.
    ///
    /// # Errors
    ///
    /// See [`AdoptError`]. The mount ends if no other process has its descriptors.
    pub fn complete(self, from: &dyn Descriptors, crashed: bool) -> Result<Adopted, AdoptError> {
        let Self { options, left, image, mut inodes, server, jobs } = self;
        let mountpoint = &options.mountpoint;
        let began = Instant::now();
        inodes
            .refresh(&left.image, &server.table, from)
            .map_err(|error| AdoptError::Image { mountpoint: mountpoint.clone(), error })?;
        debug!(took = ?began.elapsed(), "has the inodes");
        server.refused.continue_from(&left.image);
        server.requests.continue_from(&left.image, crashed);
        let connection =
            || left.device.try_clone().map_err(failed(mountpoint, "keep the connection"));
        let attached = KernelMount::continued(mountpoint, left.mount, connection()?);
        let acl = mount::acl(options.users);
        let count = mount::worker_count(&options);
        let workers = Workers::resume(&server, connection()?, acl, count, &left.agreed)
            .map_err(failed(mountpoint, "agree to what was negotiated with the kernel"))?;
        if negotiation::passes_through(&left.agreed) {
            server.backing_files.at(connection()?);
        }
        if let Some(unwritten) = &left.unwritten {
            server.continue_writing(unwritten, &inodes);
        }
        for inode in inodes.forgotten() {
            server.forgotten(inode);
        }
        mount::record_connection(&image, &attached, &left.agreed);
        info!(?mountpoint, inodes = inodes.len(), took = ?began.elapsed(), "continues a mount");
        let cached = inodes.iter().filter(|(recorded, _)| recorded.cache() != 0);
        let cached = cached.map(|(_, inode)| Arc::clone(inode)).collect();
        Ok(Adopted { options, attached, server, jobs, workers, cached, left })
    }
}

impl Adopted {
    /// Returns the memfd of the image of the mount.
    pub fn image(&self) -> RawFd {
        self.server.image.as_fd().as_raw_fd()
    }

    /// Lets programs only read: requests that would change something are answered with `EROFS`, and
    /// nothing is stored until the mount ends, or another server continues it. What the kernel has
    /// collected before is still taken.
    pub fn read_only(&self) {
        self.server.read_only();
    }

    /// Adds a cache mode; see [`Mount::set_cache_mode`].
    pub fn add_cache_mode(&self, path_glob: &str, mode: CacheMode) {
        self.server.modes.add(path_glob, mode);
    }

    /// Creates the objects of the files whose path in the mount is `wanted`, if their data was in a
    /// cache.
    pub fn open_data(&self, wanted: impl Fn(&[u8]) -> bool) {
        for inode in &self.cached {
            if wanted(&self.server.table.path(inode)) {
                // Without its objects it has none to change.
                let _ = self.server.data(inode, Access::Read).map(drop);
            }
        }
    }

    /// Begins to serve.
    ///
    /// # Errors
    ///
    /// See [`AdoptError`]. The mount ends.
    pub fn serve(self) -> Result<Mount, AdoptError> {
        let Self { options, attached, server, jobs, workers, left, .. } = self;
        if let Err(error) = negotiation::resend(&left.device) {
            // The mount was being unmounted, or the kernel is too old. What was not stored still
            // is.
            let _ = server.finish();
            let what = "make the kernel send unanswered requests again";
            return Err(failed(&options.mountpoint, what)(error));
        }
        let threads = mount::spawn(&server, workers, jobs)
            .map_err(failed(&options.mountpoint, "start its threads"))?;
        Ok(threads.serve(options.source, options.mountpoint.clone(), attached, &server))
    }
}

/// Returns how an operation on the mount failed, from the error of the system.
fn failed(mountpoint: &Path, what: &'static str) -> impl FnOnce(io::Error) -> AdoptError + use<> {
    let mountpoint = mountpoint.to_owned();
    move |error| AdoptError::System { mountpoint, what, error }
}

impl Left {
    fn take(image: OwnedFd, from: &dyn Descriptors) -> Result<(Self, SourceLock), ImageError> {
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
        Ok((Self { image, mount, agreed, device, unwritten }, SourceLock::continued(locks)))
    }
}

impl Server {
    /// Writes the pages that had not been stored to the caches of this server, which store them.
    fn continue_writing(&self, unwritten: &UnwrittenPages, inodes: &AdoptedInodes) {
        let by_cache: HashMap<u64, _> = inodes
            .iter()
            .filter(|(recorded, _)| recorded.cache() != 0)
            .filter(|(_, inode)| inode.kind == FileType::RegularFile)
            .map(|adopted| (adopted.0.cache(), adopted))
            .collect();
        let mut pages = 0_u64;
        for page in unwritten.pages() {
            let Some((recorded, inode)) = by_cache.get(&page.cache) else { continue };
            let start = page.page.saturating_mul(PAGE_SIZE as u64);
            let length = recorded.size().saturating_sub(start).min(PAGE_SIZE as u64) as usize;
            let Ok(bytes) = unwritten.read(page) else { continue };
            let written = self.write_continued(inode, start, &bytes[..length]);
            if let Err(errno) = written {
                warn!(node = inode.node, page = page.page, %errno, "a page could not be kept");
            }
            pages += 1;
        }
        for (recorded, inode) in inodes.iter() {
            if recorded.modified().is_some() {
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
}

/// The part of a mount that lets another server continue it.
impl Mount {
    /// Records the options of the mount for the server that continues it. Returns whether there is
    /// room for them (32 KiB).
    pub fn describe(&self, options: &[u8]) -> bool {
        self.server.image.set_description(options)
    }

    /// Returns the number of the memfd with the image of the mount, for [`Adoption::prepare`];
    /// `None` if no other server can continue the mount, because the kernel cannot send requests
    /// again.
    pub fn image(&self) -> Option<RawFd> {
        let image = &self.server.image;
        image.mount().is_some().then(|| image.as_fd().as_raw_fd())
    }
}
