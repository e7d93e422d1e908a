//! The patch area: memory that refit has mapped into the program, near its code.
//!
//! The area is one memfd, mapped shared at one address range of the program, in this order:
//!
//! | part | access | what |
//! |---|---|---|
//! | head | read | ELF headers, and what is where ([`Head`]); one page |
//! | records | read | 64 bytes for each change ([`Record`]), written before the change is made |
//! | tables | read | the code described for unwinders and debuggers (`unwind`) |
//! | code | read, run | snippets and displaced instructions |
//! | data | read, write | [`indices`], `semaphores`, [`debugger`], `libunwind`; lanes; `store` |
//!
//! The first page of the data is private to each process: forked children have their own.
//!
//! Any process that can read the program's memory can undo the changes from what it finds there.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use refit_sys::maps::Mapping;
use refit_sys::memfd::{self, HUGE_PAGE};
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::patch_area::{NAME, is_area};
use refit_sys::words::Window;
use rustix::fs::{FallocateFlags, fallocate};
use tracing::debug;

use crate::debugger;
use crate::indices;
use crate::libunwind::DynamicList;
use crate::process::{Call, Program, Refusal, Still, general};
use crate::record::{Contents, Head, Record};
use crate::unwind::Unwinding;
use crate::why::Why;

/// The room in an area, besides its head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Number of records.
    pub(crate) records: usize,
    /// Bytes of tables, of code and of data.
    pub(crate) tables: u64,
    pub(crate) code: u64,
    pub(crate) data: u64,
}

/// A patch area in a program, as seen by the process that made it.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) head: Head,
    memfd: File,
    /// The area in this process, if it was needed.
    window: OnceLock<Window>,
}

impl Area {
    /// Makes an area within reach of `near`, with this much room.
    pub(crate) fn make(still: &mut Still<'_>, near: &Range<u64>, room: Room) -> Result<Self, Why> {
        let round = |bytes: u64| bytes.next_multiple_of(PAGE_SIZE_U64);
        let unit = if room.code >= MUCH_CODE { HUGE_PAGE } else { PAGE_SIZE_U64 };
        let tables = PAGE_SIZE_U64 + round((room.records * Record::BYTES) as u64);
        let code = (tables + room.tables).next_multiple_of(unit);
        let data = code + room.code.next_multiple_of(unit);
        let end = data + round(room.data);
        let mappings = with_pointed_to(still, still.program().mappings()?);
        let address =
            place_near(&mappings, near, end, unit).ok_or(Why::Far { address: near.start })?;
        let session = (0, 0);
        let head = Head {
            address,
            tables,
            code,
            data,
            end,
            records: 0,
            session,
            finders: 0,
            generation: 0,
            contents: Contents::Snippets,
        };
        let call = Call::new(still)?;
        map(still, &call, head)
    }

    /// Returns the address of the word that holds the address of the first lane.
    pub(crate) fn base_word(&self) -> u64 {
        self.head.address + self.head.data
    }

    /// Returns the address of the first lane.
    pub(crate) fn first_lane(&self) -> u64 {
        self.head.address + self.head.lanes()
    }

    /// Records the changes that are about to be made.
    pub(crate) fn note(&mut self, program: &Program, records: &[Record]) -> Result<(), Why> {
        let bytes: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
        self.put(program, PAGE_SIZE_U64, &bytes)?;
        self.head.records = records.len() as u64;
        self.put(program, Head::AT, &self.head.to_bytes())
    }

    /// Describes the code for unwinders and debuggers; `list` is that of the program's libunwind.
    pub(crate) fn describe(
        &self,
        program: &Program,
        unwinding: &Unwinding,
        list: Option<&DynamicList>,
    ) -> Result<(), Why> {
        let image = unwinding.encode(&self.head, list).ok_or_else(|| Why::Generate {
            address: self.head.address,
            reason: "the patch area is too small for its frame descriptions".to_owned(),
        })?;
        self.put(program, self.head.tables, &image.tables)?;
        self.put(program, 0, &image.header)?;
        if let Some(list) = list {
            list.describe(program, &self.head, image.index, image.springboards)?;
        }
        Ok(())
    }

    /// Maps the instruments' session into the program; returns its address.
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
        let length = length.len().div_ceil(PAGE_SIZE_U64) * PAGE_SIZE_U64;
        let call = Call::new(still)?;
        let passed = call.pass(still, session, self.base_word() + PASSING_AT)?;
        let own = self.head.address..self.head.address + self.head.end;
        let address =
            still.program().mappings().map(|all| place_near(&all, &own, length, PAGE_SIZE_U64));
        let mapped = address.map_err(Why::from).and_then(|address| {
            let address = address.ok_or(Why::Far { address: own.start })?;
            // The head says where the session is before it is mapped.
            self.head.session = (address, length);
            self.put(program, Head::AT, &self.head.to_bytes())?;
            let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
            let how = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
            let arguments = [address, length, access, how, passed, 0];
            Ok(call.make(still, "mmap", libc::SYS_mmap, arguments)?)
        });
        call.make(still, "close", libc::SYS_close, [passed, 0, 0, 0, 0, 0])?;
        mapped
    }

    /// Lists these areas for the code that finds frame descriptions, and names this one.
    pub(crate) fn list(&self, program: &Program, heads: &[Head]) -> Result<(), Why> {
        let at = self.base_word() + indices::AT;
        let described = debugger::describe(program, &self.head, &self.path(program));
        described.and_then(|()| program.write(at, &indices::list(heads))).map_err(|source| {
            Refusal::System { id: program.id(), what: "write to the patch area", source }.into()
        })
    }

    /// Returns a path by which a debugger can open the file of the area. That of the mapping in
    /// the program is there as long as the area, also when refit has been killed, but to open it
    /// takes `CAP_CHECKPOINT_RESTORE` (proc(5)). Without that, it is a descriptor of this process.
    fn path(&self, program: &Program) -> String {
        let Head { address, code, .. } = self.head;
        let mapped = format!("/proc/{}/map_files/{address:x}-{:x}", program.face(), address + code);
        match File::open(&mapped) {
            Ok(_) => mapped,
            Err(_) => format!("/proc/{}/fd/{}", std::process::id(), self.memfd.as_raw_fd()),
        }
    }

    /// Writes into the area, at an offset from its beginning.
    pub(crate) fn put(&self, program: &Program, at: u64, bytes: &[u8]) -> Result<(), Why> {
        self.memfd.write_all_at(bytes, at).map_err(|source| {
            Refusal::System { id: program.id(), what: "write to the patch area", source }.into()
        })
    }

    /// Has huge pages hold the code, of which this many bytes are used, as far as it fills them by
    /// half or more, and the host has some. Must be called before control gets there: the program
    /// maps the huge pages when it comes to them.
    pub(crate) fn collapse_code(&self, used: u64) {
        let Head { address, code, data, .. } = self.head;
        let whole = [address, code, data].iter().all(|place| place.is_multiple_of(HUGE_PAGE));
        let pages = (used + HUGE_PAGE - MUCH_CODE) / HUGE_PAGE;
        if whole && pages > 0 {
            let collapsed = memfd::collapse(&self.memfd, code..code + pages * HUGE_PAGE);
            debug!(pages, ?collapsed, "huge pages for the code");
        }
    }

    /// Reads the byte at an offset from its beginning.
    pub(crate) fn byte(&self, program: &Program, at: u64) -> Result<u8, Why> {
        let mut byte = [0];
        self.memfd.read_exact_at(&mut byte, at).map_err(|source| Refusal::System {
            id: program.id(),
            what: "read the patch area",
            source,
        })?;
        Ok(byte[0])
    }

    /// Maps the area into this process, where its words can be changed while the program does.
    pub(crate) fn window(&self) -> io::Result<&Window> {
        if let Some(window) = self.window.get() {
            return Ok(window);
        }
        let window = Window::open(&self.memfd)?;
        Ok(self.window.get_or_init(|| window))
    }

    /// Returns the index, in the window, of a word of the data, by its offset after the beginning
    /// of the first lane.
    pub(crate) fn index(&self, at: u64) -> usize {
        ((self.head.lanes() + at) / 8) as usize
    }

    /// Sets this many bytes from the beginning of the first lane on to 0.
    pub(crate) fn clear(&self, program: &Program, bytes: u64) -> Result<(), Why> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.memfd, flags, self.head.lanes(), bytes).map_err(|error| {
            let (id, what) = (program.id(), "clear the patch area");
            Refusal::System { id, what, source: error.into() }.into()
        })
    }

    /// Reads words of the data, from an offset after the beginning of the first lane.
    pub(crate) fn words(&self, at: u64, count: usize) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; count * 8];
        self.memfd.read_exact_at(&mut bytes, self.head.lanes() + at)?;
        let (words, _) = bytes.as_chunks();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}

/// Bytes of code from which on huge pages hold it: half of one, so that it takes no more than twice
/// the memory. Less code has few pages, whose addresses a processor keeps anyway.
const MUCH_CODE: u64 = HUGE_PAGE / 2;

/// Offset, in the first page of the data, of the memory used for passing a file.
const PASSING_AT: u64 = 64;

/// Makes the memfd in the program, maps it there and fetches it; the program keeps only the
/// mapping. The head is written before anything is mapped, so that the area can be identified
/// whenever refit is killed.
fn map(still: &mut Still<'_>, call: &Call, head: Head) -> Result<Area, Why> {
    let id = still.program().id();
    let flags = libc::MFD_CLOEXEC.into();
    let made =
        call.make_with_text(still, "memfd_create", libc::SYS_memfd_create, NAME, |text| {
            [text, flags, 0, 0, 0, 0]
        })?;
    let mapped = call.fetch(still.program(), made).map_err(Why::from).and_then(|memfd| {
        let failed = |source| Refusal::System { id, what: "create the patch area", source };
        memfd.set_len(head.end).map_err(failed)?;
        let area = Area { head, memfd, window: OnceLock::new() };
        area.put(still.program(), Head::AT, &head.to_bytes())?;
        area.put(still.program(), head.data, &area.first_lane().to_le_bytes())?;
        let (read, write, run) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
        let lanes = head.lanes();
        let parts = [
            (0, head.code, read, libc::MAP_SHARED),
            (head.code, head.data, read | run, libc::MAP_SHARED),
            (head.data, lanes, read | write, libc::MAP_PRIVATE),
            (lanes, head.end, read | write, libc::MAP_SHARED),
        ];
        for (begin, end, access, how) in parts {
            let how = how | libc::MAP_FIXED_NOREPLACE;
            let arguments =
                [head.address + begin, end - begin, access as u64, how as u64, made, begin];
            if let Err(refused) = call.make(still, "mmap", libc::SYS_mmap, arguments) {
                unmap(still, std::iter::once(head))?;
                return Err(refused.into());
            }
        }
        Ok(area)
    });
    call.make(still, "close", libc::SYS_close, [made, 0, 0, 0, 0, 0])?;
    mapped
}

/// Reach of a jump in bytes, less a margin for the length of an instruction and for rounding to
/// pages.
const REACH: u64 = (1 << 31) - (1 << 20);
/// Distance in bytes from other mappings, so that small changes of them do not collide with an
/// area.
const CLEAR: u64 = 1 << 16;
/// Distance in bytes from the heap and from stacks, which grow.
const GROWTH: u64 = 1 << 30;
/// The same distance if no place is that far away. A heap that cannot grow in place continues
/// elsewhere: C libraries then use `mmap`.
const LEAST_GROWTH: u64 = 1 << 26;
/// Lowest address that is tried (`vm.mmap_min_addr` is at most that on any usual system).
const LOWEST: u64 = 1 << 16;
const HIGHEST: u64 = (1 << 47) - PAGE_SIZE_U64;
/// Addresses below this may be numbers of 32 bits, or texts. If one of these on a stack, such as a
/// counter, were an address of an area, it would be taken for one.
const NUMBERS: u64 = 1 << 32;
/// The addresses below this, at which areas are put near such code, are larger than most numbers,
/// but for the largest of an `int`, and no text ends in their last byte.
const RARE: u64 = 0x7fc0_0000;

/// Adds to the mappings the pages to which registers of tasks point although nothing is mapped
/// there. What is left there of an earlier area would be taken for an address of the new one, which
/// would then stay mapped ([`returns`](crate::returns)).
fn with_pointed_to(still: &Still<'_>, mut mappings: Vec<Mapping>) -> Vec<Mapping> {
    let Some(like) = mappings.first().cloned() else { return mappings };
    let registers = still.threads().filter_map(|thread| still.registers(thread).ok());
    let words: Vec<u64> = registers.flat_map(|registers| general(&registers)).collect();
    let is_mapped = |word: &u64| mappings.iter().any(|one| one.range.contains(word));
    let free = words.into_iter().filter(|word| *word < HIGHEST && !is_mapped(word));
    let pages = free.map(|word| word / PAGE_SIZE_U64 * PAGE_SIZE_U64);
    let pages: Vec<Mapping> = pages
        .map(|page| Mapping {
            range: page..page + PAGE_SIZE_U64,
            name: PathBuf::new(),
            ..like.clone()
        })
        .collect();
    mappings.extend(pages);
    mappings.sort_by_key(|one| one.range.start);
    mappings
}

/// Returns a free place of `size` bytes, at a multiple of `unit`, within reach of everything in
/// `near`: the nearest below, or else above. Near code at low addresses, it is the highest.
fn place_near(mappings: &[Mapping], near: &Range<u64>, size: u64, unit: u64) -> Option<u64> {
    let places = [GROWTH, LEAST_GROWTH];
    places.iter().find_map(|growth| place_clear(mappings, near, (size, unit), *growth))
}

/// Implements [`place_near`] with a given distance from what grows.
fn place_clear(
    mappings: &[Mapping],
    near: &Range<u64>,
    (size, unit): (u64, u64),
    growth: u64,
) -> Option<u64> {
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
        let first = gap.start.max(lowest).next_multiple_of(unit);
        let last = gap.end.checked_sub(size)?.min(highest) / unit * unit;
        (first <= last).then_some(first..last)
    });
    let below = fitting.clone().filter(|place| place.end < near.start).map(|place| place.end);
    let above = fitting.filter(|place| place.start >= near.end);
    if near.start < NUMBERS {
        // Copies refer to all of the file.
        let same = |one: &&Mapping| one.file == file(mappings, near.start);
        let lowest = mappings.iter().find(same).map_or(near.start, |one| one.range.start);
        let high = (lowest + REACH).min(RARE).checked_sub(size)? / unit * unit;
        let far = above.clone().filter(|place| place.start <= high);
        if let Some(place) = far.map(|place| place.end.min(high)).max() {
            return Some(place);
        }
    }
    below.max().or(above.map(|place| place.start).min())
}

/// Returns the file that is mapped at an address.
fn file(mappings: &[Mapping], address: u64) -> (u64, u64) {
    let mapping = mappings.iter().find(|one| one.range.contains(&address));
    mapping.map_or((0, 0), |one| one.file)
}

/// Unmaps areas: exactly the parts of them that are mapped.
pub(crate) fn unmap(
    still: &mut Still<'_>,
    heads: impl Iterator<Item = Head>,
) -> Result<(), Refusal> {
    let call = Call::new(still)?;
    for head in heads {
        let area = head.address..head.address + head.end;
        let (session, length) = head.session;
        let within = |mapping: &Mapping| {
            is_area(mapping) && area.start <= mapping.range.start && mapping.range.end <= area.end
        };
        let buffers = |mapping: &Mapping| {
            length > 0 && mapping.shared && mapping.range == (session..session + length)
        };
        let mut there = still.program().mappings()?;
        there.retain(|mapping| within(mapping) || buffers(mapping));
        // The mapping that describes the others goes last.
        there.sort_by_key(|mapping| is_area(mapping) && mapping.offset == 0);
        for mapping in there {
            let (begin, length) = (mapping.range.start, mapping.range.end - mapping.range.start);
            call.make(still, "munmap", libc::SYS_munmap, [begin, length, 0, 0, 0, 0])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Where numbers are rare, and all of the program is within reach.
        for size in [0x10_0000, 0x100_0000] {
            let found = place_near(&low, &near, size, PAGE_SIZE_U64).expect("above the heap");
            assert!(found > 0x7e00_0000 && found + size <= RARE, "{found:#x}");
        }
        let high = 0x5555_5540_0000;
        let there = [mapping(high..high + 0x10_0000, "/bin/x")];
        for unit in [PAGE_SIZE_U64, HUGE_PAGE] {
            let near = high + 0x1000..high + 0x2000;
            let found = place_near(&there, &near, 0x10_0000, unit).expect("below");
            assert!(found.is_multiple_of(unit) && (high - (4 << 20)..high).contains(&found));
        }
        // Neither between a program at a fixed address and its heap, nor a gigabyte after that
        // heap.
        let heap = 0x1800_0000..0x1810_0000;
        let narrow = [mapping(0x40_0000..0x600_0000, "/bin/x"), mapping(heap, "[heap]")];
        let found =
            place_near(&narrow, &near, 0x3000_0000, PAGE_SIZE_U64).expect("nearer to the heap");
        assert!((0x1810_0000 + LEAST_GROWTH..0x1810_0000 + GROWTH).contains(&found));
        let full = [mapping(0..HIGHEST, "all")];
        assert_eq!(place_near(&full, &near, PAGE_SIZE_U64, PAGE_SIZE_U64), None);
    }
}
