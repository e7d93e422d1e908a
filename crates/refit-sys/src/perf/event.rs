//! The events that a watch reports, and how the kernel encodes them.

use crate::maps::{Mapping, named};

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
    /// The thread was switched in, in the place of this one; `None` if single threads are watched.
    In(Option<u32>),
    /// The thread is about to be switched out: its [`Out`](Self::Out) follows. Only with stacks.
    Stands(UserStack),
    /// The thread was switched out.
    Out {
        /// The thread that is switched in; `None` if single threads are watched.
        next: Option<u32>,
        /// Whether the thread was still runnable.
        preempted: bool,
    },
    /// The thread has another name from now on.
    Named {
        /// The name.
        name: String,
        /// Whether its process has executed another program.
        executes: bool,
    },
    /// The process has mapped code. Only with stacks.
    Mapped(Mapping),
    /// The thread was created; its name is that of its creator.
    Began {
        /// The process of its creator: another one if the thread is the first of its process.
        creator: u32,
        /// The thread that created it.
        thread: u32,
    },
    /// The thread ended.
    Ended,
    /// This number of records was dropped for lack of room.
    Lost(u64),
}

/// Where a thread stands in its program, and the top of its stack. All zeros for a thread of the
/// kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserStack {
    /// The program counter.
    pub counter: u64,
    /// The stack pointer, which is the address of the first of `bytes`.
    pub pointer: u64,
    /// The frame pointer, or whatever the program uses its register for.
    pub frame: u64,
    /// The bytes of the stack, as far as they were asked for and are in memory.
    pub bytes: Vec<u8>,
}

/// Kinds of records, and bits of their `misc` field (`linux/perf_event.h`).
const LOST: u32 = 2;
const NAMED: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const SWITCH: u32 = 14;
const SWITCH_CPU_WIDE: u32 = 15;
const MISC_OUT: u16 = 1 << 13;
const MISC_EXEC: u16 = 1 << 13;
const MISC_PREEMPTED: u16 = 1 << 14;

/// Parses a record without its header; `None` if it is of no interest or malformed.
pub(super) fn parse(kind: u32, misc: u16, body: &[u8]) -> Option<SchedulerEvent> {
    if kind == SAMPLE {
        return parse_sample(body);
    }
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
            let name = String::from_utf8_lossy(fields.text()).into_owned();
            event(thread, process, EventKind::Named { name, executes: misc & MISC_EXEC != 0 })
        }
        MMAP2 => {
            let (process, thread) = (fields.u32()?, fields.u32()?);
            event(thread, process, EventKind::Mapped(fields.mapping()?))
        }
        FORK | EXIT => {
            let (process, creator) = (fields.u32()?, fields.u32()?);
            let (thread, creating) = (fields.u32()?, fields.u32()?);
            let began = EventKind::Began { creator, thread: creating };
            event(thread, process, if kind == FORK { began } else { EventKind::Ended })
        }
        LOST => {
            let _id = fields.u64()?;
            event(thread, process, EventKind::Lost(fields.u64()?))
        }
        _ => None,
    }
}

/// Parses a sample: process, thread, time, processor, reserved, registers and the stack.
fn parse_sample(body: &[u8]) -> Option<SchedulerEvent> {
    let mut fields = Fields(body);
    let (process, thread) = (fields.u32()?, fields.u32()?);
    let (time, processor, _) = (fields.u64()?, fields.u32()?, fields.u32()?);
    let mut stands = UserStack::default();
    // The ABI of the registers; 0 if there are none.
    if fields.u64()? != 0 {
        stands.frame = fields.u64()?;
        stands.pointer = fields.u64()?;
        stands.counter = fields.u64()?;
    }
    // The size of the stack's area, the area, and how much of it is filled.
    let size = usize::try_from(fields.u64()?).ok()?;
    if size != 0 {
        let area = fields.bytes(size)?;
        let filled = usize::try_from(fields.u64()?).ok()?;
        stands.bytes = area.get(..filled)?.to_vec();
    }
    Some(SchedulerEvent { time, processor, process, thread, kind: EventKind::Stands(stands) })
}

/// A parser of consecutive fields.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
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

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Returns the rest up to the first zero.
    fn text(&self) -> &'a [u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Parses what follows process and thread in an MMAP2 record.
    fn mapping(&mut self) -> Option<Mapping> {
        let (start, length, offset) = (self.u64()?, self.u64()?, self.u64()?);
        let (major, minor, inode) = (self.u32()?, self.u32()?, self.u64()?);
        let _generation = self.u64()?;
        let (protection, flags) = (self.u32()?.cast_signed(), self.u32()?.cast_signed());
        let (name, deleted) = named(self.text());
        Some(Mapping {
            range: start..start.checked_add(length)?,
            readable: protection & libc::PROT_READ != 0,
            writable: protection & libc::PROT_WRITE != 0,
            executable: protection & libc::PROT_EXEC != 0,
            shared: flags & libc::MAP_SHARED != 0,
            offset,
            file: ((u64::from(major) << 32) | u64::from(minor), inode),
            name,
            deleted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    const TRAILER: [u32; 6] = [10, 11, 5, 0, 3, 0];

    fn event(kind: EventKind) -> SchedulerEvent {
        SchedulerEvent { time: 5, processor: 3, process: 10, thread: 11, kind }
    }

    /// Parses each beginning of a record. The result does not matter; none may panic.
    fn cut(kind: u32, body: &[u8]) {
        for length in 0..body.len() {
            parse(kind, 0, &body[..length]);
        }
    }

    #[test]
    fn a_switch_tells_who_came_after_whom() {
        let body = words(&[&[20, 21], &TRAILER[..]].concat());
        let out = parse(SWITCH_CPU_WIDE, MISC_OUT | MISC_PREEMPTED, &body).expect("it is whole");
        assert_eq!(out, event(EventKind::Out { next: Some(21), preempted: true }));
        let came = parse(SWITCH, 0, &words(&TRAILER)).expect("it is whole");
        assert_eq!(came.kind, EventKind::In(None));
        cut(SWITCH_CPU_WIDE, &body);
    }

    #[test]
    fn a_beginning_tells_which_thread_created_it() {
        let body = words(&[&[10, 20, 11, 21, 5, 0], &TRAILER[..]].concat());
        let began = EventKind::Began { creator: 20, thread: 21 };
        assert_eq!(parse(FORK, 0, &body), Some(event(began)));
        assert_eq!(parse(EXIT, 0, &body), Some(event(EventKind::Ended)));
        cut(FORK, &body);
    }

    #[test]
    fn a_sample_tells_where_a_thread_stands() {
        let head = [10, 11, 5, 0, 3, 0, 2, 0, 0x30, 0, 0x7000, 1, 0x400, 0];
        let stack = [16, 0, 1, 2, 3, 4, 8, 0];
        let body = words(&[&head[..], &stack].concat());
        let stands = UserStack {
            counter: 0x400,
            pointer: 0x1_0000_7000,
            frame: 0x30,
            bytes: words(&[1, 2]),
        };
        assert_eq!(parse(SAMPLE, 0, &body), Some(event(EventKind::Stands(stands))));
        cut(SAMPLE, &body);
        let kernel = words(&[10, 11, 5, 0, 3, 0, 0, 0, 0, 0]);
        let none = EventKind::Stands(UserStack::default());
        assert_eq!(parse(SAMPLE, 0, &kernel), Some(event(none)));
        // More is filled than there is.
        let lies = words(&[&head[..], &[16, 0, 1, 2, 3, 4, 17, 0]].concat());
        assert_eq!(parse(SAMPLE, 0, &lies), None);
    }

    #[test]
    fn a_mapping_tells_which_file_is_where() {
        let numbers = [10, 11, 0x1000, 0, 0x2000, 0, 0x3000, 0, 8, 1, 77, 0, 0, 0, 5, 2];
        let body = [words(&numbers), b"/bin/a\0\0".to_vec(), words(&TRAILER)].concat();
        let mapped = Mapping {
            range: 0x1000..0x3000,
            readable: true,
            writable: false,
            executable: true,
            shared: false,
            offset: 0x3000,
            file: (8 << 32 | 1, 77),
            name: "/bin/a".into(),
            deleted: false,
        };
        assert_eq!(parse(MMAP2, 0, &body), Some(event(EventKind::Mapped(mapped))));
        cut(MMAP2, &body);
    }
}
