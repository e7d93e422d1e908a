//! The format of a patch area: its head, and a record of each change.

use std::ops::Range;

use refit_sys::memory::PAGE_SIZE_U64;

const MAGIC: u64 = u64::from_le_bytes(*b"refit-sp");
const VERSION: u64 = 9;

/// Addresses and offsets of the parts of an area, in bytes from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Address at which it is mapped in the program for which it was made, and in its forked
    /// children.
    pub(crate) address: u64,
    /// Offset of the tables for unwinders; the records are between the first page and here.
    pub(crate) tables: u64,
    pub(crate) code: u64,
    pub(crate) data: u64,
    pub(crate) end: u64,
    /// Number of records that are valid.
    pub(crate) records: u64,
    /// Address and length of the instruments' session, mapped for the area; zeros if it is not
    /// mapped.
    pub(crate) session: (u64, u64),
    /// Bytes at the beginning of the code that may read the tables of other areas: they find
    /// frames.
    pub(crate) finders: u64,
    /// Number of times that sites of the program had been moved when it was made: areas with
    /// greater numbers are taken out first ([`move_sites`](crate::move_sites)).
    pub(crate) generation: u64,
    /// The kind of its contents.
    pub(crate) contents: Contents,
}

/// The contents of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Snippets, and the instructions that they displace.
    Snippets,
    /// An arrangement of copies. Its code makes calls itself, so that return addresses lead to it
    /// ([`arrange`](crate::arrange)).
    Arrangement,
    /// Versions of functions, which make calls themselves as well ([`versions`](crate::versions)).
    Versions,
    /// No code: the records are immediates that have been replaced
    /// ([`immediates`](crate::immediates)).
    Immediates,
}

impl Contents {
    const ALL: [Self; 4] = [Self::Snippets, Self::Arrangement, Self::Versions, Self::Immediates];
}

impl Head {
    pub(crate) const BYTES: usize = 104;
    /// Offset in the area. The area begins with the headers of an ELF image.
    pub(crate) const AT: u64 = 1024;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let (session, length) = self.session;
        let own = [self.address, self.tables, self.code, self.data, self.end, self.records];
        let words = [MAGIC, VERSION].into_iter().chain(own).chain([
            session,
            length,
            self.finders,
            self.generation,
            self.contents as u64,
        ]);
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a head; `None` if the bytes cannot be one.
    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut words = [0; Self::BYTES / 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().ok()?);
        }
        let [magic, version, address, tables, code, data, end, records, session, length, rest @ ..] =
            words;
        let (session, [finders, generation, contents]) = ((session, length), rest);
        let contents = *Contents::ALL.get(usize::try_from(contents).ok()?)?;
        let found = Self {
            address,
            tables,
            code,
            data,
            end,
            records,
            session,
            finders,
            generation,
            contents,
        };
        let pages = [address, tables, code, data, end, session.0, length]
            .iter()
            .all(|place| place % PAGE_SIZE_U64 == 0);
        let order = [PAGE_SIZE_U64, tables, code, data, end].is_sorted() && end < 1 << 40;
        let fit = records <= tables.saturating_sub(PAGE_SIZE_U64) / Record::BYTES as u64;
        (magic == MAGIC
            && version == VERSION
            && pages
            && order
            && fit
            && address < 1 << 47
            && finders <= data - code
            && session.0 < 1 << 47
            && length < 1 << 47)
            .then_some(found)
    }

    /// Returns the number of records that fit.
    pub(crate) fn most_records(&self) -> u64 {
        (self.tables - PAGE_SIZE_U64) / Record::BYTES as u64
    }

    /// Whether its code makes calls itself.
    pub(crate) fn calls(&self) -> bool {
        matches!(self.contents, Contents::Arrangement | Contents::Versions)
    }

    /// Whether it has code, rather than nothing but records.
    pub(crate) fn has_code(&self) -> bool {
        self.contents != Contents::Immediates
    }

    /// Returns the addresses of the code.
    pub(crate) fn code_range(&self) -> Range<u64> {
        self.address + self.code..self.address + self.data
    }

    /// Returns the offset of the first lane, behind the page of the process's own data.
    pub(crate) fn lanes(&self) -> u64 {
        self.data + PAGE_SIZE_U64
    }

    /// Returns the addresses of the code that finds frames.
    pub(crate) fn finders(&self) -> Range<u64> {
        let begin = self.code_range().start;
        begin..begin + self.finders
    }
}

/// A change of the program's bytes; or, without bytes, only the addresses of further copies of
/// instructions; or, without both, a semaphore ([`semaphores`](crate::semaphores)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) address: u64,
    /// The bytes before and after the change; at most five.
    pub(crate) old: Vec<u8>,
    pub(crate) new: Vec<u8>,
    /// Addresses of instructions that run elsewhere, and of their copies; at most five, or
    /// [`Record::MOST_COPIES`] in a record without bytes.
    pub(crate) copies: Vec<(u64, u64)>,
}

impl Record {
    pub(crate) const BYTES: usize = 64;
    /// Maximum number of copies in a record without bytes.
    pub(crate) const MOST_COPIES: usize = 11;
    /// Stands for the number of bytes in a record without bytes.
    const NO_BYTES: u8 = 0xff;

    /// Packs copies into records without bytes; they ascend in both addresses.
    pub(crate) fn of_copies(copies: &[(u64, u64)]) -> Vec<Self> {
        let mut records: Vec<Self> = Vec::new();
        for &(from, copy) in copies {
            let fits = |record: &&mut Self| {
                let (first, near) = (record.copies[0].1, 1 << 16);
                let apart =
                    from.wrapping_sub(record.address) < near && copy.wrapping_sub(first) < near;
                apart && record.copies.len() < Self::MOST_COPIES
            };
            match records.last_mut().filter(fits) {
                Some(record) => record.copies.push((from, copy)),
                None => records.push(Self {
                    address: from,
                    copies: vec![(from, copy)],
                    ..Self::default()
                }),
            }
        }
        records
    }

    /// Returns the record of a semaphore that is raised: neither bytes nor copies.
    pub(crate) fn semaphore(address: u64) -> Self {
        Self { address, ..Self::default() }
    }

    /// Whether it is the record of a semaphore.
    pub(crate) fn is_semaphore(&self) -> bool {
        !self.changes() && self.copies.is_empty()
    }

    /// Whether it changes a site rather than a springboard.
    pub(crate) fn is_place(&self) -> bool {
        self.changes() && !self.copies.is_empty()
    }

    /// Returns the address of the long jump that the place reaches by a short one, and that of the
    /// place.
    pub(crate) fn springboard(&self) -> Option<(u64, u64)> {
        let [_, distance] = self.new[..] else { return None };
        let end = self.address + self.new.len() as u64;
        Some((end.wrapping_add_signed(distance.cast_signed().into()), self.address))
    }

    /// Returns the address of its long jump and that to which it leads.
    pub(crate) fn target(&self) -> Option<(u64, u64)> {
        let [0xe9, distance @ ..] = &self.new[..] else { return None };
        let end = self.address + self.new.len() as u64;
        let distance = i32::from_le_bytes(distance.try_into().ok()?);
        Some((self.address, end.wrapping_add_signed(distance.into())))
    }

    /// Whether it changes bytes.
    pub(crate) fn changes(&self) -> bool {
        !self.new.is_empty()
    }

    /// Encodes it: address, addresses of the copies as distances from the first (4 bytes each), the
    /// bytes.
    pub(crate) fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[9] = self.copies.len() as u8;
        let first = self.copies.first().map_or(0, |&(_, copy)| copy);
        let mut at = 12;
        if self.changes() {
            bytes[8] = self.old.len() as u8;
            bytes[10..10 + self.old.len()].copy_from_slice(&self.old);
            bytes[15..15 + self.new.len()].copy_from_slice(&self.new);
            at = 20;
        } else {
            bytes[8] = Self::NO_BYTES;
        }
        bytes[at..at + 8].copy_from_slice(&first.to_le_bytes());
        for (place, &(from, copy)) in bytes[at + 8..].chunks_exact_mut(4).zip(&self.copies) {
            place[..2].copy_from_slice(&((from - self.address) as u16).to_le_bytes());
            place[2..].copy_from_slice(&((copy - first) as u16).to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (changed, copies) = (bytes[8], usize::from(bytes[9]));
        let (changed, most, at) = match changed {
            Self::NO_BYTES => (0, Self::MOST_COPIES, 12),
            1..=5 => (usize::from(changed), 5, 20),
            _ => return None,
        };
        if copies > most {
            return None;
        }
        let (address, first) = (word(0)?, word(at)?);
        let copies = bytes[at + 8..].chunks_exact(4).take(copies).map(|place| {
            let half = |at: usize| u64::from(u16::from_le_bytes([place[at], place[at + 1]]));
            (address.wrapping_add(half(0)), first.wrapping_add(half(2)))
        });
        Some(Self {
            address,
            old: bytes[10..10 + changed].to_vec(),
            new: bytes[15..15 + changed].to_vec(),
            copies: copies.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_records_come_back_as_they_were() {
        let head = Head {
            address: 0x7000_0000,
            tables: 0x3000,
            code: 0x4000,
            data: 0x8000,
            end: 0x20000,
            records: 7,
            session: (0, 0),
            finders: 0x123,
            generation: 3,
            contents: Contents::Arrangement,
        };
        assert_eq!(Head::from_bytes(&head.to_bytes()), Some(head));
        let record = Record {
            address: 0x5555_0123,
            old: vec![1, 2, 3, 4, 5],
            new: vec![0xe9, 9, 8, 7, 6],
            copies: vec![(0x5555_0123, 0x7000_3010), (0x5555_0126, 0x7000_3013)],
        };
        assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
        let copies: Vec<_> =
            (0..100).map(|n| (0x5555_0123 + 7 * n, 0x7000_3010 + 900 * n)).collect();
        let records = Record::of_copies(&copies);
        let read = records.iter().map(|one| Record::from_bytes(&one.to_bytes()).expect("a record"));
        let read: Vec<_> = read.flat_map(|record| record.copies).collect();
        assert_eq!(read, copies);
        let semaphore = Record::semaphore(0x5555_0100);
        let read = Record::from_bytes(&semaphore.to_bytes()).expect("a record");
        assert!(read == semaphore && read.is_semaphore() && !records[0].is_semaphore());
        assert!(records.len() < 15 && records.iter().all(|record| !record.changes()));
    }

    #[test]
    fn heads_that_cannot_be_are_none() {
        let head = Head {
            address: 0x7000_0000,
            tables: 0x3000,
            code: 0x4000,
            data: 0x8000,
            end: 0x20000,
            records: 7,
            session: (0, 0),
            finders: 0x123,
            generation: 3,
            contents: Contents::Arrangement,
        };
        for at in 0..Head::BYTES {
            let mut bytes = head.to_bytes();
            bytes[at] = bytes[at].wrapping_add(0x81);
            if let Some(found) = Head::from_bytes(&bytes) {
                assert!(found.code_range().end <= found.address + found.end, "{at}: {found:?}");
            }
        }
        assert_eq!(Head::from_bytes(&[0xff; Head::BYTES]), None);
    }
}
