//! Opening the perf events of a watch.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

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
const CONTEXT_SWITCHES: u64 = 3;
const DUMMY: u64 = 9;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_CPU: u64 = 1 << 7;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;
/// The frame pointer, the stack pointer and the program counter (`asm/perf_regs.h`), in which order
/// the kernel writes them.
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const MMAP2: u64 = 1 << 23;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCKID: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;

/// An event that is to be opened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Reports switches, names, and beginnings and ends of threads; with stacks, mappings of code.
    Switches {
        /// Whether stacks are reported as well.
        stacks: bool,
    },
    /// Reports where threads stand that are switched out, with this many bytes of their stacks.
    Stacks(u32),
}

/// Opens an event for all threads on a processor, or for a thread and those that it creates.
pub(super) fn open(event: Event, processor: u32, thread: Option<u32>) -> io::Result<File> {
    let mut attributes = Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_CPU,
        flags: WATERMARK | SAMPLE_ID_ALL | USE_CLOCKID,
        wakeup: 1 << 15, // bytes: with WATERMARK
        clock: libc::CLOCK_MONOTONIC_RAW,
        ..Attributes::default()
    };
    match event {
        Event::Switches { stacks } => {
            attributes.config = DUMMY;
            attributes.flags |= EXCLUDE_KERNEL | COMM | COMM_EXEC | TASK | CONTEXT_SWITCH;
            attributes.flags |= if stacks { MMAP | MMAP2 } else { 0 };
        }
        // The event happens in the kernel.
        Event::Stacks(bytes) => {
            attributes.config = CONTEXT_SWITCHES;
            attributes.period = 1;
            attributes.sample_type |= SAMPLE_REGS_USER | SAMPLE_STACK_USER;
            attributes.sample_regs_user = REGISTERS;
            attributes.sample_stack_user = bytes;
        }
    }
    if thread.is_some() {
        attributes.flags |= INHERIT;
    }
    // SAFETY: the structure is as large as its `size` says and outlives the call, which only reads
    // it. The returned descriptor is new and owned by nobody else.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread.map_or(-1, u32::cast_signed),
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

/// Has an event write into the ring of another one of the same processor.
pub(super) fn share_ring(event: &File, of: &File) -> io::Result<()> {
    // SAFETY: the call takes two descriptors and touches no memory of this process.
    match unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_OUTPUT, of.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
