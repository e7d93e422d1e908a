//! Finds the processes that share the memory of another one: children of `vfork`, and of `clone`
//! with `CLONE_VM`.
//!
//! The kernel compares the memory of two processes (kcmp(2)), which takes a microsecond for each
//! pair. Processes share memory only from their creation on; a process that has its own memory
//! never comes to share another's. So a process that has been compared need not be compared again
//! ([`Sharers`]), and a caller that is about to stop a program makes the comparisons before it
//! stops it. The inode of its directory in `/proc`, which exists as long as the process,
//! distinguishes a process from a later one with the same number.

use std::collections::BTreeSet;
use std::os::unix::fs::DirEntryExt;

use crate::process::same_memory;

/// A search for the processes that share the memory of one process.
#[derive(Debug, Default)]
pub struct Sharers {
    /// Number and inode of processes that do not share it.
    others: BTreeSet<(u32, u64)>,
}

impl Sharers {
    /// Returns the processes that share the memory of `thread` and are not `own`, its process. A
    /// process that the caller may not compare is left out: the caller could not stop it either.
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

    /// A process that has been compared stays compared; a later one is another, whatever its
    /// number.
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
