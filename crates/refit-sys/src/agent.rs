//! A task of ours that shares a program's memory and makes system calls there, one batch after the other.
//!
//! Some calls act on the memory of whoever makes them only: `mmap`, `mremap`, `UFFDIO_MOVE`. A thread of the program would have to
//! stand still for them; the agent makes them beside the program, which runs on. It is a process of its own (`CLONE_VM` and nothing
//! else) whose code, of some hundred bytes, waits at a socket for calls, makes them, and answers. It uses no stack, has no part in the
//! program's descriptors, directory, signals and threads, and is no child of the program: the task between the two that has made it ends at
//! once, so that it is left to whoever collects orphans, process 1 as a rule.
//!
//! What is asked stands in memory that the program can write to: the agent may do what the program may, and is no more to be trusted.
//! So the program's own descriptors that it keeps should be few.
//!
//! It outlives its program: whoever drops the [`Agent`] ends it. Where an ancestor of the program collects orphans itself
//! (`PR_SET_CHILD_SUBREAPER`), that one is told of its end.

use std::io;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown};

use crate::foreign::Memory;
use crate::pidfd::Pidfd;
use crate::trace::{Options, Registers, Tracee};

/// What an agent needs of the program's memory, in bytes: the buffer, and a page for the code.
pub const AREA: u64 = SIZE as u64 + PAGE;
/// How much one batch may be, in bytes: a word, 8 words for each call, and the data.
pub const SIZE: usize = 2 * PAGE as usize;

const PAGE: u64 = 4096;
const WORD: usize = 8;
/// Number, six arguments, answer.
const ENTRY: usize = 8 * WORD;
/// How many calls of its own are made at once.
const AT_ONCE: usize = 64;

// The code. `syscall` leaves all registers as they are but rax, rcx and r11.
std::arch::global_asm!(
    ".pushsection .rodata.refit_agent, \"a\", @progbits",
    ".globl refit_agent_code",
    ".hidden refit_agent_code",
    ".globl refit_agent_end",
    ".hidden refit_agent_end",
    "refit_agent_code:",
    // Where the thread that makes the agent makes its `clone`: so the agent is never anywhere but here.
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

/// Where in the code an agent begins: behind the instruction that has made it.
const BEGIN: u64 = 2;

/// A system call to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number.
    pub number: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// Where an agent is planted.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// The program.
    pub program: &'a Pidfd,
    /// Its memory.
    pub memory: &'a Memory,
    /// A `syscall` instruction of it ([`crate::trace::find_syscall`]).
    pub instruction: u64,
    /// Private anonymous memory in it, [`AREA`] bytes of whole pages, that may be read and written; the last page becomes code.
    pub area: u64,
    /// What the thread that makes the agent is traced with, and so will the agent be. With `EXIT_KILL` no agent is left whenever the
    /// tracer is killed.
    pub options: Options,
    /// Which of the program's descriptors the agent has, too.
    pub keep: &'a [u32],
}

/// An agent in a program: our end.
#[derive(Debug)]
pub struct Agent {
    socket: OwnedFd,
    /// One batch at a time; others wait.
    busy: Mutex<()>,
    buffer: u64,
    /// The number of its own end of the socket.
    end: u32,
}

/// The agent's machine code, to be put anywhere.
pub fn code() -> &'static [u8] {
    unsafe extern "C" {
        static refit_agent_code: u8;
        static refit_agent_end: u8;
    }
    let (begin, end) = (&raw const refit_agent_code, &raw const refit_agent_end);
    // SAFETY: the bytes between the two marks are constants of this program.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// Sets what an agent begins with: where its [`code`] and its buffer are, and the number of its end of the socket.
pub fn start_registers(registers: &mut Registers, code: u64, buffer: u64, socket: u32) {
    registers.rip = code + BEGIN;
    // None: what would use it by mistake hits nothing of the program.
    registers.rsp = 0;
    registers.r12 = u64::from(socket);
    registers.r13 = buffer;
    registers.r14 = SIZE as u64;
}

/// Whether a new task has the registers that an agent begins with.
///
/// [`next`](crate::trace::next) tells of such a task only if the thread that was to wait for it was
/// killed while it made it. Nobody uses the task then, and the caller has to kill it.
pub fn is_lost(task: &Tracee) -> bool {
    task.registers().is_ok_and(|now| now.rsp == 0 && now.r14 == SIZE as u64)
}

impl Agent {
    /// Has a held thread of the program make an agent, which runs when this returns, traced by the calling thread: its further events
    /// (none are expected but its end) are the caller's to take. It has a session of its own, so that signals to the program's process
    /// group do not reach it, `/` as its directory, and the name `refit agent`.
    ///
    /// The thread has to stand as for [`Tracee::call`]; others should stand, too: one that forks meanwhile gives the child the
    /// two ends of the socket. An agent has the program's filters of system calls: one that tells the tracer of `close_range`,
    /// `setsid`, `chdir` or `prctl` ([`crate::seccomp::Action::Trace`]) makes the calling thread wait for itself.
    ///
    /// # Errors
    /// What ptrace(2), mprotect(2), socketpair(2), pidfd_getfd(2), clone(2), close_range(2) (5.9) say; `EFAULT`: no such area. `ESRCH`:
    /// the program, or the agent, was killed. Nothing stays behind in the program but what was put into the area.
    pub fn set_up(held: &mut Tracee, ground: &Ground<'_>) -> io::Result<(Self, Tracee)> {
        let &Ground { memory, instruction, area, .. } = ground;
        let code_at = area + SIZE as u64;
        memory.write(code_at, code())?;
        let access = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        held.call(instruction, libc::SYS_mprotect, [code_at, PAGE, access, 0, 0, 0])?;
        let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64;
        let pair = [libc::AF_UNIX as u64, kind, 0, area, 0, 0];
        held.call(instruction, libc::SYS_socketpair, pair)?;
        let word = memory.word(area)?;
        let (ours, its) = (word as u32, (word >> 32) as u32);
        let made = ground.program.get_fd(ours).and_then(|socket| {
            let start = |registers: &mut Registers| start_registers(registers, code_at, area, its);
            // At an instruction behind which it is in its own code already. Descriptors are shared at first: a copy of them all would keep open for a moment
            // what the program closes just then, and who waits for events of it would be told of them.
            let flags = (libc::CLONE_VM | libc::CLONE_FILES) as u64;
            let task = orphan(held, ground, code_at, flags, &start)?;
            Ok((Self { socket, busy: Mutex::new(()), buffer: area, end: its }, task))
        });
        let made = made.map(|(agent, task)| {
            let settled = task.resume(0).and_then(|()| agent.settle(its, ground.keep));
            (agent, task, settled)
        });
        // Not before the agent has descriptors of its own.
        let mut closed = Ok(0);
        for end in [ours, its] {
            let one = held.call(instruction, libc::SYS_close, [u64::from(end), 0, 0, 0, 0, 0]);
            closed = closed.and(one);
        }
        let (agent, task, settled) = made?;
        match settled.and(closed.map(drop).map_err(io::Error::from)) {
            Ok(()) => Ok((agent, task)),
            Err(error) => {
                agent.uproot(held, instruction, task);
                Err(error)
            }
        }
    }

    /// What it does before all else: it lets go of what is the program's.
    fn settle(&self, socket: u32, keep: &[u32]) -> io::Result<()> {
        let call = |number, arguments| Call { number, arguments };
        let close = |(range, how): (RangeInclusive<u32>, libc::c_uint)| {
            let (first, last) = (u64::from(*range.start()), u64::from(*range.end()));
            call(libc::SYS_close_range, [first, last, how.into(), 0, 0, 0])
        };
        // With the first it has its own, without those of that range, which are nearly all that the program has: the lowest numbers are given first.
        let how = std::iter::once(libc::CLOSE_RANGE_UNSHARE).chain(std::iter::repeat(0));
        let closes: Vec<Call> = between(socket, keep).into_iter().zip(how).map(close).collect();
        // Where that fails the others would close what is the program's.
        let (first, others) = closes.split_at(1);
        for some in std::iter::once(first).chain(others.chunks(AT_ONCE)) {
            self.make_all(some, &mut [])?;
        }
        let mut texts = *b"refit agent\0/\0";
        let name = self.data_address(3);
        let root = name + 12;
        let calls = [
            call(libc::SYS_setsid, [0; 6]),
            call(libc::SYS_chdir, [root, 0, 0, 0, 0, 0]),
            call(libc::SYS_prctl, [libc::PR_SET_NAME as u64, name, 0, 0, 0, 0]),
        ];
        self.make_all(&calls, &mut texts)
    }

    /// As [`make`](Self::make), where none may fail.
    fn make_all(&self, calls: &[Call], data: &mut [u8]) -> io::Result<()> {
        match self.make(calls, data)?.into_iter().find(|answer| *answer < 0) {
            Some(error) => Err(io::Error::from_raw_os_error(-(error as i32))),
            None => Ok(()),
        }
    }

    /// Where the data of a batch of so many calls is, in the program's memory; a multiple of 8.
    pub fn data_address(&self, calls: usize) -> u64 {
        self.buffer + data_offset(calls) as u64
    }

    /// Has it make calls, in order, whatever they return, and waits until it has. `data` stands at
    /// [`data_address`](Self::data_address) meanwhile, and is as they left it afterwards. Returns their answers: below 0, an
    /// error's number.
    ///
    /// A call that waits makes the agent, and whoever asks it, wait; so does one that the tracer is told of, or a stop of the agent, until
    /// the tracer lets it go on.
    ///
    /// # Errors
    /// `ESRCH`: the agent is gone. [`io::ErrorKind::InvalidInput`]: all of it is more than [`SIZE`].
    /// [`io::ErrorKind::InvalidData`]: the program has written into the buffer. `ENOMEM`, `ENOBUFS`: nothing was asked.
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

    /// Gives it a descriptor of this process; the number that it has there. It is closed on `exec`, which an agent never does.
    ///
    /// # Errors
    /// As [`make`](Self::make); `EMFILE`: it may have no more.
    pub fn give(&self, descriptor: BorrowedFd<'_>) -> io::Result<u32> {
        /// Where things are in the data: a `struct msghdr`, a `struct iovec`, its byte, and a message with one descriptor.
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
            // Behind the length, level and type of what came beside the byte.
            _ => Ok(word(data_offset(1) + CONTROL as usize + 2 * WORD) as u32),
        }
    }

    /// Sends a batch, and puts the answer, as long as it, into its place.
    fn exchange(&self, batch: &mut [u8]) -> io::Result<()> {
        self.exchange_beside(batch, None)
    }

    /// As `exchange`; sends a descriptor right behind the batch, which has the agent receive it.
    fn exchange_beside(
        &self,
        batch: &mut [u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        use rustix::io::{Errno, retry_on_intr};
        let gone = |error| match error {
            Errno::PIPE | Errno::CONNRESET => Errno::SRCH.into(),
            other => io::Error::from(other),
        };
        // It guards no data that a panic could have left half-changed.
        let _busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let send = || rustix::net::send(&self.socket, batch, SendFlags::NOSIGNAL);
        retry_on_intr(send).map_err(gone)?;
        if let Some(descriptor) = descriptor {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            let descriptors = [descriptor];
            beside.push(SendAncillaryMessage::ScmRights(&descriptors));
            let byte = [io::IoSlice::new(&[0])];
            let mut send =
                || rustix::net::sendmsg(&self.socket, &byte, &mut beside, SendFlags::NOSIGNAL);
            retry_on_intr(&mut send).map_err(gone)?;
        }
        // `TRUNC`: tells the length that it had, however little is asked for.
        let receive = || rustix::net::recv(&self.socket, &mut *batch, RecvFlags::TRUNC);
        match retry_on_intr(receive).map_err(gone)?.1 {
            0 => Err(Errno::SRCH.into()),
            length if length == batch.len() => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Ends it, whoever waits for it, as soon as it has made the call that it is in.
    pub fn end(&self) {
        // Not by closing: somebody may have got hold of another descriptor of this end.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Ends it, so that nothing is left of it but the area: its end is taken here, which `task` is told of otherwise. `held` is a thread of the
    /// program that stands as for [`Tracee::call`].
    pub fn uproot(self, held: &mut Tracee, instruction: u64, task: Tracee) {
        held.end_task(instruction, task, None);
    }
}

impl AsFd for Agent {
    /// Polls readable, outside of [`make`](Agent::make), when the agent has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}

/// Has a thread make a task that is no child of its process: a child of its makes it, and ends.
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
    // Orphans of a program that collects them would be its children again. Whatever cannot be asked any more, since the program has just
    // been killed: the task in between is not left behind.
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

/// Whether a process collects orphans among its descendants (`PR_SET_CHILD_SUBREAPER`).
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

/// The numbers that are not among those kept, as ranges.
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
        assert!(code.len() < PAGE as usize, "{}", code.len());
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
