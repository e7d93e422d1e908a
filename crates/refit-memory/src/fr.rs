//! The interface of a file representative: the file behind a cache (Hui 2000, §3.2).

use crate::disk::DiskWork;

/// The file on the host whose pages a [`FileCache`](crate::FileCache) holds.
///
/// A leaf of the call structure: it makes system calls on the host's file and calls no other object.
/// Errors are `errno` values.
#[refit_objects::interface(name = "fr", state = (), version = 3)]
pub trait FileRepresentative {
    /// Reads bytes from `offset` into `buf`; fewer than `buf.len()` only at the end of the file.
    /// Within [`without_waiting`](crate::without_waiting) it fails with `EAGAIN` where it would
    /// wait for the disk.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32>;
    /// Writes all of `data` at `offset`, and grows the file if it ends beyond. When it fails, any
    /// part of the range may have been written.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32>;
    /// Sets the size of the file in bytes; bytes beyond the old size read as zero.
    fn truncate(&self, size: u64) -> Result<(), i32>;
    /// Size of the file in bytes.
    fn size(&self) -> Result<u64, i32>;
    /// Brings what has been written to the disk: data alone and what is needed to read it back, or
    /// (`data_only` false) all attributes too. Waits for the disk within the call, and so do swaps;
    /// see [`sync_work`](Self::sync_work).
    fn sync(&self, data_only: bool) -> Result<(), i32>;
    /// Bytes from `start` to before `end` read as zero from now on, and take no room if that can be had. The size stays.
    fn punch(&self, start: u64, end: u64) -> Result<(), i32>;
    /// Returns the work of [`sync`](Self::sync), to be run outside of the call. It brings to the
    /// disk what was written before it is run, and its error is that of `sync`.
    fn sync_work(&self, data_only: bool) -> Result<DiskWork, i32>;
    /// Returns the work of bringing `len` bytes from `offset` on into the memory of the host, to be
    /// run outside of the call. A [`read`](Self::read) of these bytes does not wait then, unless
    /// the host has dropped them again.
    fn fetch_work(&self, offset: u64, len: u64) -> Result<DiskWork, i32>;
}
