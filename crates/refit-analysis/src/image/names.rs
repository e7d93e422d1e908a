//! Bounds the names that are read from untrusted tables.
//!
//! Every entry of a table may claim the same long name. Reading each of them would take time and
//! memory that grow with the square of the file, so all names of a file together have a bound,
//! which the output of linkers stays far below.

use super::elf::Elf;

/// Total length of names, as a multiple of the file's length: a name is in the file once, and
/// several tables may refer to it.
const TIMES: usize = 2;
/// Divisor of the file's length for the cost of an entry without a name: its end may have been
/// searched for through the whole file.
const SEARCHES: usize = 64;

/// The bytes of names that may still be read.
#[derive(Debug)]
pub(super) struct Names {
    left: usize,
    search: usize,
}

impl Names {
    /// Returns the budget for a table of `elf`.
    pub(super) fn of(elf: &Elf) -> Self {
        Self::within(elf.data.len())
    }

    /// Returns the budget for a table in this many bytes.
    pub(super) fn within(bytes: usize) -> Self {
        Self { left: bytes * TIMES, search: bytes / SEARCHES + 1 }
    }

    /// Returns the name that `read` finds; `None` if it finds none, or if the budget is exhausted.
    pub(super) fn read<'a>(&mut self, read: impl FnOnce() -> Option<&'a [u8]>) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        let name = read();
        self.left = self.left.saturating_sub(name.map_or(self.search, |name| name.len() + 1));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_to_an_end() {
        let mut names = Names::within(100);
        let read = (0..1000).filter(|_| names.read(|| Some(&[b'a'; 49])).is_some()).count();
        assert_eq!(read, 4);
        let mut names = Names::within(6400);
        assert_eq!((0..1000).filter(|_| names.read(|| None).is_some()).count(), 0);
        assert_eq!(names.read(|| Some(b"late")), None);
    }
}
