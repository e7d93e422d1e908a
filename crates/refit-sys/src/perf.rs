//! Scheduler events, context switches, threads and their names, from `perf_event_open(2)`.
//!
//! A *watch* is an event that counts nothing (`PERF_COUNT_SW_DUMMY`) and makes the kernel write
//! records into a ring that it shares with this process; no hardware counter is needed. There are
//! two kinds:
//!
//! - a watch of a **processor** reports every thread that is switched in or out, with the thread
//!   that it replaces or makes room for. It needs `CAP_PERFMON` or `perf_event_paranoid` below 1.
//! - a watch of a **thread** and of those that it creates, on one processor, reports only that they
//!   are switched in or out. Users may watch their own threads.
//!
//! The kernel appends records at `data_head` and never beyond `data_tail`; the reader reads up to
//! `data_head` and then advances `data_tail`. Records that find no room are dropped, and counted in
//! a record of their own. The kernel stores `data_head` after the data; that store pairs with the
//! reader's load (Acquire). The reader stores `data_tail` (Release) after its reads; that store
//! pairs with the kernel's load (Linux, `kernel/events/ring_buffer.c`, head comment of
//! `perf_output_put_handle`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A scheduler event of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerEvent {
    /// Time by `CLOCK_MONOTONIC_RAW`, in nanoseconds.
    pub time: u64,
    /// The processor on which it happened.
    pub processor: u32,
    /// The thread's process; 0 for the idle threads.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// The event.
    pub kind: EventKind,
}

/// The kind of a scheduler event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The thread was switched in, in the place of this one; `None` if a single thread is watched.
    In(Option<u32>),
    /// The thread was switched out.
    Out {
        /// The thread that is switched in; `None` if a single thread is watched.
        next: Option<u32>,
        /// Whether the thread was still runnable.
        preempted: bool,
    },
    /// The thread has this name from now on.
    Named(String),
    /// The thread was created; its name is that of its creator.
    Began,
    /// The thread ended.
    Ended,
    /// This number of records was dropped for lack of room.
    Lost(u64),
}

/// The target of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All threads on a processor.
    Processor(u32),
    /// A thread, and all that it creates, on a processor.
    Thread {
        /// The thread.
        thread: u32,
        /// The processor.
        processor: u32,
        /// Whether to begin only when the thread executes a program (`execve`).
        from_exec: bool,
    },
}

/// A perf event whose records arrive in a ring.
#[derive(Debug)]
pub struct Watch {
    event: File,
    map: NonNull<u8>,
    /// Size of the data area in bytes: a power of two. One control page precedes it.
    data: usize,
    page: usize,
}

// SAFETY: the mapping belongs to this value alone, it is read through `&mut self` only, and the
// kernel does not care which thread reads.
unsafe impl Send for Watch {}

impl Watch {
    /// Begins to watch. `pages` is the size of the ring in pages: a power of two.
    ///
    /// # Errors
    /// `EACCES`, `EPERM`: the caller may not watch this target. `ESRCH`: no such thread. `ENODEV`:
    /// no such processor. The errors of `mmap`.
    pub fn new(target: Target, pages: usize) -> io::Result<Watch> {
        assert!(pages.is_power_of_two(), "the kernel takes powers of two only");
        let event = open(target)?;
        let page = rustix::param::page_size();
        let length = (1 + pages) * page;
        // SAFETY: a new shared mapping of the perf event's own file, of the size that the kernel
        // requires: one page and a power of two of pages. Only `drop` unmaps it.
        let map = unsafe {
            let (read, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), length, read, shared, event.as_raw_fd(), 0)
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Watch { event, map, data: pages * page, page })
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
        self.event.as_fd()
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

/// The beginning of `struct perf_event_attr`, up to `PERF_ATTR_SIZE_VER5` (`linux/perf_event.h`).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const SOFTWARE: u32 = 1;
const DUMMY: u64 = 9;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_CPU: u64 = 1 << 7;
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const COMM: u64 = 1 << 9;
const ENABLE_ON_EXEC: u64 = 1 << 12;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

fn open(target: Target) -> io::Result<File> {
    let mut flags =
        EXCLUDE_KERNEL | COMM | TASK | WATERMARK | SAMPLE_ID_ALL | USE_CLOCKID | CONTEXT_SWITCH;
    let (thread, processor) = match target {
        Target::Processor(processor) => (-1, processor),
        Target::Thread { thread, processor, from_exec } => {
            flags |= INHERIT;
            if from_exec {
                flags |= DISABLED | ENABLE_ON_EXEC;
            }
            (thread.cast_signed(), processor)
        }
    };
    let attributes = Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: DUMMY,
        sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_CPU,
        flags,
        wakeup: 1 << 15, // bytes: with WATERMARK
        clock: libc::CLOCK_MONOTONIC_RAW,
        ..Attributes::default()
    };
    // SAFETY: the structure is as large as its `size` says and outlives the call, which only reads
    // it. The returned descriptor is new and owned by nobody else.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            processor.cast_signed(),
            -1,
            CLOSE_ON_EXEC,
        );
        match i32::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(File::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// Kinds of records, and bits of their `misc` field (`linux/perf_event.h`).
const LOST: u32 = 2;
const NAMED: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SWITCH: u32 = 14;
const SWITCH_CPU_WIDE: u32 = 15;
const MISC_OUT: u16 = 1 << 13;
const MISC_PREEMPTED: u16 = 1 << 14;

/// Parses a record without its header; `None` if it is of no interest or malformed.
fn parse(kind: u32, misc: u16, body: &[u8]) -> Option<SchedulerEvent> {
    // The trailer that SAMPLE_ID_ALL adds: process, thread, time, processor, reserved.
    const TRAILER: usize = 24;
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER)?)?;
    let mut trailer = Fields(trailer);
    let (process, thread) = (trailer.u32()?, trailer.u32()?);
    let (time, processor) = (trailer.u64()?, trailer.u32()?);
    let mut fields = Fields(body);
    let event =
        |thread, process, kind| Some(SchedulerEvent { time, processor, process, thread, kind });
    match kind {
        SWITCH | SWITCH_CPU_WIDE => {
            let other = if kind == SWITCH_CPU_WIDE {
                let _process = fields.u32()?;
                Some(fields.u32()?)
            } else {
                None
            };
            let switch = if misc & MISC_OUT != 0 {
                EventKind::Out { next: other, preempted: misc & MISC_PREEMPTED != 0 }
            } else {
                EventKind::In(other)
            };
            event(thread, process, switch)
        }
        NAMED => {
            let (process, thread) = (fields.u32()?, fields.u32()?);
            let name = fields.0.split(|b| *b == 0).next()?;
            event(thread, process, EventKind::Named(String::from_utf8_lossy(name).into_owned()))
        }
        FORK | EXIT => {
            let (process, _parent) = (fields.u32()?, fields.u32()?);
            let (thread, _) = (fields.u32()?, fields.u32()?);
            event(thread, process, if kind == FORK { EventKind::Began } else { EventKind::Ended })
        }
        LOST => {
            let _id = fields.u64()?;
            event(thread, process, EventKind::Lost(fields.u64()?))
        }
        _ => None,
    }
}

/// A parser of consecutive numbers.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }

    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_tells_who_came_after_whom() {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
        let trailer = [10, 11, 5, 0, 3, 0];
        let body = words(&[&[20, 21], &trailer[..]].concat());
        let out = parse(SWITCH_CPU_WIDE, MISC_OUT | MISC_PREEMPTED, &body).expect("it is whole");
        let kind = EventKind::Out { next: Some(21), preempted: true };
        assert_eq!(out, SchedulerEvent { time: 5, processor: 3, process: 10, thread: 11, kind });
        let came = parse(SWITCH, 0, &words(&trailer)).expect("it is whole");
        assert_eq!(came.kind, EventKind::In(None));
        for cut in 0..body.len() {
            // The result does not matter; a truncated record must not panic.
            parse(SWITCH_CPU_WIDE, 0, &body[..cut]);
        }
    }
}
