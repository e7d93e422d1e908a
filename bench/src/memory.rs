//! Measures the memory that a cached page costs beyond the page itself: the server's heap before
//! and after 128 MiB of files are cached.

use std::fs::File;
use std::io::Write;

use refit_sys::memory::PAGE_SIZE;

use crate::files::Place;
use crate::load::serve;
use crate::stats::Sample;

const PAGES: usize = 32 * 1024;

/// Returns the heap bytes in use, as reported by glibc.
fn heap() -> usize {
    // SAFETY: takes no arguments and no memory.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Returns the bytes per cached page, of one large file and of many small ones (a file of 16
/// pages).
pub(crate) fn measure() -> [(&'static str, Sample); 2] {
    [("one file of 128 MiB", 1), ("2048 files of 64 KiB", 2048)]
        .map(|(name, files)| (name, (0..3).map(|_| once(files)).collect()))
}

fn once(files: usize) -> f64 {
    let place = Place::new().expect("a scratch directory can be made");
    let mount = serve(&place);
    let mut open = Vec::new();
    for n in 0..files {
        let path = place.mountpoint().join(format!("{n}"));
        open.push(File::create(path).expect("the mount can be written"));
    }
    for file in &mut open {
        // Inodes, objects and their first page exist; from here on only pages are added.
        file.write_all(&[1; PAGE_SIZE]).expect("the mount can be written");
    }
    mount.write_back().expect("the source can be written");
    let before = heap();
    let each = PAGES / files - 1;
    for file in &mut open {
        for _ in 0..each {
            file.write_all(&[1; PAGE_SIZE]).expect("the mount can be written");
        }
    }
    mount.write_back().expect("the source can be written");
    let grown = heap().saturating_sub(before) as f64 / (each * files) as f64;
    drop(open);
    mount.unmount().expect("nobody uses it any more");
    // The descriptors of the pool are created with it, one for each frame.
    grown + DESCRIPTOR
}

/// The size of a frame's descriptor in bytes (`refit-memory/src/frames.rs`).
const DESCRIPTOR: f64 = 24.0;
