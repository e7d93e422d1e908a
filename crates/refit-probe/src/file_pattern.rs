//! Finds the files of a program that a name or a pattern means: `libc`, `libssl.so*`,
//! `/usr/lib/*/libz.so.1`.
//!
//! All commands that take the name of a file of a program find it here.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use refit_sys::glob;

use crate::modules::Mapped;

/// The most paths that a pattern is expanded to, at each `/` of it.
const MOST_PATHS: usize = 10_000;

/// A name of files, or a pattern over names or paths.
#[derive(Clone, Debug)]
pub struct FilePattern<'w> {
    wanted: &'w str,
    /// Device and inode of the files to which it leads as a path.
    there: Vec<(u64, u64)>,
}

impl<'w> FilePattern<'w> {
    /// Returns a pattern for the files of a process.
    ///
    /// A pattern with a `/` is expanded as in a shell, with symbolic links, both as refit and as
    /// the process sees the file system.
    pub fn new(wanted: &'w str, process: u32) -> Self {
        let mut paths = Vec::new();
        if wanted.contains('/') {
            paths = expand(Path::new(""), wanted);
            let root = PathBuf::from(format!("/proc/{process}/root/"));
            let inside = wanted.strip_prefix('/').map(|inside| expand(&root, inside));
            paths.extend(inside.into_iter().flatten());
        }
        let mut there: Vec<_> = paths.iter().filter_map(|path| identity(path)).collect();
        there.sort_unstable();
        there.dedup();
        Self { wanted, there }
    }

    /// Whether it means this file: by a path, by its file name, by the file name up to its first
    /// `.so`, or by `*` and `?` in the file name or the path, where `*` matches `/`, too.
    pub fn matches(&self, file: &Mapped) -> bool {
        let (name, wanted) = (file.name(), self.wanted);
        let stem = name.split(".so").next().unwrap_or(&name);
        let like = |name: &[u8]| glob::matches(wanted.as_bytes(), name);
        wanted == stem
            || like(name.as_bytes())
            || like(file.path.as_os_str().as_bytes())
            || !self.there.is_empty()
                && identity(&file.file).is_some_and(|id| self.there.binary_search(&id).is_ok())
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Returns the paths that match a pattern; those without `*` and `?` may lead to nothing.
fn expand(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut paths = vec![root.to_owned()];
    for part in pattern.split_inclusive('/') {
        let name = part.trim_end_matches('/');
        if glob::is_literal(name.as_bytes()) {
            for path in &mut paths {
                // Only the first part of an absolute path is `/`.
                let begins = name.is_empty() && path.as_os_str().is_empty();
                path.push(if begins { "/" } else { name });
            }
            continue;
        }
        let within = |folder: &PathBuf| {
            let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            fs::read_dir(here).ok().into_iter().flatten().flatten()
        };
        let entries = paths.iter().flat_map(within);
        let fits = entries.filter(|one| glob::matches(name.as_bytes(), one.file_name().as_bytes()));
        paths = fits.map(|entry| entry.path()).take(MOST_PATHS).collect();
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn patterns_are_expanded_at_each_slash() {
        let folder = tempfile::tempdir().expect("a folder");
        for part in ["a/libx.so.1", "b/libx.so.2", "b/c/libx.so.3"] {
            let path = folder.path().join(part);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, part).expect("written");
        }
        symlink(folder.path().join("b"), folder.path().join("d")).expect("a link");
        let expanded = |pattern: &str| {
            let whole = format!("{}/{pattern}", folder.path().display());
            let mut found = expand(Path::new(""), &whole);
            let in_root = expand(Path::new("/"), &whole[1..]);
            assert_eq!(found, in_root);
            found.sort_unstable();
            let inner = |path: &PathBuf| {
                let inner = path.strip_prefix(folder.path()).expect("in the folder");
                inner.to_string_lossy().into_owned()
            };
            found.iter().map(inner).collect::<Vec<_>>()
        };
        assert_eq!(expanded("?/libx.so*"), ["a/libx.so.1", "b/libx.so.2", "d/libx.so.2"]);
        assert_eq!(expanded("*/libx*3"), [""; 0]);
        assert_eq!(expanded("d/*/lib*"), ["d/c/libx.so.3"]);
        assert_eq!(expanded("none//x"), ["none/x"]);
    }
}
