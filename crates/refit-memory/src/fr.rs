//! The interface of a file representative: the file behind a cache (Hui 2000, §3.2).

use crate::disk::DiskWork;

/// The file on the host whose pages a [`FileCache`](crate::FileCache) holds.
///
/// A leaf of the call structure: it makes system calls on the host's file and calls no other
/// object. Errors are `errno` values.
#[refit_objects::interface(name = "fr", state = (), version = 3)]
pub trait FileRepresentative {
    /// Reads bytes from `offset` into `buf`. Returns their number, which is less than `buf.len()`
    /// only at the end of the file. Within [`without_waiting`](crate::without_waiting) it fails
    /// with `EAGAIN` where it would wait for the disk.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32>;
    /// Writes all of `data` at `offset`, and extends the file if it ends beyond. After a failure,
    /// any part of the range may have been written.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32>;
    /// Sets the size of the file in bytes; bytes beyond the old size read as zero.
    fn truncate(&self, size: u64) -> Result<(), i32>;
    /// Returns the size of the file in bytes.
    fn size(&self) -> Result<u64, i32>;
    /// Writes the file to the disk: the data and the attributes that are needed to read it back, or
    /// (`data_only` false) all attributes. Waits for the disk within the call, which delays swaps;
    /// see [`sync_work`](Self::sync_work).
    fn sync(&self, data_only: bool) -> Result<(), i32>;
    /// Makes bytes `[start, end)` read as zero, and frees their space if possible. The size stays
    /// the same.
    fn punch(&self, start: u64, end: u64) -> Result<(), i32>;
    /// Returns the work of [`sync`](Self::sync), to run outside of the call. It synchronizes all
    /// data that was written before it runs, and fails as `sync` does.
    fn sync_work(&self, data_only: bool) -> Result<DiskWork, i32>;
    /// Returns the work of reading `len` bytes from `offset` on into the memory of the host, to run
    /// outside of the call. A [`read`](Self::read) of these bytes does not wait afterwards, unless
    /// the host has dropped them again.
    fn fetch_work(&self, offset: u64, len: u64) -> Result<DiskWork, i32>;
}
