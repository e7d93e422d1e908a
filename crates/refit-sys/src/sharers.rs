//! Which processes have the memory of another one: those of `vfork`, and of `clone` with `CLONE_VM`.
//!
//! The kernel compares the memory of two processes (kcmp(2)), a microsecond each. A process that has another memory keeps another: it comes to
//! share one by being made only. So those that have been compared need not be again ([`Sharers`]), and who is about to stop a program compares them
//! before. A process is told from a later one of the same number by the inode of its directory in `/proc`, which is made with it and goes with it.

use std::collections::BTreeSet;
use std::os::unix::fs::DirEntryExt;

use crate::process::same_memory;

/// A search for those that share the memory of one process.
#[derive(Debug, Default)]
pub struct Sharers {
    /// Number and inode of those that do not.
    others: BTreeSet<(u32, u64)>,
}

impl Sharers {
    /// Processes that have the memory of `thread` now and are not `own`, its process. One that may not be compared is none: it
    /// cannot be held still either.
    pub fn of(&mut self, thread: u32, own: u32) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut found = Vec::new();
        for entry in entries {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if id == own || id == thread || self.others.contains(&(id, entry.ino())) {
                continue;
            }
            match same_memory(thread, id) {
                Ok(true) => found.push(id),
                Ok(false) => _ = self.others.insert((id, entry.ino())),
                Err(_) => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A shell that has been compared stays compared; the one after it, whatever its number, is another.
    #[test]
    fn a_process_is_compared_once() {
        let own = std::process::id();
        let mut sharers = Sharers::default();
        assert!(sharers.of(own, own).is_empty());
        let known = sharers.others.clone();
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).spawn().expect("it can be started");
        assert!(sharers.of(own, own).is_empty());
        let ours = |sharers: &Sharers| {
            sharers.others.iter().find(|(id, _)| *id == child.id()).map(|(_, inode)| *inode)
        };
        let inode = ours(&sharers).expect("it is compared");
        assert!(!known.contains(&(child.id(), inode)));
        sharers.of(own, own);
        assert_eq!(ours(&sharers), Some(inode));
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
}
