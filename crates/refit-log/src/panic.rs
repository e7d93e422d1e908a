//! Writes the ring to a file when a thread panics.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::event::now_ns;
use crate::ring;

/// Has the first panic of the process write the ring to a file of this user's. A message on
/// standard error names the file, after the message of the previous hook.
pub(crate) fn write_ring_on_panic() {
    static WRITTEN: AtomicBool = AtomicBool::new(false);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        // Relaxed: the flag protects nothing but itself.
        if WRITTEN.swap(true, Ordering::Relaxed) {
            return;
        }
        // Standard error may be gone; a thread that panics can do no more.
        let _ = match write_to(&std::env::temp_dir()) {
            Ok(path) => writeln!(io::stderr(), "refit: the last events are in {}", path.display()),
            Err(error) => writeln!(io::stderr(), "refit: the last events are lost: {error}"),
        };
    }));
}

/// Writes the ring, a JSON object per line, to a new file in `directory`. Returns its path.
fn write_to(directory: &Path) -> io::Result<PathBuf> {
    let path = directory.join(format!("refit-{}-{}.jsonl", std::process::id(), now_ns()));
    // A new file, so that nobody else has put a link there.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let mut to: BufWriter<File> = BufWriter::new(file);
    for event in ring::recent().events {
        serde_json::to_writer(&mut to, &event)?;
        to.write_all(b"\n")?;
    }
    to.flush()?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_written_to_a_file_that_only_this_user_reads() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let path = write_to(directory.path()).expect("written");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for line in std::fs::read_to_string(&path).expect("text").lines() {
            serde_json::from_str::<crate::Event>(line).expect("an event");
        }
        write_to(&directory.path().join("missing")).expect_err("no such directory");
    }
}
