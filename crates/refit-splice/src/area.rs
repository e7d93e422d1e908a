//! The patch area: memory of refit's in the program, near its code.
//!
//! One memfd, mapped shared at one place of the program, in this order:
//!
//! | part | access | what |
//! |---|---|---|
//! | head | read | what is where ([`Head`]), one page |
//! | records | read | each change of the program's bytes, 64 bytes each ([`Record`]), written before the change is made |
//! | code | read, run | snippets and displaced instructions |
//! | data | read, write | the address of the first lane; then, from the next page on, lanes of cells |
//!
//! It tells all that is needed to take the changes out, to whoever can read the program's memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use refit_sys::maps::Mapping;

use crate::Why;
use crate::process::{Call, Program, Refusal, Still};

/// How its mappings are called: the kernel puts `/memfd:` before and ` (deleted)` behind.
pub(crate) const NAME: &std::ffi::CStr = c"refit-splice";
pub(crate) const PAGE: u64 = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"refit-sp");
const VERSION: u64 = 3;

/// How the parts lie, in bytes from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Where it is mapped in the program for which it was made; its children have it there too.
    pub(crate) address: u64,
    /// Where the code begins; the records fill what is between the first page and here.
    pub(crate) code: u64,
    pub(crate) data: u64,
    pub(crate) end: u64,
    /// Records that count.
    pub(crate) records: u64,
    /// Where the instruments' session is mapped for it, and its length; zeros if it is not.
    pub(crate) session: (u64, u64),
}

impl Head {
    pub(crate) const BYTES: usize = 72;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let (session, length) = self.session;
        let own = [self.address, self.code, self.data, self.end, self.records];
        let words = [MAGIC, VERSION].into_iter().chain(own).chain([session, length]);
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The head that these bytes are, if they can be one.
    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut words = [0; Self::BYTES / 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().ok()?);
        }
        let [magic, version, address, code, data, end, records, session, length] = words;
        let found = Self { address, code, data, end, records, session: (session, length) };
        let pages =
            [address, code, data, end, session, length].iter().all(|place| place % PAGE == 0);
        let order = PAGE <= code && code <= data && data <= end && end < 1 << 40;
        let fit = records <= code.saturating_sub(PAGE) / Record::BYTES as u64;
        (magic == MAGIC
            && version == VERSION
            && pages
            && order
            && fit
            && address < 1 << 47
            && session < 1 << 47
            && length < 1 << 47)
            .then_some(found)
    }

    /// Records that there is room for.
    pub(crate) fn most_records(&self) -> u64 {
        (self.code - PAGE) / Record::BYTES as u64
    }

    /// Addresses of the code.
    pub(crate) fn code_range(&self) -> Range<u64> {
        self.address + self.code..self.address + self.data
    }
}

/// One change of the program's bytes; or, if it has no bytes, only where more copies of instructions are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) address: u64,
    /// The bytes before and after; at most five.
    pub(crate) old: Vec<u8>,
    pub(crate) new: Vec<u8>,
    /// Addresses of instructions that run elsewhere, and of their copies; at most five, or [`Record::MOST_COPIES`] without bytes.
    pub(crate) copies: Vec<(u64, u64)>,
}

impl Record {
    pub(crate) const BYTES: usize = 64;
    /// Copies that a record without bytes tells of at most.
    pub(crate) const MOST_COPIES: usize = 11;
    /// In the place of the number of bytes: there are none.
    const NO_BYTES: u8 = 0xff;

    /// Records without bytes that tell of these copies, which ascend in both addresses.
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

    /// Whether it changes a place where something is done, and not the long half of a jump to it.
    pub(crate) fn is_place(&self) -> bool {
        self.changes() && !self.copies.is_empty()
    }

    /// Whether it changes bytes.
    pub(crate) fn changes(&self) -> bool {
        !self.new.is_empty()
    }

    /// Address, addresses of the copies from the first on as distances (at most 5 × 6 bytes), the bytes.
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

/// A patch area in a program, seen from the side that made it.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) head: Head,
    memfd: File,
}

impl Area {
    /// Makes one within reach of `near`, with room for this many records and bytes.
    pub(crate) fn make(
        still: &mut Still<'_>,
        near: &Range<u64>,
        records: usize,
        code: u64,
        data: u64,
    ) -> Result<Self, Why> {
        let round = |bytes: u64| bytes.div_ceil(PAGE) * PAGE;
        let code_begin = PAGE + round((records * Record::BYTES) as u64);
        let data_begin = code_begin + round(code);
        let end = data_begin + round(data);
        let mappings = still.program().mappings()?;
        let address = place_near(&mappings, near, end).ok_or(Why::Far { address: near.start })?;
        let session = (0, 0);
        let head = Head { address, code: code_begin, data: data_begin, end, records: 0, session };
        let call = Call::new(still)?;
        map(still, &call, head)
    }

    /// Address of the word that holds the address of the first lane.
    pub(crate) fn base_word(&self) -> u64 {
        self.head.address + self.head.data
    }

    /// Address of the first lane.
    pub(crate) fn first_lane(&self) -> u64 {
        self.base_word() + PAGE
    }

    /// Writes down what will be changed.
    pub(crate) fn note(&mut self, program: &Program, records: &[Record]) -> Result<(), Why> {
        let bytes: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
        self.put(program, PAGE, &bytes)?;
        self.head.records = records.len() as u64;
        self.put(program, 0, &self.head.to_bytes())
    }

    /// Maps the instruments' session into the program; where it is.
    pub(crate) fn map_session(
        &mut self,
        still: &mut Still<'_>,
        session: &File,
    ) -> Result<u64, Why> {
        let program = still.program();
        let length = session.metadata().map_err(|source| Refusal::System {
            id: program.id(),
            what: "map the instruments' buffers",
            source,
        })?;
        let length = length.len().div_ceil(PAGE) * PAGE;
        let call = Call::new(still)?;
        let passed = call.pass(still, session, self.base_word() + PASSING_AT)?;
        let own = self.head.address..self.head.address + self.head.end;
        let address = still.program().mappings().map(|all| place_near(&all, &own, length));
        let mapped = address.map_err(Why::from).and_then(|address| {
            let address = address.ok_or(Why::Far { address: own.start })?;
            // It is known where it is before it is there.
            self.head.session = (address, length);
            self.put(program, 0, &self.head.to_bytes())?;
            let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
            let how = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
            let arguments = [address, length, access, how, passed, 0];
            Ok(call.make(still, "mmap", libc::SYS_mmap, arguments)?)
        });
        call.make(still, "close", libc::SYS_close, [passed, 0, 0, 0, 0, 0])?;
        mapped
    }

    /// Writes into it at this many bytes from its beginning.
    pub(crate) fn put(&self, program: &Program, at: u64, bytes: &[u8]) -> Result<(), Why> {
        self.memfd.write_all_at(bytes, at).map_err(|source| {
            Refusal::System { id: program.id(), what: "write to the patch area", source }.into()
        })
    }

    /// Words of the data, from this many bytes behind the first lane's beginning on.
    pub(crate) fn words(&self, at: u64, count: usize) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; count * 8];
        self.memfd.read_exact_at(&mut bytes, self.head.data + PAGE + at)?;
        let (words, _) = bytes.as_chunks();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}

/// Where in the first page of the data there is place for passing a file.
const PASSING_AT: u64 = 64;

/// Makes the memfd in the program, maps it there, fetches it; the program keeps the mapping alone. Its head is there before any of it is
/// mapped, so that it is known for what it is whenever refit is killed.
fn map(still: &mut Still<'_>, call: &Call, head: Head) -> Result<Area, Why> {
    let id = still.program().id();
    let flags = libc::MFD_CLOEXEC.into();
    let made =
        call.make_with_text(still, "memfd_create", libc::SYS_memfd_create, NAME, |text| {
            [text, flags, 0, 0, 0, 0]
        })?;
    let mapped = call.fetch(still.program(), made).map_err(Why::from).and_then(|memfd| {
        let failed = |source| Refusal::System { id, what: "make the patch area", source };
        memfd.set_len(head.end).map_err(failed)?;
        let area = Area { head, memfd };
        area.put(still.program(), 0, &head.to_bytes())?;
        area.put(still.program(), head.data, &area.first_lane().to_le_bytes())?;
        let parts = [
            (0, head.code, libc::PROT_READ),
            (head.code, head.data, libc::PROT_READ | libc::PROT_EXEC),
            (head.data, head.end, libc::PROT_READ | libc::PROT_WRITE),
        ];
        for (begin, end, access) in parts {
            let how = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
            let arguments =
                [head.address + begin, end - begin, access as u64, how as u64, made, begin];
            if let Err(refused) = call.make(still, "mmap", libc::SYS_mmap, arguments) {
                crate::remains::unmap(still, std::iter::once(head))?;
                return Err(refused.into());
            }
        }
        Ok(area)
    });
    call.make(still, "close", libc::SYS_close, [made, 0, 0, 0, 0, 0])?;
    mapped
}

/// What a jump reaches, less what lies between the ends of an instruction and a page.
const REACH: u64 = (1 << 31) - (1 << 20);
/// How far from other mappings, so that small changes of them are not in each other's way.
const CLEAR: u64 = 1 << 16;
/// How far from the heap and from stacks: they grow.
const GROWTH: u64 = 1 << 30;
/// How far if there is no other place. A heap that has come to its end goes on elsewhere: C libraries take memory by `mmap` then.
const LEAST_GROWTH: u64 = 1 << 26;
/// The lowest address that is tried (`vm.mmap_min_addr` is at most that on any usual system).
const LOWEST: u64 = 1 << 16;
const HIGHEST: u64 = (1 << 47) - PAGE;

/// A free place of `size` bytes from where everything in `near` can be reached: the nearest one below, else above.
fn place_near(mappings: &[Mapping], near: &Range<u64>, size: u64) -> Option<u64> {
    [GROWTH, LEAST_GROWTH].iter().find_map(|growth| place_clear(mappings, near, size, *growth))
}

/// The same, that far from what grows.
fn place_clear(mappings: &[Mapping], near: &Range<u64>, size: u64, growth: u64) -> Option<u64> {
    let lowest = near.end.saturating_sub(REACH).max(LOWEST);
    let highest = (near.start + REACH).min(HIGHEST).checked_sub(size)?;
    let mut gaps = Vec::new();
    let mut free = LOWEST;
    for mapping in mappings {
        let stack = mapping.name.as_os_str() == "[stack]";
        let clear = if stack { growth } else { CLEAR };
        gaps.push(free..mapping.range.start.saturating_sub(clear));
        let heap = mapping.name.as_os_str() == "[heap]";
        free = free.max(mapping.range.end.saturating_add(if heap { growth } else { CLEAR }));
    }
    gaps.push(free..HIGHEST);
    let fitting = gaps.into_iter().filter_map(|gap| {
        let begin = gap.start.max(lowest);
        let last = gap.end.checked_sub(size)?.min(highest);
        (begin <= last).then_some(begin..last)
    });
    let below = fitting.clone().filter(|place| place.end < near.start).map(|place| place.end);
    let above = fitting.filter(|place| place.start >= near.end).map(|place| place.start);
    let found = below.max().or(above.min())?;
    // Down for one below, up for one above: both stay within their gap, which is clear by more than a page.
    Some(if found < near.start { found / PAGE * PAGE } else { found.div_ceil(PAGE) * PAGE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_records_come_back_as_they_were() {
        let head = Head {
            address: 0x7000_0000,
            code: 0x3000,
            data: 0x8000,
            end: 0x20000,
            records: 7,
            session: (0, 0),
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
        assert!(records.len() < 15 && records.iter().all(|record| !record.changes()));
    }

    #[test]
    fn heads_that_cannot_be_are_none() {
        let head = Head {
            address: 0x7000_0000,
            code: 0x3000,
            data: 0x8000,
            end: 0x20000,
            records: 7,
            session: (0, 0),
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

    #[test]
    fn places_are_free_and_within_reach() {
        let mapping = |range: Range<u64>, name: &str| Mapping {
            range,
            readable: true,
            writable: false,
            executable: true,
            shared: false,
            offset: 0,
            file: (0, 0),
            name: name.into(),
            deleted: false,
        };
        let low =
            [mapping(0x40_0000..0x50_0000, "/bin/x"), mapping(0x150_0000..0x160_0000, "[heap]")];
        let near = 0x40_1000..0x40_2000;
        let found = place_near(&low, &near, 0x10_0000).expect("below");
        assert!(found + 0x10_0000 <= 0x40_0000);
        let large = place_near(&low, &near, 0x100_0000).expect("above the heap");
        assert!(large >= 0x160_0000 + GROWTH && large + 0x100_0000 < near.start + (1 << 31));
        // Neither between a program at a fixed address and its heap, nor a gigabyte behind that heap.
        let heap = 0x1800_0000..0x1810_0000;
        let narrow = [mapping(0x40_0000..0x600_0000, "/bin/x"), mapping(heap, "[heap]")];
        let found = place_near(&narrow, &near, 0x3000_0000).expect("nearer to the heap");
        assert!((0x1810_0000 + LEAST_GROWTH..0x1810_0000 + GROWTH).contains(&found));
        let full = [mapping(0..HIGHEST, "all")];
        assert_eq!(place_near(&full, &near, PAGE), None);
    }
}
