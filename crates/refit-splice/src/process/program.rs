//! A process that can be read and changed, and the checks that refuse it before anything is
//! touched.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use refit_sys::foreign::{Memory, bring};
use refit_sys::maps::{self, Mapping};
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::process::{life, living, threads};
use refit_sys::status::Status;

use super::lender::Lender;
use super::refusal::Refusal;
use super::stop_log::{StopLog, Stops};

/// A process whose code can be changed.
#[derive(Debug)]
pub struct Program {
    id: u32,
    /// Its start time, which distinguishes it from a later process with the same id.
    began: u64,
    pub(super) memory: Memory,
    /// Its tracer, if refit is not.
    lender: Option<Arc<dyn Lender>>,
    /// The number of seccomp filters that its tracer has given to it: they permit all calls that
    /// refit makes in it.
    allowed: AtomicU32,
    pub(super) stop_log: StopLog,
}

impl Program {
    /// Opens the process with this id, if the caller may read and change its code.
    ///
    /// # Errors
    /// [`Refusal`] has the reason.
    pub fn open(id: u32) -> Result<Self, Refusal> {
        Self::open_to_clean(id)?.unfiltered()
    }

    /// Opens a process that another process of refit traces, and lends. `filters` is the number of
    /// seccomp filters that the tracer has given to it.
    ///
    /// # Errors
    /// [`Refusal`] has the reason.
    pub fn open_lent(id: u32, lender: Arc<dyn Lender>, filters: u32) -> Result<Self, Refusal> {
        Self::open_lent_to_clean(id, lender, filters)?.unfiltered()
    }

    /// Checks that one thread may make any call, or that its filters can be suspended: it makes all
    /// the calls that refit needs.
    fn unfiltered(self) -> Result<Self, Refusal> {
        let suspends = self.lender.is_none() && may_suspend_filters();
        if !suspends && self.threads().iter().all(|&thread| self.filters(thread)) {
            return Err(Refusal::Filtered { id: self.id });
        }
        Ok(self)
    }

    /// Opens a process as [`open`](Self::open) does, but also one in which no thread may make the
    /// calls that refit needs (seccomp): the bytes of its code can still be changed.
    ///
    /// # Errors
    /// [`Refusal`] has the reason.
    pub fn open_to_clean(id: u32) -> Result<Self, Refusal> {
        Self::open_with(id, None)
    }

    /// Opens a process as [`open_lent`](Self::open_lent) does, but also one in which no thread may
    /// make calls.
    ///
    /// # Errors
    /// [`Refusal`] has the reason.
    pub fn open_lent_to_clean(
        id: u32,
        lender: Arc<dyn Lender>,
        filters: u32,
    ) -> Result<Self, Refusal> {
        let program = Self::open_with(id, Some(lender))?;
        program.allow(filters);
        Ok(program)
    }

    fn open_with(id: u32, lender: Option<Arc<dyn Lender>>) -> Result<Self, Refusal> {
        if id == std::process::id() {
            return Err(Refusal::Own { id });
        }
        let life = life(id).ok_or(Refusal::NoSuch { id })?;
        let face = living(id).ok_or(Refusal::Ended { id })?;
        let status = Status::of(face).unwrap_or_default();
        if let Some(process) = status.number("Tgid").filter(|&group| group != id) {
            return Err(Refusal::Thread { id, process });
        }
        if lender.is_none()
            && let Some(by) = status.number("TracerPid").filter(|&by| by != 0)
        {
            return Err(Refusal::Traced { id, by });
        }
        refuse_other_machines(id, face)?;
        // The process may exec meanwhile: the memory is that of the present program.
        let memory = Memory::of(face).map_err(|source| Refusal::of_opening(id, source))?;
        let (allowed, stop_log) = (AtomicU32::new(0), StopLog::default());
        Ok(Self { id, began: life.began, memory, lender, allowed, stop_log })
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the id of a thread that has not ended, under which `/proc` shows its memory and
    /// files: the process id, unless the first thread has ended before others.
    pub fn face(&self) -> u32 {
        living(self.id).unwrap_or(self.id)
    }

    /// Returns what is known of all stops since it was opened.
    pub fn stops(&self) -> Stops {
        self.stop_log.sum_up()
    }

    /// Returns its threads that have not ended.
    pub(crate) fn threads(&self) -> Vec<u32> {
        let mut threads = threads(self.id);
        threads.retain(|&thread| life(thread).is_some_and(|life| !life.ended()));
        threads
    }

    /// Whether all its threads have ended; its process id may have been reused since.
    pub fn ended(&self) -> bool {
        life(self.id).is_none_or(|life| life.began != self.began) || living(self.id).is_none()
    }

    /// Whether the system calls of any of its threads are filtered (seccomp).
    pub fn is_filtered(&self) -> bool {
        self.threads().into_iter().any(|thread| self.filters(thread))
    }

    /// Whether the system calls of a thread are filtered, by other filters than its tracer's.
    pub(super) fn filters(&self, thread: u32) -> bool {
        // A thread that has ended filters nothing; `None` is strict mode.
        let own = Status::of(thread).map_or(Some(0), |status| status.filters());
        // Relaxed: only the number matters.
        own.is_none_or(|own| own > self.allowed.load(Ordering::Relaxed))
    }

    /// Permits this number of seccomp filters, which its tracer has given to it.
    pub(super) fn allow(&self, filters: u32) {
        self.allowed.store(filters, Ordering::Relaxed);
    }

    /// Opens a process that was forked from this one, to take out what it has from here. The tracer
    /// of this one may follow it, too.
    ///
    /// # Errors
    /// [`Refusal`] has the reason.
    pub(crate) fn open_forked(&self, id: u32) -> Result<Self, Refusal> {
        match (Self::open_to_clean(id), &self.lender) {
            (Err(Refusal::Traced { .. }), Some(lender)) => {
                let filters = self.allowed.load(Ordering::Relaxed);
                Self::open_lent_to_clean(id, Arc::clone(lender), filters)
            }
            (opened, _) => opened,
        }
    }

    /// Returns the tracer of the program, if refit is not.
    pub(super) fn lender(&self) -> Option<&dyn Lender> {
        self.lender.as_deref()
    }

    /// Returns its present mappings, by address.
    ///
    /// # Errors
    /// [`Refusal`]: the program has ended.
    pub fn mappings(&self) -> Result<Vec<Mapping>, Refusal> {
        maps::of(self.face()).map_err(|source| Refusal::of_opening(self.id, source))
    }

    /// Copies its memory from `address` on. Memory that is not mapped yields `EIO`.
    ///
    /// # Errors
    /// The error of the system; `ESRCH` if the process has ended.
    pub fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.with_pages(address, into.len(), |memory| Ok(memory.read(address, into)?))
    }

    /// Reads the 64-bit word at `address`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn word(&self, address: u64) -> io::Result<u64> {
        self.with_pages(address, 8, |memory| Ok(memory.word(address)?))
    }

    /// Writes to its memory, read-only code included; other processes that have mapped the file are
    /// not affected.
    ///
    /// # Errors
    /// The error of the system: `EIO` where nothing is mapped, or where the kernel lets nobody
    /// write to code (`proc_mem.force_override=never`).
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.with_pages(address, bytes.len(), |memory| Ok(memory.write(address, bytes)?))
    }

    /// Accesses memory whose pages the tracer of the program may have evicted: they are brought
    /// back first, as often as they are evicted again.
    fn with_pages<R>(
        &self,
        address: u64,
        length: usize,
        mut access: impl FnMut(&Memory) -> io::Result<R>,
    ) -> io::Result<R> {
        let mut done = access(&self.memory);
        for _ in 0..BROUGHT_BACK {
            if self.lender.is_none() || done.is_ok() {
                break;
            }
            let pages = address & !(PAGE_SIZE_U64 - 1)..address.saturating_add(length as u64);
            let mut pages = pages.step_by(PAGE_SIZE_U64 as usize);
            if pages.any(|page| bring(self.face(), page).is_err()) {
                break;
            }
            done = access(&self.memory);
        }
        done
    }
}

/// Maximum number of times that pages are brought back for one access.
const BROUGHT_BACK: u32 = 8;

/// Whether the kernel lets this process suspend the filters of threads that it traces: it has
/// `CAP_SYS_ADMIN`, and no filters of its own (ptrace(2)).
fn may_suspend_filters() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let own = Status::of(std::process::id()).unwrap_or_default();
    own.set("CapEff").is_some_and(|set| set & SYS_ADMIN != 0) && own.filters() == Some(0)
}

/// Refuses a process whose program is not for x86-64, by the header of its file.
fn refuse_other_machines(id: u32, face: u32) -> Result<(), Refusal> {
    let mut head = [0; 20];
    let program = File::open(format!("/proc/{face}/exe")).map_err(|source| {
        match source.kind() {
            // A kernel thread has no program.
            io::ErrorKind::NotFound => Refusal::Kernel { id },
            _ => Refusal::of_opening(id, source),
        }
    })?;
    let read = program.read_exact_at(&mut head, 0);
    // Class, byte order and machine, by the first table of the ELF specification.
    let ours = read.is_ok()
        && head.starts_with(b"\x7fELF\x02\x01")
        && u16::from_le_bytes([head[18], head[19]]) == 62;
    if ours { Ok(()) } else { Err(Refusal::Machine { id }) }
}
