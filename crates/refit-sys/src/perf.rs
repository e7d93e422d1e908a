//! What the scheduler does: context switches, threads and their names, as `perf_event_open(2)` tells them.
//!
//! A *watch* is an event that counts nothing (`PERF_COUNT_SW_DUMMY`) and has the kernel write records into a ring that is
//! shared with us: no hardware counter is needed. Two kinds:
//!
//! - of a **processor**: every thread that comes and goes, with the one that it came after or made room for. Needs
//!   `CAP_PERFMON` or `perf_event_paranoid` below 1;
//! - of a **thread** and those that it makes, on one processor: only that it came or went. May be had for threads of one's own.
//!
//! The kernel appends at `data_head` and never beyond `data_tail`; we read up to `data_head` and then move `data_tail`.
//! What finds no room is lost and counted in a record of its own. The kernel's store of `data_head` comes after
//! those of the data, and pairs with our load (Acquire); our store of `data_tail` (Release) comes after our reads, and
//! pairs with the kernel's load of it (Linux, `kernel/events/ring_buffer.c`, head comment of `perf_output_put_handle`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// `CLOCK_MONOTONIC_RAW`, in nanoseconds.
    pub time: u64,
    /// Where.
    pub processor: u32,
    /// Of which process; 0 for the idle threads.
    pub process: u32,
    /// Of which thread.
    pub thread: u32,
    /// What.
    pub what: What,
}

/// What it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The thread got the processor, after another one; `None` where only one thread is watched.
    In(Option<u32>),
    /// The thread left the processor, for another one; with whether it could have gone on.
    Out {
        /// For whom; `None` where only one thread is watched.
        next: Option<u32>,
        /// It was made to leave.
        preempted: bool,
    },
    /// The thread is called so from now on.
    Named(String),
    /// The thread began; its name is that of the thread that made it.
    Began,
    /// The thread ended.
    Ended,
    /// So many records found no room.
    Lost(u64),
}

/// Whom to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Everybody on a processor.
    Processor(u32),
    /// A thread and all that it makes, on a processor; from its next `execve` on, if so.
    Thread {
        /// Which.
        thread: u32,
        /// Where.
        processor: u32,
        /// Not before it executes a program.
        from_exec: bool,
    },
}

/// An event whose records come into a ring.
#[derive(Debug)]
pub struct Watch {
    event: File,
    map: NonNull<u8>,
    /// Size of the data area: a power of two, in bytes; one page of control is before it.
    data: usize,
    page: usize,
}

// SAFETY: the mapping belongs to this value alone, its reader is `&mut self`, and the kernel does not care which thread
// reads.
unsafe impl Send for Watch {}

impl Watch {
    /// Begins to watch. `pages` is the size of the ring in pages: a power of two.
    ///
    /// # Errors
    /// `EACCES`, `EPERM`: not allowed; `ESRCH`: no such thread; `ENODEV`: no such processor; and those of `mmap`.
    pub fn new(whom: Whom, pages: usize) -> io::Result<Watch> {
        assert!(pages.is_power_of_two(), "the kernel takes powers of two only");
        let event = open(whom)?;
        let page = rustix::param::page_size();
        let length = (1 + pages) * page;
        // SAFETY: a new shared mapping of a perf event's own file, of the size that the kernel asks for: one page and a
        // power of two of pages. It is unmapped in `drop` only.
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

    /// Gives everything that has come to `take`, oldest first; how many there were.
    pub fn read(&mut self, mut take: impl FnMut(Told)) -> usize {
        // Pairs with the kernel's store, which comes after the data (see above).
        let head = self.control(DATA_HEAD).load(Ordering::Acquire);
        // Only we write it.
        let mut tail = self.control(DATA_TAIL).load(Ordering::Relaxed);
        let mut count = 0;
        let mut record = Vec::new();
        while head.wrapping_sub(tail) >= HEAD as u64 {
            let mut words = [0; HEAD];
            self.copy(tail, &mut words);
            let (kind, size) = (u32_at(&words, 0), u16::from_le_bytes([words[6], words[7]]));
            let misc = u16::from_le_bytes([words[4], words[5]]);
            if usize::from(size) < HEAD || u64::from(size) > head.wrapping_sub(tail) {
                // The kernel does not write such a thing; what follows cannot be understood.
                tail = head;
                break;
            }
            record.resize(usize::from(size) - HEAD, 0);
            self.copy(tail + HEAD as u64, &mut record);
            if let Some(told) = told(kind, misc, &record) {
                take(told);
                count += 1;
            }
            tail += u64::from(size);
        }
        // Pairs with the kernel's load of it: our reads are before.
        self.control(DATA_TAIL).store(tail, Ordering::Release);
        count
    }

    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both offsets are multiples of 8 within the first page of the mapping, which lives as long as `self`;
        // the kernel and we use these words with atomic loads and stores only.
        unsafe { AtomicU64::from_ptr(self.map.as_ptr().add(offset).cast()) }
    }

    /// Copies out of the ring, around its end if need be.
    fn copy(&self, from: u64, to: &mut [u8]) {
        let begin = (from % self.data as u64) as usize;
        let first = to.len().min(self.data - begin);
        // SAFETY: both parts lie in the data area, which begins after the first page and is `data` bytes long; `to` is no
        // longer than a record (64 KiB), and what is between tail and head is not written by the kernel.
        unsafe {
            let data = self.map.as_ptr().add(self.page);
            data.add(begin).copy_to_nonoverlapping(to.as_mut_ptr(), first);
            data.copy_to_nonoverlapping(to.as_mut_ptr().add(first), to.len() - first);
        }
    }
}

impl AsFd for Watch {
    /// Readable when the ring is half full.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size, and nothing refers to it beyond `self`.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.page + self.data) };
    }
}

/// Offsets in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
/// Size of `struct perf_event_header`: kind, misc, size.
const HEAD: usize = 8;

/// `struct perf_event_attr` as far as `PERF_ATTR_SIZE_VER5` (`linux/perf_event.h`).
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

fn open(whom: Whom) -> io::Result<File> {
    let mut flags =
        EXCLUDE_KERNEL | COMM | TASK | WATERMARK | SAMPLE_ID_ALL | USE_CLOCKID | CONTEXT_SWITCH;
    let (thread, processor) = match whom {
        Whom::Processor(processor) => (-1, processor),
        Whom::Thread { thread, processor, from_exec } => {
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
    // SAFETY: the structure is as large as its `size` says and outlives the call; the kernel reads it only. The
    // descriptor is new and ours.
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

/// Kinds of records, and bits of their `misc` (`linux/perf_event.h`).
const LOST: u32 = 2;
const NAMED: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SWITCH: u32 = 14;
const SWITCH_CPU_WIDE: u32 = 15;
const MISC_OUT: u16 = 1 << 13;
const MISC_PREEMPTED: u16 = 1 << 14;

/// What a record without its head says; `None`: nothing of interest, or not to be understood.
fn told(kind: u32, misc: u16, body: &[u8]) -> Option<Told> {
    // The trailer, since SAMPLE_ID_ALL: process, thread, time, processor, reserved.
    const TRAILER: usize = 24;
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER)?)?;
    let mut trailer = Fields(trailer);
    let (process, thread) = (trailer.u32()?, trailer.u32()?);
    let (time, processor) = (trailer.u64()?, trailer.u32()?);
    let mut fields = Fields(body);
    let told = |thread, process, what| Some(Told { time, processor, process, thread, what });
    match kind {
        SWITCH | SWITCH_CPU_WIDE => {
            let other = if kind == SWITCH_CPU_WIDE {
                let _process = fields.u32()?;
                Some(fields.u32()?)
            } else {
                None
            };
            let what = if misc & MISC_OUT != 0 {
                What::Out { next: other, preempted: misc & MISC_PREEMPTED != 0 }
            } else {
                What::In(other)
            };
            told(thread, process, what)
        }
        NAMED => {
            let (process, thread) = (fields.u32()?, fields.u32()?);
            let name = fields.0.split(|b| *b == 0).next()?;
            told(thread, process, What::Named(String::from_utf8_lossy(name).into_owned()))
        }
        FORK | EXIT => {
            let (process, _parent) = (fields.u32()?, fields.u32()?);
            let (thread, _) = (fields.u32()?, fields.u32()?);
            told(thread, process, if kind == FORK { What::Began } else { What::Ended })
        }
        LOST => {
            let _id = fields.u64()?;
            told(thread, process, What::Lost(fields.u64()?))
        }
        _ => None,
    }
}

/// Numbers out of bytes, in order.
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
        let out = told(SWITCH_CPU_WIDE, MISC_OUT | MISC_PREEMPTED, &body).expect("it is whole");
        let what = What::Out { next: Some(21), preempted: true };
        assert_eq!(out, Told { time: 5, processor: 3, process: 10, thread: 11, what });
        let came = told(SWITCH, 0, &words(&trailer)).expect("it is whole");
        assert_eq!(came.what, What::In(None));
        for cut in 0..body.len() {
            // Whatever it makes of it, it does not panic.
            told(SWITCH_CPU_WIDE, 0, &body[..cut]);
        }
    }
}
