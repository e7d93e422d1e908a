//! Names out of tables of a file that nobody vouches for: together no longer than a file can have use for.
//!
//! Every entry of a table may claim the same long name. To read each of them would take time and memory that grow with the
//! square of the file, so there is a bound for all names of a file together, which what linkers write stays far below.

use super::elf::Elf;

/// How much longer than the file all its names may be together: a name stands in the file once and in several tables.
const TIMES: usize = 2;
/// What an entry costs that has no name: the end of it may have been looked for through the whole file.
const SEARCHES: usize = 64;

/// How many bytes of names may be read yet.
#[derive(Debug)]
pub(super) struct Names {
    left: usize,
    search: usize,
}

impl Names {
    /// For a table of `elf`.
    pub(super) fn of(elf: &Elf) -> Self {
        Self::within(elf.data.len())
    }

    /// For a table in this many bytes.
    pub(super) fn within(bytes: usize) -> Self {
        Self { left: bytes * TIMES, search: bytes / SEARCHES + 1 }
    }

    /// The name that `read` finds; none if there is none, or if there have been too many bytes of them.
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
