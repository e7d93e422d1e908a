//! Scheduler events, context switches, threads and their names, from `perf_event_open(2)`.
//!
//! A *watch* is an event that counts nothing (`PERF_COUNT_SW_DUMMY`) and makes the kernel write
//! records into a ring that it shares with this process; no hardware counter is needed. There are
//! two kinds:
//!
//! - a watch of a **processor** reports every thread that is switched in or out, with the thread
//!   that it replaces or makes room for. It needs `CAP_PERFMON` or `perf_event_paranoid` below 1.
//! - a watch of **threads** and of those that they create, on one processor, reports only that they
//!   are switched in or out. Users may watch their own threads.
//!
//! Either can report with each switch where the thread stands in its program, and the top of its
//! stack: by a second event, which counts context switches and makes a sample of each. That
//! happens in the kernel, so it needs `CAP_PERFMON` or `perf_event_paranoid` below 2. Both events
//! write into one ring, and the kernel makes the sample before it reports the switch.
//!
//! The kernel appends records at `data_head` and never beyond `data_tail`; the reader reads up to
//! `data_head` and then advances `data_tail`. Records that find no room are dropped, and counted in
//! a record of their own. The kernel stores `data_head` after the data; that store pairs with the
//! reader's load (Acquire). The reader stores `data_tail` (Release) after its reads; that store
//! pairs with the kernel's load (Linux, `kernel/events/ring_buffer.c`, head comment of
//! `perf_output_put_handle`).

mod event;
mod open;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use self::event::parse;
pub use self::event::{EventKind, SchedulerEvent, UserStack};
use self::open::{Event, open, share_ring};

/// The target of a watch.
#[derive(Clone, Copy, Debug)]
pub struct Target<'t> {
    /// The processor.
    pub processor: u32,
    /// The threads, which are watched with all that they create; all on the processor if `None`.
    pub threads: Option<&'t [u32]>,
    /// The stacks that are reported, if any.
    pub stacks: Option<StackTarget<'t>>,
}

/// The stacks that a watch reports of threads when they are switched out. Their switches must be
/// watched.
#[derive(Clone, Copy, Debug)]
pub struct StackTarget<'t> {
    /// The threads, with all that they create; all on the processor if `None`.
    pub threads: Option<&'t [u32]>,
    /// The number of bytes that are copied of each: a multiple of 8, less than 64 KiB.
    pub bytes: u32,
}

/// Perf events whose records arrive in one ring.
#[derive(Debug)]
pub struct Watch {
    /// The ring belongs to the first.
    events: Vec<File>,
    map: NonNull<u8>,
    /// Size of the data area in bytes: a power of two. One control page precedes it.
    data: usize,
    page: usize,
}

// SAFETY: the mapping belongs to this value alone, it is read through `&mut self` only, and the
// kernel does not care which thread reads.
unsafe impl Send for Watch {}

impl Watch {
    /// Begins to watch. `pages` is the size of the ring in pages: a power of two. Threads that have
    /// ended are left out.
    ///
    /// # Errors
    /// `EACCES`, `EPERM`: the caller may not watch this target. `ESRCH`: there is none of the
    /// threads. `ENODEV`: no such processor. The errors of `mmap`.
    pub fn new(target: Target<'_>, pages: usize) -> io::Result<Watch> {
        assert!(pages.is_power_of_two(), "the kernel takes powers of two only");
        let events = open_all(target)?;
        let first = events.first().ok_or(io::Error::from_raw_os_error(libc::ESRCH))?;
        let page = rustix::param::page_size();
        let length = (1 + pages) * page;
        // SAFETY: a new shared mapping of the perf event's own file, of the size that the kernel
        // requires: one page and a power of two of pages. Only `drop` unmaps it.
        let map = unsafe {
            let (read, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), length, read, shared, first.as_raw_fd(), 0)
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let watch = Watch { events, map, data: pages * page, page };
        let (first, others) = watch.events.split_first().expect("it has been mapped");
        others.iter().try_for_each(|event| share_ring(event, first))?;
        Ok(watch)
    }

    /// Passes all pending events to `take`, oldest first. Returns their number.
    pub fn read(&mut self, mut take: impl FnMut(SchedulerEvent)) -> usize {
        // Pairs with the kernel's store, which follows the data (see the module documentation).
        let head = self.control(DATA_HEAD).load(Ordering::Acquire);
        // Only this side writes it.
        let mut tail = self.control(DATA_TAIL).load(Ordering::Relaxed);
        let mut count = 0;
        let mut record = Vec::new();
        while head.wrapping_sub(tail) >= HEAD as u64 {
            let mut words = [0; HEAD];
            self.copy(tail, &mut words);
            let (kind, size) = (u32_at(&words, 0), u16::from_le_bytes([words[6], words[7]]));
            let misc = u16::from_le_bytes([words[4], words[5]]);
            if usize::from(size) < HEAD || u64::from(size) > head.wrapping_sub(tail) {
                // The kernel never writes such a record; what follows it cannot be parsed.
                tail = head;
                break;
            }
            record.resize(usize::from(size) - HEAD, 0);
            self.copy(tail + HEAD as u64, &mut record);
            if let Some(event) = parse(kind, misc, &record) {
                take(event);
                count += 1;
            }
            tail += u64::from(size);
        }
        // Pairs with the kernel's load: the reads are complete.
        self.control(DATA_TAIL).store(tail, Ordering::Release);
        count
    }

    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both offsets are multiples of 8 within the first page of the mapping, which lives
        // as long as `self`. The kernel and this process access these words with atomic loads and
        // stores only.
        unsafe { AtomicU64::from_ptr(self.map.as_ptr().add(offset).cast()) }
    }

    /// Copies bytes out of the ring, across its end if necessary.
    fn copy(&self, from: u64, to: &mut [u8]) {
        let begin = (from % self.data as u64) as usize;
        let first = to.len().min(self.data - begin);
        // SAFETY: both parts lie in the data area, which begins after the first page and is `data`
        // bytes long. `to` is no longer than a record (64 KiB), and the kernel does not write
        // between tail and head.
        unsafe {
            let data = self.map.as_ptr().add(self.page);
            data.add(begin).copy_to_nonoverlapping(to.as_mut_ptr(), first);
            data.copy_to_nonoverlapping(to.as_mut_ptr().add(first), to.len() - first);
        }
    }
}

impl AsFd for Watch {
    /// Polls readable when the ring is half full.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events[0].as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it with this size, and nothing but `self` refers to it.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.page + self.data) };
    }
}

/// Offsets in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
/// Size of `struct perf_event_header`: kind, misc, size.
const HEAD: usize = 8;

/// Opens the events of a target: first those of switches.
fn open_all(target: Target<'_>) -> io::Result<Vec<File>> {
    let switches = Event::Switches { stacks: target.stacks.is_some() };
    let mut events = open_each(switches, target.processor, target.threads)?;
    if let Some(stacks) = target.stacks
        && !events.is_empty()
    {
        events.extend(open_each(Event::Stacks(stacks.bytes), target.processor, stacks.threads)?);
    }
    Ok(events)
}

/// Opens an event for all threads, or for each of these that has not ended.
fn open_each(event: Event, processor: u32, threads: Option<&[u32]>) -> io::Result<Vec<File>> {
    let Some(threads) = threads else { return Ok(vec![open(event, processor, None)?]) };
    let mut events = Vec::new();
    for thread in threads {
        match open(event, processor, Some(*thread)) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            opened => events.push(opened?),
        }
    }
    Ok(events)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}
