//! Unmounting: all data is stored first, or discarded on request.

use crate::mount::Mount;
use crate::unstored::Unstored;
use rustix::mount::UnmountFlags;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tracing::info;

/// Why [`Mount::unmount`] did not unmount, or lost data.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// A program has a file open or its working directory on the mount. The mount continues.
    #[error("cannot unmount {}: it is in use; end the processes that use it (`fuser -vm` lists them) and try again", .mount.mountpoint().display())]
    Busy {
        /// The mount, which continues to serve.
        mount: Box<Mount>,
    },
    /// The file system was unmounted in this mount namespace but is still mounted in one that was
    /// created meanwhile, where it continues to be served.
    #[error("cannot end {}: it is unmounted here, but mounted for process {process}, which has a mount namespace of its own; end that process, or `nsenter -t {process} -m umount {}`, and try again", .mount.mountpoint().display(), .mount.mountpoint().display())]
    Elsewhere {
        /// The mount, which continues to serve.
        mount: Box<Mount>,
        /// A process in the other mount namespace.
        process: u32,
    },
    /// Data could not be stored and would be lost. The mount continues.
    #[error("cannot unmount {}: {files} could not be stored in {}; make room there and try again, or discard the data with `refit umount --discard`", .mount.mountpoint().display(), .mount.source().display())]
    NotStored {
        /// The mount, which continues to serve.
        mount: Box<Mount>,
        /// The files that could not be stored.
        files: Unstored,
    },
    /// The file system was unmounted, but some data could not be stored on the host.
    #[error("unmounted {}: {files} could not be stored in {} and is lost", mountpoint.display(), source_directory.display())]
    Lost {
        /// The former mount point.
        mountpoint: PathBuf,
        /// The directory that was served.
        source_directory: PathBuf,
        /// The files that could not be stored.
        files: Unstored,
    },
    /// Another error of the system. The mount continues.
    #[error("cannot unmount {}: {error}", .mount.mountpoint().display())]
    System {
        /// The mount, which continues to serve.
        mount: Box<Mount>,
        /// The error.
        error: io::Error,
    },
}

impl Mount {
    /// Stores all data and unmounts.
    ///
    /// # Errors
    ///
    /// See [`UnmountError`]. If the mount is in use or some data cannot be stored, the mount
    /// continues and is returned in the error.
    pub fn unmount(self) -> Result<(), UnmountError> {
        info!(mountpoint = ?self.mountpoint, "unmounts");
        if self.attached.connected()
            && let Err(files) = self.write_back()
        {
            info!(mountpoint = ?self.mountpoint, files = files.0.len(), "not all is stored");
            return Err(UnmountError::NotStored { mount: Box::new(self), files });
        }
        let (mountpoint, source_directory) = (self.mountpoint.clone(), self.source.clone());
        let files = self.unmount_and_discard()?;
        if files.is_empty() {
            return Ok(());
        }
        Err(UnmountError::Lost { mountpoint, source_directory, files })
    }

    /// Unmounts and discards the data that cannot be stored. Returns the files concerned.
    ///
    /// # Errors
    ///
    /// See [`UnmountError`]. If the mount is in use, it continues and is returned in the error.
    pub fn unmount_and_discard(mut self) -> Result<Unstored, UnmountError> {
        if !self.ended()
            && let Err(error) = self.unmount_when_idle()
        {
            let busy = error.raw_os_error() == Some(libc::EBUSY);
            let elsewhere = if busy { self.attached.holder_elsewhere() } else { None };
            info!(mountpoint = ?self.mountpoint, %error, ?elsewhere, "is in use");
            let mount = Box::new(self);
            return Err(match elsewhere {
                Some(process) => UnmountError::Elsewhere { mount, process },
                None if busy => UnmountError::Busy { mount },
                None => UnmountError::System { mount, error },
            });
        }
        Ok(self.join())
    }

    /// Stores the data that can be stored and detaches the mount from its path at once, even if it
    /// is in use. Returns the files that could not be stored, whose data is lost.
    pub fn detach(mut self) -> Unstored {
        self.take_out_of_sight()
    }

    fn take_out_of_sight(&mut self) -> Unstored {
        let unstored = self.server.write_back_all();
        if self.ended() || self.attached.unmount(UnmountFlags::empty()).is_ok() {
            return self.join();
        }
        // The mount is in use: it disappears now and ends with its last user, which is not waited
        // for here.
        info!(mountpoint = ?self.mountpoint, "is in use, and detached");
        let _ = self.attached.unmount(UnmountFlags::DETACH);
        self.workers = None;
        unstored
    }

    /// Unmounts, and retries for a short time while the mount is in use. A process that is ending,
    /// or has just forked and not yet executed, holds files for some milliseconds that it no longer
    /// uses.
    fn unmount_when_idle(&self) -> io::Result<()> {
        const ATTEMPTS: u32 = 50;
        const RETRY_INTERVAL: Duration = Duration::from_millis(10);
        for _ in 0..ATTEMPTS {
            match self.attached.unmount(UnmountFlags::empty()) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                outcome => return outcome,
            }
        }
        self.attached.unmount(UnmountFlags::empty())
    }

    /// Waits for the end of the workers of a mount that has been unmounted. Returns the files that
    /// could not be stored.
    fn join(&mut self) -> Unstored {
        if let Some(workers) = self.workers.take() {
            let _ = workers.join();
        }
        let unstored = self.server.finish();
        for helper in self.helpers.drain(..) {
            let _ = helper.join();
        }
        unstored
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.workers.is_some() {
            self.take_out_of_sight();
        }
    }
}
