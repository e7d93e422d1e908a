//! A program whose faults are served, as the reclaimer sees it.

use std::ops::Range;
use std::sync::Arc;

use refit_memory::PAGE_SIZE;
use refit_memory::program::Pager;
use refit_sys::foreign;

const PAGE: u64 = PAGE_SIZE as u64;

/// One program whose faults are served.
pub(crate) struct Served {
    pub(crate) pager: Arc<Pager>,
    /// Its number, once that is known: of a child is known what it has, not who it is.
    pub(crate) process: Option<u32>,
    /// Whether it was made by another that is served.
    pub(crate) child: bool,
    /// What is ours in its memory.
    pub(crate) areas: Vec<Range<u64>>,
    /// Pages in which nothing has been written yet ([`Pager::mark`]).
    pub(crate) marks: Range<u64>,
    /// Whether it had guards (`MADV_GUARD_INSTALL`) when it was planted into; more it is refused.
    pub(crate) guarded: bool,
    /// Where its mark is, if it has one.
    pub(crate) marked: Option<u64>,
    /// Rounds until it is looked at again, if more memory than is counted is there, and how many there were last.
    pub(crate) rest: (u32, u32),
    /// In how many rounds it was not known whose it is.
    pub(crate) unknown: u32,
}

impl Served {
    /// A child of this one.
    pub(crate) fn child(&self, pager: Arc<Pager>) -> Self {
        let (areas, marks) = (self.areas.clone(), self.marks.clone());
        let (guarded, rest) = (self.guarded, (0, 0));
        Self {
            pager,
            process: None,
            child: true,
            areas,
            marks,
            guarded,
            marked: None,
            rest,
            unknown: 0,
        }
    }

    /// Where its mark is, or would be next.
    pub(crate) fn place(&self) -> u64 {
        self.marked.unwrap_or(self.marks.start)
    }

    /// Whether this process has the memory that is served. Its memory gets a mark for it.
    pub(crate) fn is(&mut self, process: u32) -> bool {
        if self.marked.is_none() && !self.marks.is_empty() {
            let mut page = [0; PAGE_SIZE];
            page[..8].copy_from_slice(&self.name());
            self.pager.mark(self.marks.start, &page);
            self.marked = Some(self.marks.start);
            self.marks.start += PAGE;
        }
        let Some(at) = self.marked else { return false };
        let word = foreign::Memory::of(process).ok().and_then(|memory| memory.word(at).ok());
        word.is_some_and(|word| word.to_ne_bytes() == self.name())
    }

    /// Whether what it shares with others is counted as its own: what a parent shares with children is the parent's, unless there is
    /// nobody else left to count it, which is known by how often a child has been looked at in vain.
    pub(crate) fn shares(&self) -> bool {
        !self.child || self.rest.1 > 3
    }

    /// What tells it from all others: where its pager is.
    pub(crate) fn name(&self) -> [u8; 8] {
        (Arc::as_ptr(&self.pager) as u64).to_ne_bytes()
    }
}
