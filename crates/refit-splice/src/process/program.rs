//! A running process that can be read and changed, and the checks that refuse it before anything is touched.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use refit_sys::foreign::Memory;
use refit_sys::maps::{self, Mapping};
use refit_sys::process::{is_filtered, life, living, threads};
use refit_sys::status::Status;

use super::refusal::Refusal;

/// A process whose code can be changed.
#[derive(Debug)]
pub struct Program {
    id: u32,
    /// When it began: tells it from a later process with its number.
    began: u64,
    pub(super) memory: Memory,
}

impl Program {
    /// The process with this number, if its code can be read and changed by the caller.
    ///
    /// # Errors
    /// [`Refusal`] says why not.
    pub fn open(id: u32) -> Result<Self, Refusal> {
        let program = Self::open_to_clean(id)?;
        // One thread that may make any call makes all that are needed.
        if program.threads().iter().all(|&thread| is_filtered(thread)) {
            return Err(Refusal::Filtered { id });
        }
        Ok(program)
    }

    /// As [`open`](Self::open), also where no thread may make the calls that refit needs (seccomp): bytes of its code can be changed all
    /// the same.
    ///
    /// # Errors
    /// [`Refusal`] says why not.
    pub fn open_to_clean(id: u32) -> Result<Self, Refusal> {
        if id == std::process::id() {
            return Err(Refusal::Own { id });
        }
        let life = life(id).ok_or(Refusal::NoSuch { id })?;
        let face = living(id).ok_or(Refusal::Ended { id })?;
        let status = Status::of(face).unwrap_or_default();
        if let Some(process) = status.number("Tgid").filter(|&group| group != id) {
            return Err(Refusal::Thread { id, process });
        }
        if let Some(by) = status.number("TracerPid").filter(|&by| by != 0) {
            return Err(Refusal::Traced { id, by });
        }
        refuse_other_machines(id, face)?;
        // The program may be replaced meanwhile: what is open is the memory of now.
        let memory = Memory::of(face).map_err(|source| Refusal::of_opening(id, source))?;
        Ok(Self { id, began: life.began, memory })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The number of one of its threads that has not ended, under which `/proc` tells of its memory and its files: its own number,
    /// unless its first thread has ended before others.
    pub fn face(&self) -> u32 {
        living(self.id).unwrap_or(self.id)
    }

    /// Its threads that have not ended.
    pub(crate) fn threads(&self) -> Vec<u32> {
        let mut threads = threads(self.id);
        threads.retain(|&thread| life(thread).is_some_and(|life| !life.ended()));
        threads
    }

    /// Whether it has ended, all threads of it; another one may have its number since.
    pub fn ended(&self) -> bool {
        life(self.id).is_none_or(|life| life.began != self.began) || living(self.id).is_none()
    }

    /// Whether the system calls of any of its threads are limited (seccomp).
    pub fn is_filtered(&self) -> bool {
        self.threads().into_iter().any(is_filtered)
    }

    /// What it has mapped now, by address.
    ///
    /// # Errors
    /// It has ended.
    pub fn mappings(&self) -> Result<Vec<Mapping>, Refusal> {
        maps::of(self.face()).map_err(|source| Refusal::of_opening(self.id, source))
    }

    /// Copies its memory from `address` on. A place that is not mapped is an error (`EIO`).
    ///
    /// # Errors
    /// What reading says; `ESRCH` when the process has ended.
    pub fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        Ok(self.memory.read(address, into)?)
    }

    /// The 64-bit word at `address`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn word(&self, address: u64) -> io::Result<u64> {
        Ok(self.memory.word(address)?)
    }

    /// Changes its memory, read-only code included; the other processes that have mapped the file see nothing of it.
    ///
    /// # Errors
    /// What writing says: `EIO` where nothing is mapped, or where the kernel does not let anybody write to code
    /// (`proc_mem.force_override=never`).
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        Ok(self.memory.write(address, bytes)?)
    }
}

/// Whether its machine code is ours: its program's file says so.
fn refuse_other_machines(id: u32, face: u32) -> Result<(), Refusal> {
    let mut head = [0; 20];
    let program = File::open(format!("/proc/{face}/exe")).map_err(|source| {
        match source.kind() {
            // A thread of the kernel has no program.
            io::ErrorKind::NotFound => Refusal::Kernel { id },
            _ => Refusal::of_opening(id, source),
        }
    })?;
    let read = program.read_exact_at(&mut head, 0);
    // Class, byte order and machine, by the ELF specification's first table.
    let ours = read.is_ok()
        && head.starts_with(b"\x7fELF\x02\x01")
        && u16::from_le_bytes([head[18], head[19]]) == 62;
    if ours { Ok(()) } else { Err(Refusal::Machine { id }) }
}
