//! The agent: a task of refit's that shares a program's memory and makes system calls there, in
//! batches.
//!
//! Some calls act only on the memory of their caller: `mmap`, `mremap`, `UFFDIO_MOVE`. A thread of
//! the program would have to be stopped to make such a call; the agent makes it while the program
//! runs on. The agent is a process of its own (`CLONE_VM` and nothing else). Its code, some hundred
//! bytes, waits at a socket for calls, makes them, and sends back the results. It uses no stack,
//! and shares neither descriptors, working directory, signal handlers nor threads with the program.
//! It is not a child of the program: an intermediate task makes the agent and ends at once, so that
//! the reaper of orphans, process 1 as a rule, becomes the agent's parent.
//!
//! The calls are stored in memory that the program can write to. So the program can make the agent
//! do whatever the program itself may do, and the agent deserves no more trust than the program.
//! The agent should therefore keep few of the program's own descriptors.
//!
//! The agent outlives its program; dropping the [`Agent`] ends it. If an ancestor of the program
//! collects orphans (`PR_SET_CHILD_SUBREAPER`), that ancestor is notified of the agent's end.

use std::io;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown};

use crate::foreign::Memory;
use crate::memory::{PAGE_SIZE, PAGE_SIZE_U64};
use crate::pidfd::Pidfd;
use crate::trace::{Options, Registers, Tracee};

/// Bytes of the program's memory that an agent needs: its buffer, and one page for its code.
pub const AREA: u64 = SIZE as u64 + PAGE_SIZE_U64;
/// Maximum size of one batch in bytes: one word, 8 words for each call, and the data.
pub const SIZE: usize = 2 * PAGE_SIZE;

const WORD: usize = 8;
/// Bytes of a call in a batch: its number, six arguments, and room for its answer.
const ENTRY: usize = 8 * WORD;
/// Maximum number of calls in one batch of those that set up the agent.
const CALLS_PER_BATCH: usize = 64;

// The agent's code. `syscall` preserves all registers but rax, rcx and r11.
std::arch::global_asm!(
    ".pushsection .rodata.refit_agent, \"a\", @progbits",
    ".globl refit_agent_code",
    ".hidden refit_agent_code",
    ".globl refit_agent_end",
    ".hidden refit_agent_end",
    "refit_agent_code:",
    // The thread that makes the agent executes its `clone` here, so the agent never runs anywhere
    // else.
    "    syscall",
    "2:  mov rdi, r12", // n = read(socket, buffer, SIZE)
    "    mov rsi, r13",
    "    mov rdx, r14",
    "    xor eax, eax",
    "    syscall",
    "    cmp rax, -4", // EINTR
    "    je 2b",
    "    test rax, rax",
    "    jle 5f",
    "    mov rbx, rax",
    "    mov r15, [r13]", // how many calls
    "    lea rbp, [r13 + 8]",
    "3:  sub r15, 1",
    "    jb 4f",
    "    mov rax, [rbp]",
    "    mov rdi, [rbp + 8]",
    "    mov rsi, [rbp + 16]",
    "    mov rdx, [rbp + 24]",
    "    mov r10, [rbp + 32]",
    "    mov r8, [rbp + 40]",
    "    mov r9, [rbp + 48]",
    "    syscall",
    "    mov [rbp + 56], rax",
    "    add rbp, 64",
    "    jmp 3b",
    "4:  mov rdi, r12", // write(socket, buffer, n)
    "    mov rsi, r13",
    "    mov rdx, rbx",
    "    mov eax, 1",
    "    syscall",
    "    jmp 2b",
    "5:  xor edi, edi", // exit(0)
    "    mov eax, 60",
    "    syscall",
    "    ud2",
    "refit_agent_end:",
    ".popsection",
);

/// Offset in the code at which an agent begins: right after the `syscall` instruction that creates
/// it.
const BEGIN: u64 = 2;

/// A system call that an agent makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The number of the call.
    pub number: i64,
    /// The arguments of the call.
    pub arguments: [u64; 6],
}

/// The program that an agent is set up in, and how.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// The program.
    pub program: &'a Pidfd,
    /// The program's memory.
    pub memory: &'a Memory,
    /// The address of a `syscall` instruction in the program ([`crate::trace::find_syscall`]).
    pub instruction: u64,
    /// The address of private anonymous memory in the program: [`AREA`] bytes of whole pages,
    /// readable and writable. The last page becomes the agent's code.
    pub area: u64,
    /// The options that the thread which makes the agent is traced with; the agent inherits them.
    /// With `EXIT_KILL` no agent is left behind when the tracer is killed, at whatever time.
    pub options: Options,
    /// The descriptors of the program that the agent shares.
    pub keep: &'a [u32],
}

/// The tracer's end of an agent in a program.
#[derive(Debug)]
pub struct Agent {
    socket: OwnedFd,
    /// Held over the exchange of one batch.
    busy: Mutex<()>,
    buffer: u64,
    /// The descriptor number of the agent's end of the socket.
    end: u32,
}

/// Returns the agent's machine code, which is position-independent.
pub fn code() -> &'static [u8] {
    unsafe extern "C" {
        static refit_agent_code: u8;
        static refit_agent_end: u8;
    }
    let (begin, end) = (&raw const refit_agent_code, &raw const refit_agent_end);
    // SAFETY: the bytes between the two marks are constants of this program.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// Sets the registers that an agent begins with: the addresses of its [`code`] and its buffer, and
/// the descriptor number of its end of the socket.
pub fn start_registers(registers: &mut Registers, code: u64, buffer: u64, socket: u32) {
    registers.rip = code + BEGIN;
    // No stack: code that used one by mistake would not touch the program's memory.
    registers.rsp = 0;
    registers.r12 = u64::from(socket);
    registers.r13 = buffer;
    registers.r14 = SIZE as u64;
}

/// The name of an agent's task.
pub const TASK_NAME: &str = "refit agent";

/// Returns whether a new task has the registers that an agent begins with.
///
/// [`next`](crate::trace::next) reports such a task only if the thread that was about to wait for
/// it was killed while it made it. The task has no user then, and the caller has to kill it.
pub fn is_lost(task: &Tracee) -> bool {
    task.registers().is_ok_and(|now| now.rsp == 0 && now.r14 == SIZE as u64)
}

impl Agent {
    /// Makes an agent by means of a stopped thread of the program. The agent runs when this
    /// function returns. The calling thread traces it and has to handle its further events, of
    /// which only its end is expected. The agent has a session of its own, so that signals to the
    /// program's process group do not reach it, `/` as its working directory, and the name `refit
    /// agent`.
    ///
    /// The thread has to be stopped as for [`Tracee::call`]. The other threads should be stopped
    /// too: a thread that forks in the meantime passes both ends of the socket on to its child. An
    /// agent inherits the program's seccomp filters; a filter that reports `close_range`, `setsid`,
    /// `chdir` or `prctl` to the tracer ([`crate::seccomp::Action::Trace`]) makes the calling
    /// thread wait for itself.
    ///
    /// # Errors
    /// The errors of ptrace(2), mprotect(2), socketpair(2), pidfd_getfd(2), clone(2) and
    /// close_range(2) (Linux 5.9); `EFAULT`: `ground.area` is not mapped; `ESRCH`: the program or
    /// the agent was killed. In all cases nothing stays behind in the program but the contents of
    /// the area.
    pub fn set_up(held: &mut Tracee, ground: &Ground<'_>) -> io::Result<(Self, Tracee)> {
        let &Ground { memory, instruction, area, .. } = ground;
        let code_at = area + SIZE as u64;
        memory.write(code_at, code())?;
        let access = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        held.call(instruction, libc::SYS_mprotect, [code_at, PAGE_SIZE_U64, access, 0, 0, 0])?;
        let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64;
        let pair = [libc::AF_UNIX as u64, kind, 0, area, 0, 0];
        held.call(instruction, libc::SYS_socketpair, pair)?;
        let word = memory.word(area)?;
        let (ours, its) = (word as u32, (word >> 32) as u32);
        let made = ground.program.get_fd(ours).and_then(|socket| {
            let start = |registers: &mut Registers| start_registers(registers, code_at, area, its);
            // The agent is created by an instruction in its own code, and so begins in that code.
            // Descriptors are shared at first: a copy of the whole table would for a moment keep
            // open what the program closes just then, and a poller of such a file would see its
            // events.
            let flags = (libc::CLONE_VM | libc::CLONE_FILES) as u64;
            let task = orphan(held, ground, code_at, flags, &start)?;
            Ok((Self { socket, busy: Mutex::new(()), buffer: area, end: its }, task))
        });
        let made = made.map(|(agent, task)| {
            let settled = task.resume(0).and_then(|()| agent.settle(its, ground.keep));
            (agent, task, settled)
        });
        // Only now: before, the agent shared these descriptors.
        let mut closed = Ok(0);
        for end in [ours, its] {
            let one = held.call(instruction, libc::SYS_close, [u64::from(end), 0, 0, 0, 0, 0]);
            closed = closed.and(one);
        }
        let (agent, task, settled) = made?;
        match settled.and(closed.map(drop).map_err(io::Error::from)) {
            Ok(()) => Ok((agent, task)),
            Err(error) => {
                agent.end_and_reap(held, instruction, task);
                Err(error)
            }
        }
    }

    /// Separates the agent from the program: its first calls close all descriptors of the program
    /// but `keep`, and set its session, directory and name.
    fn settle(&self, socket: u32, keep: &[u32]) -> io::Result<()> {
        let call = |number, arguments| Call { number, arguments };
        let close = |(range, how): (RangeInclusive<u32>, libc::c_uint)| {
            let (first, last) = (u64::from(*range.start()), u64::from(*range.end()));
            call(libc::SYS_close_range, [first, last, how.into(), 0, 0, 0])
        };
        // The first call unshares the table. The copy lacks the descriptors of that range, which
        // are nearly all of the program's: the kernel assigns the lowest numbers first.
        let how = std::iter::once(libc::CLOSE_RANGE_UNSHARE).chain(std::iter::repeat(0));
        let closes: Vec<Call> = between(socket, keep).into_iter().zip(how).map(close).collect();
        // If the first call fails, the others would close the program's own descriptors, so they
        // are not made.
        let (first, others) = closes.split_at(1);
        for some in std::iter::once(first).chain(others.chunks(CALLS_PER_BATCH)) {
            self.make_all(some, &mut [])?;
        }
        let mut texts = [TASK_NAME.as_bytes(), b"\0/\0"].concat();
        let name = self.data_address(3);
        let root = name + TASK_NAME.len() as u64 + 1;
        let calls = [
            call(libc::SYS_setsid, [0; 6]),
            call(libc::SYS_chdir, [root, 0, 0, 0, 0, 0]),
            call(libc::SYS_prctl, [libc::PR_SET_NAME as u64, name, 0, 0, 0, 0]),
        ];
        self.make_all(&calls, &mut texts)
    }

    /// As [`make`](Self::make), but fails if any of the calls fails.
    fn make_all(&self, calls: &[Call], data: &mut [u8]) -> io::Result<()> {
        match self.make(calls, data)?.into_iter().find(|answer| *answer < 0) {
            Some(error) => Err(io::Error::from_raw_os_error(-(error as i32))),
            None => Ok(()),
        }
    }

    /// Returns the address, in the program's memory, of the data of a batch of so many calls; a
    /// multiple of 8.
    pub fn data_address(&self, calls: usize) -> u64 {
        self.buffer + data_offset(calls) as u64
    }

    /// Makes `calls` in order, whatever they return, and waits until all are made. Meanwhile `data`
    /// is stored at [`data_address`](Self::data_address); afterwards it has the contents that the
    /// calls left there. Returns the calls' results; a negative one is an error number.
    ///
    /// A call that blocks blocks the agent and the caller. So does a call that a filter reports to
    /// the tracer, or a stop of the agent, until the tracer resumes it.
    ///
    /// # Errors
    /// `ESRCH`: the agent has ended. [`io::ErrorKind::InvalidInput`]: the batch is larger than
    /// [`SIZE`]. [`io::ErrorKind::InvalidData`]: the program has written into the buffer. `ENOMEM`,
    /// `ENOBUFS`: no call was made.
    pub fn make(&self, calls: &[Call], data: &mut [u8]) -> io::Result<Vec<i64>> {
        let length = data_offset(calls.len()).saturating_add(data.len());
        if length > SIZE {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut batch = Vec::with_capacity(length);
        batch.extend_from_slice(&(calls.len() as u64).to_ne_bytes());
        for call in calls {
            batch.extend_from_slice(&call.number.to_ne_bytes());
            call.arguments.iter().for_each(|one| batch.extend_from_slice(&one.to_ne_bytes()));
            batch.extend_from_slice(&[0; WORD]);
        }
        batch.extend_from_slice(data);
        self.exchange(&mut batch)?;
        let (entries, after) = batch[WORD..].split_at(calls.len() * ENTRY);
        data.copy_from_slice(after);
        let answer = |entry: &[u8]| {
            let mut word = [0; WORD];
            word.copy_from_slice(&entry[ENTRY - WORD..]);
            i64::from_ne_bytes(word)
        };
        Ok(entries.chunks_exact(ENTRY).map(answer).collect())
    }

    /// Passes a descriptor of this process to the agent. Returns its number there. The agent's
    /// descriptor is closed on `exec`, which an agent never calls.
    ///
    /// # Errors
    /// As [`make`](Self::make); `EMFILE`: the agent has reached its limit of descriptors.
    pub fn give(&self, descriptor: BorrowedFd<'_>) -> io::Result<u32> {
        /// Offsets in the data: a `struct msghdr`, a `struct iovec`, its byte, and a control
        /// message with one descriptor.
        const VECTOR: u64 = size_of::<libc::msghdr>() as u64;
        const BYTE: u64 = VECTOR + size_of::<libc::iovec>() as u64;
        const CONTROL: u64 = BYTE + WORD as u64;
        const CONTROL_LENGTH: u64 = 24;
        let data = self.data_address(1);
        let flags = libc::MSG_CMSG_CLOEXEC as u64;
        let entry = [libc::SYS_recvmsg as u64, self.end.into(), data, flags, 0, 0, 0, 0];
        let header = [0, 0, data + VECTOR, 1, data + CONTROL, CONTROL_LENGTH, 0];
        let words = [1].into_iter().chain(entry).chain(header).chain([data + BYTE, 1, 0, 0, 0, 0]);
        let mut batch: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        self.exchange_beside(&mut batch, Some(descriptor))?;
        let word = |at: usize| {
            let word = batch.get(at..at + WORD).and_then(|word| word.try_into().ok());
            word.map_or(0, i64::from_ne_bytes)
        };
        match word(ENTRY) {
            error @ ..0 => Err(io::Error::from_raw_os_error(-(error as i32))),
            // The descriptor follows the length, level and type of the control message.
            _ => Ok(word(data_offset(1) + CONTROL as usize + 2 * WORD) as u32),
        }
    }

    /// Sends a batch, and replaces it with the answer, which has the same length.
    fn exchange(&self, batch: &mut [u8]) -> io::Result<()> {
        self.exchange_beside(batch, None)
    }

    /// As `exchange`; sends `descriptor` right after the batch, whose call receives it.
    fn exchange_beside(
        &self,
        batch: &mut [u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        use rustix::io::{Errno, retry_on_intr};
        let lost = |error| match error {
            Errno::PIPE | Errno::CONNRESET => Errno::SRCH.into(),
            other => io::Error::from(other),
        };
        // The lock guards no data that a panic could have left half-changed.
        let _busy = self.busy.lock();
        let send = || rustix::net::send(&self.socket, batch, SendFlags::NOSIGNAL);
        retry_on_intr(send).map_err(lost)?;
        if let Some(descriptor) = descriptor {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            let descriptors = [descriptor];
            beside.push(SendAncillaryMessage::ScmRights(&descriptors));
            let byte = [io::IoSlice::new(&[0])];
            let mut send =
                || rustix::net::sendmsg(&self.socket, &byte, &mut beside, SendFlags::NOSIGNAL);
            retry_on_intr(&mut send).map_err(lost)?;
        }
        // With `TRUNC` the call returns the full length of the answer, even if that exceeds the
        // buffer.
        let receive = || rustix::net::recv(&self.socket, &mut *batch, RecvFlags::TRUNC);
        match retry_on_intr(receive).map_err(lost)?.1 {
            0 => Err(Errno::SRCH.into()),
            length if length == batch.len() => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Ends the agent as soon as it has finished the call that it is in.
    pub fn end(&self) {
        // Closing would not suffice: another process may hold a duplicate of this end.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Ends the agent and reaps it, so that only the area is left of it.
    /// [`next`](crate::trace::next) does not report the end of `task`. `held` is a thread of the
    /// program that is stopped as for [`Tracee::call`].
    pub fn end_and_reap(self, held: &mut Tracee, instruction: u64, task: Tracee) {
        held.end_task(instruction, task, None);
    }
}

impl AsFd for Agent {
    /// Polls readable, outside of [`make`](Agent::make), once the agent has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes a task that is not a child of the thread's process: an intermediate child makes the task,
/// and ends.
fn orphan(
    held: &mut Tracee,
    ground: &Ground<'_>,
    code: u64,
    flags: u64,
    start: &impl Fn(&mut Registers),
) -> io::Result<Tracee> {
    let &Ground { instruction, options, .. } = ground;
    let (mut between, number) = held.clone_task(code, flags, options, start)?;
    let made = between.clone_task(code, flags, options, start).map(|(task, _)| task);
    // If the program collects orphans, the task would become its child again, so collecting is
    // switched off for a moment. The intermediate task is ended in any case, even if these calls
    // fail because the program has just been killed.
    let collects = collects_orphans(held, ground).and_then(|collects| {
        if collects {
            collect_orphans(held, instruction, false)?;
        }
        Ok(collects)
    });
    held.end_task(instruction, between, Some(number));
    let restored = match &collects {
        Ok(true) => collect_orphans(held, instruction, true),
        _ => Ok(()),
    };
    match (made, collects.map(drop).and(restored)) {
        (Ok(task), Ok(())) => Ok(task),
        (Ok(task), Err(error)) => {
            held.end_task(instruction, task, None);
            Err(error)
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// Returns whether a process collects the orphans among its descendants (`PR_SET_CHILD_SUBREAPER`).
fn collects_orphans(held: &mut Tracee, ground: &Ground<'_>) -> io::Result<bool> {
    let place = ground.area;
    ground.memory.write(place, &[0; WORD])?;
    let arguments = [libc::PR_GET_CHILD_SUBREAPER as u64, place, 0, 0, 0, 0];
    held.call(ground.instruction, libc::SYS_prctl, arguments)?;
    Ok(ground.memory.word(place)? as u32 != 0)
}

fn collect_orphans(held: &mut Tracee, instruction: u64, collects: bool) -> io::Result<()> {
    let arguments = [libc::PR_SET_CHILD_SUBREAPER as u64, collects.into(), 0, 0, 0, 0];
    held.call(instruction, libc::SYS_prctl, arguments)?;
    Ok(())
}

fn data_offset(calls: usize) -> usize {
    WORD.saturating_add(calls.saturating_mul(ENTRY))
}

/// Returns the ranges of descriptor numbers that are neither `socket` nor in `keep`.
fn between(socket: u32, keep: &[u32]) -> Vec<RangeInclusive<u32>> {
    let mut kept = keep.to_vec();
    kept.push(socket);
    kept.sort_unstable();
    kept.dedup();
    let mut found = Vec::new();
    let mut first = Some(0);
    for one in kept {
        if let Some(first) = first.filter(|&first| first < one) {
            found.push(first..=one - 1);
        }
        first = one.checked_add(1);
    }
    found.extend(first.map(|first| first..=u32::MAX));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_fits_its_page_and_begins_behind_a_call() {
        let code = code();
        assert!(code.len() < PAGE_SIZE_U64 as usize, "{}", code.len());
        assert_eq!(code[..BEGIN as usize], [0x0f, 0x05]);
        assert_eq!(code[code.len() - 2..], [0x0f, 0x0b]);
    }

    #[test]
    fn all_but_what_is_kept_is_closed() {
        assert_eq!(between(0, &[]), [1..=u32::MAX]);
        assert_eq!(between(5, &[3, 4, 3]), [0..=2, 6..=u32::MAX]);
        assert_eq!(between(u32::MAX, &[1]), [0..=0, 2..=u32::MAX - 1]);
    }
}
