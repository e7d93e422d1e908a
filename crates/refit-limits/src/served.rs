//! A program whose faults are served, as the reclaimer sees it.

use std::ops::Range;
use std::sync::Arc;

use refit_memory::PAGE_SIZE;
use refit_memory::program::Pager;
use refit_sys::foreign;
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::pagemap::Pagemap;
use tracing::debug;

/// A program whose faults are served.
pub(crate) struct Served {
    pub(crate) pager: Arc<Pager>,
    /// The process, once that is known: at first only the memory of a child is known, not its
    /// number.
    pub(crate) process: Option<u32>,
    /// Whether it was forked from another program that is served.
    pub(crate) child: bool,
    /// The areas in its memory that are refit's.
    pub(crate) areas: Vec<Range<u64>>,
    /// The pages that can still be marked ([`Pager::mark`]).
    pub(crate) marks: Range<u64>,
    /// Whether it had guards (`MADV_GUARD_INSTALL`) when it was set up. It is refused further ones.
    pub(crate) guarded: bool,
    /// The address of its mark, if it has one.
    pub(crate) marked: Option<u64>,
    /// The number of rounds until its mappings are read again if it has more memory than is
    /// counted; and the last such number.
    pub(crate) backoff: (u32, u32),
    /// The number of rounds in which its process was not known.
    pub(crate) unknown: u32,
}

impl Served {
    /// Returns the entry of a child of this program.
    pub(crate) fn child(&self, pager: Arc<Pager>) -> Self {
        let (areas, marks) = (self.areas.clone(), self.marks.clone());
        let (guarded, backoff) = (self.guarded, (0, 0));
        Self {
            pager,
            process: None,
            child: true,
            areas,
            marks,
            guarded,
            marked: None,
            backoff,
            unknown: 0,
        }
    }

    /// Returns the address of its mark, or of the next one.
    pub(crate) fn place(&self) -> u64 {
        self.marked.unwrap_or(self.marks.start)
    }

    /// Returns whether a process has the memory that is served. Marks the memory for that.
    pub(crate) fn is(&mut self, process: u32) -> bool {
        if self.marked.is_none() && !self.marks.is_empty() {
            let mut page = [0; PAGE_SIZE];
            page[..8].copy_from_slice(&self.name());
            match self.pager.mark(self.marks.start, &page) {
                Ok(()) => {
                    self.marked = Some(self.marks.start);
                    self.marks.start += PAGE_SIZE_U64;
                }
                // It is tried again at the next look; the memory may be gone, too.
                Err(error) => debug!(process, %error, "its memory gets no mark now"),
            }
        }
        let Some(at) = self.marked else { return false };
        word_at(process, at).is_some_and(|word| word.to_ne_bytes() == self.name())
    }

    /// Returns whether memory that it shares with others counts as its own. What a parent shares
    /// with children is the parent's, unless nobody else is left to count it, which shows in the
    /// number of times that a child was looked at in vain.
    pub(crate) fn counts_shared(&self) -> bool {
        !self.child || self.backoff.1 > 3
    }

    /// Returns the bytes of the mark, which distinguish it from all others: the address of its
    /// pager.
    pub(crate) fn name(&self) -> [u8; 8] {
        (Arc::as_ptr(&self.pager) as u64).to_ne_bytes()
    }
}

/// Returns the word at an address of a process if there is a page, and touches nothing if not.
///
/// Siblings are marked at the same address. A read of memory that has no mark yet would be a fault,
/// which its own pager resolves with zeros: then there is no room for its mark any more, and nobody
/// finds the process.
fn word_at(process: u32, at: u64) -> Option<u64> {
    let pages =
        Pagemap::of(process).and_then(|pagemap| pagemap.pages(at..at + PAGE_SIZE_U64)).ok()?;
    let is_there = pages.first().is_some_and(|page| page.present() || page.swapped());
    if !is_there {
        return None;
    }
    foreign::Memory::of(process).ok()?.word(at).ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A program that maps a page, says where, touches it when it is told to, and says so.
    const TOUCHES: &str = "import ctypes, mmap\n\
        page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
        print(ctypes.addressof(ctypes.c_char.from_buffer(page)), flush=True)\n\
        input()\n\
        page[0] = 7\n\
        print('touched', flush=True)\n\
        input()";

    #[test]
    fn memory_without_a_page_is_not_touched() {
        use std::io::{BufRead, BufReader, Write};
        let mut python = Command::new("python3");
        let python = python.args(["-c", TOUCHES]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().expect("there is python3");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut line = || lines.next().expect("a line").expect("text");
        let at: u64 = line().parse().expect("an address");
        let is_present = || {
            let pagemap = Pagemap::of(child.id()).expect("it runs");
            pagemap.pages(at..at + PAGE_SIZE_U64).expect("its pages")[0].present()
        };
        assert_eq!((word_at(child.id(), at), is_present()), (None, false));
        let mut input = child.stdin.as_ref().expect("a pipe");
        input.write_all(b"\n").expect("it reads");
        assert_eq!(line(), "touched");
        assert_eq!((word_at(child.id(), at), is_present()), (Some(7), true));
        child.kill().expect("a child");
        child.wait().expect("its end");
    }
}
