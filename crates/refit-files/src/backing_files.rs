//! The files of the host that a connection knows, so that the kernel can access them itself
//! (`FUSE_PASSTHROUGH`, Linux 6.9); see `passthrough`.

use crate::open_mode::Backing;
use refit_sys::fuse_device;
use rustix::fs::MemfdFlags;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

/// The connection that knows files of the host.
#[derive(Debug, Default)]
pub(crate) struct BackingFiles {
    /// Unset until the device is open, and if passthrough was not negotiated.
    device: OnceLock<OwnedFd>,
}

impl BackingFiles {
    /// Passes files through over the connection of `device` from now on.
    pub(crate) fn at(&self, device: OwnedFd) {
        let _ = self.device.set(device);
    }

    /// Returns whether files can be passed through.
    pub(crate) fn available(&self) -> bool {
        self.device.get().is_some()
    }

    /// Passes files through over a new connection, if the kernel does. Otherwise returns the reason
    /// why it does not. `agreed`: it has agreed to do so.
    pub(crate) fn begin(&self, device: &OwnedFd, agreed: bool) -> Result<(), String> {
        if !agreed {
            return Err("the kernel cannot pass files through (it can from Linux 6.9 on, with \
                        CONFIG_FUSE_PASSTHROUGH)"
                .to_owned());
        }
        self.at(tried(device).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => "only root may pass files through".to_owned(),
            _ => format!("the kernel passes no file through: {error}"),
        })?);
        Ok(())
    }

    /// Makes a file known; `None` if the kernel does not accept it.
    pub(crate) fn open(&self, file: &OwnedFd) -> Option<Backing> {
        let device = self.device.get()?;
        NonZeroU32::new(fuse_device::open_backing(device, file).ok()?)
    }

    /// Ends the knowledge of a file.
    pub(crate) fn close(&self, backing: Backing) {
        if let Some(device) = self.device.get() {
            // It fails only if the connection has ended.
            let _ = fuse_device::close_backing(device, backing.get());
        }
    }
}

/// Tries to pass a file in memory through over the connection of `device`, and returns another
/// descriptor of the connection.
fn tried(device: &OwnedFd) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(c"refit-passthrough", MemfdFlags::CLOEXEC)?;
    let number = fuse_device::open_backing(device, &file)?;
    fuse_device::close_backing(device, number)?;
    device.try_clone()
}
