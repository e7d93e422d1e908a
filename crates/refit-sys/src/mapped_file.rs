//! Files that other processes have mapped, although they may be deleted, replaced, or in another
//! mount namespace.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::makedev;

use crate::maps::Mapping;

/// A path of a file that a process has mapped. It leads to the file also when the process has
/// ended, as long as this lives.
#[derive(Clone, Debug)]
pub struct KeptFile {
    /// The path.
    pub path: PathBuf,
    /// The file, if its path is that of a descriptor.
    _open: Option<Arc<File>>,
}

impl KeptFile {
    /// Finds the file of a mapping; `None` if it cannot be reached any more, or its name leads to
    /// another one by now.
    pub fn of(process: u32, mapping: &Mapping) -> Option<Self> {
        let exact = exact_path(process, mapping);
        let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        // Only privileged callers can resolve the link. Some file systems show other devices in
        // mappings than for files, whose names are not followed then.
        let wanted = identity(&exact).unwrap_or_else(|| {
            let (device, inode) = mapping.file;
            (makedev((device >> 32) as u32, device as u32), inode)
        });
        let is_mapped = |path: &Path| identity(path) == Some(wanted);
        if is_mapped(&mapping.name) {
            return Some(Self { path: mapping.name.clone(), _open: None });
        }
        let by_name = path_by_name(process, mapping);
        let found = [exact, by_name].into_iter().find(|path| is_mapped(path))?;
        let file = File::open(found).ok()?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Some(Self { path, _open: Some(Arc::new(file)) })
    }
}

/// Returns the path of the file of a mapping itself, whatever its name leads to.
fn exact_path(process: u32, mapping: &Mapping) -> PathBuf {
    let range = &mapping.range;
    format!("/proc/{process}/map_files/{:x}-{:x}", range.start, range.end).into()
}

/// Returns the path of the file that has the name now, as the process sees it.
pub fn path_by_name(process: u32, mapping: &Mapping) -> PathBuf {
    let mut path = PathBuf::from(format!("/proc/{process}/root"));
    path.extend(mapping.name.components().skip(1));
    path
}
