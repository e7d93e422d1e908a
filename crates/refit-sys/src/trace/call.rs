//! System calls made by a held thread, at a `syscall` instruction of its own program.
//!
//! The thread's registers and blocked signals are as before afterwards, the interrupted call it may have been in
//! included: the kernel decides whether to make it again by the registers that it finds when the thread goes on.
//!
//! The thread has to stand where [`Tracee::interrupt`] stops it (or in the first stop of one that is new). In other stops it is within
//! a call, whose answer would be put over what is set here, or is about to be given a signal, which would be lost.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use super::{Event, Information, Options, Registers, Stop, Tracee, next_of};
use crate::foreign::Memory;
use crate::maps::Mapping;
use crate::restart::{AGAIN, set_arguments};

/// A system call was not made, or was made and refused.
#[derive(Debug)]
pub enum CallError {
    /// What the call itself says.
    Call(io::Error),
    /// The thread could not be made to make it: `ESRCH`, it was killed; else what `ptrace` says.
    Lost(io::Error),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Call(error) => write!(f, "the system refused the call: {error}"),
            CallError::Lost(error) => write!(f, "the thread could not make the call: {error}"),
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let (CallError::Call(error) | CallError::Lost(error)) = self;
        Some(error)
    }
}

impl From<CallError> for io::Error {
    fn from(error: CallError) -> Self {
        let (CallError::Call(error) | CallError::Lost(error)) = error;
        error
    }
}

/// The address of a `syscall` instruction in what a program has mapped; `None`: its code holds none.
pub fn find_syscall(memory: &Memory, mappings: &[Mapping]) -> Option<u64> {
    let runs = |mapping: &&Mapping| mapping.executable && mapping.readable;
    let mut code: Vec<_> = mappings.iter().filter(runs).collect();
    // The vDSO is small and has one always.
    code.sort_by_key(|mapping| mapping.name.as_os_str() != "[vdso]");
    code.into_iter().find_map(|mapping| {
        let length = usize::try_from(mapping.range.end - mapping.range.start).ok()?;
        let mut bytes = vec![0; length.min(1 << 22)];
        memory.read(mapping.range.start, &mut bytes).ok()?;
        let at = bytes.windows(2).position(|pair| pair == SYSCALL)?;
        Some(mapping.range.start + at as u64)
    })
}

/// The instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The flag by which a thread traps after an instruction.
const TRAP_FLAG: u64 = 1 << 8;
/// Longer than a task needs to begin, or to end, on any host.
const LONG: Duration = Duration::from_secs(60);

/// Signals that wait while a thread steps: all but the one that tells of the step. Were it blocked, the kernel would take the
/// program's handler for it away.
const STEPPING: u64 = !(1 << (libc::SIGTRAP - 1));

/// What a thread is told at stops that are not for signals.
type Told<'a> = &'a mut dyn FnMut(&Tracee) -> io::Result<()>;

/// How it goes on to its next stop.
type Run = fn(&mut Tracee) -> io::Result<Stop>;

/// What the call returned, the task it made, and whether that stands where it should.
type Cloned = (Result<u64, CallError>, Option<Tracee>, io::Result<()>);

impl Tracee {
    /// Makes one system call at the `syscall` instruction at `instruction` ([`find_syscall`]). What it returns.
    ///
    /// # Errors
    /// [`CallError`]. `ESRCH` also where another thread has called `execve` meanwhile: that thread
    /// has this one's number then, and [stands before its first instruction](Self::executed). Each
    /// later call fails in the same way.
    pub fn call(
        &mut self,
        instruction: u64,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, CallError> {
        let asking = |registers: &mut Registers| ask(registers, instruction, number, arguments);
        self.call_with(&asking, &mut |_| Ok(()))
    }

    /// Makes a task that does not run the program's code: `clone(flags, 0, 0, 0, 0)` at the `syscall` instruction at `instruction`.
    /// It begins with this thread's registers as `start` changes them, and all signals blocked; it is traced as this thread is, and
    /// stands in its first stop. Returns it, and the number that the program knows it by (its namespace may be another one).
    ///
    /// `options` are those that this thread is traced with, and the task is to be: the kernel does not tell them. Should the caller
    /// be killed before the task stands where it should, it goes on behind `instruction`, with the registers of `start` but those of
    /// the call: where that is code of ours, it is safe even then.
    ///
    /// # Errors
    /// [`CallError`]; no task is left then, but where the program is killed in the very instant: the task stands in its first stop,
    /// and [`super::next`] tells of it as of one that nobody knows. `EINVAL`: `flags` are such that it is not traced (`CLONE_UNTRACED`), or told in another
    /// way (`CLONE_VFORK`, a signal at its end), or it is no process of its own (`CLONE_THREAD`).
    pub fn clone_task(
        &mut self,
        instruction: u64,
        flags: u64,
        options: Options,
        start: impl Fn(&mut Registers),
    ) -> Result<(Self, u64), CallError> {
        let others = libc::CLONE_UNTRACED | libc::CLONE_VFORK | libc::CLONE_THREAD;
        if flags & (others as u64 | 0xff) != 0 {
            return Err(CallError::Call(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let (number, made, begun) = self.cloned(instruction, flags, options, &start)?;
        match (number, made, begun) {
            (Ok(number), Some(task), Ok(())) => Ok((task, number)),
            (number, made, begun) => {
                if let Some(task) = made {
                    self.end_task(instruction, task, number.as_ref().copied().ok());
                }
                let untold = || CallError::Lost(io::Error::other("its new task was not told"));
                Err(number.err().or(begun.err().map(CallError::Lost)).unwrap_or_else(untold))
            }
        }
    }

    /// As [`clone_task`](Self::clone_task), a thread of this thread's process.
    ///
    /// # Errors
    /// [`CallError`]; a thread that was made all the same stands in its first stop: its process is not good for anything any more.
    pub fn clone_thread(
        &mut self,
        instruction: u64,
        options: Options,
        start: impl Fn(&mut Registers),
    ) -> Result<Self, CallError> {
        let shared = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SYSVSEM;
        let flags = (shared | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;
        let (number, made, begun) = self.cloned(instruction, flags, options, &start)?;
        number?;
        begun.map_err(CallError::Lost)?;
        made.ok_or_else(|| CallError::Lost(io::Error::other("its new thread was not told")))
    }

    /// What has become of a `clone`: the call, the new task, what it begins with.
    fn cloned(
        &mut self,
        instruction: u64,
        flags: u64,
        options: Options,
        start: &impl Fn(&mut Registers),
    ) -> Result<Cloned, CallError> {
        let inherited = options | Options::CLONE;
        if inherited != options {
            self.set_options(inherited).map_err(CallError::Lost)?;
        }
        let asking = |registers: &mut Registers| {
            start(registers);
            ask(registers, instruction, libc::SYS_clone, [flags, 0, 0, 0, 0, 0]);
        };
        let mut made = None;
        let number = self.call_with(&asking, &mut |held| {
            // An event's code is its number above that of `SIGTRAP` (ptrace(2), `PTRACE_GETSIGINFO`).
            if held.information()?.code() >> 8 == libc::PTRACE_EVENT_CLONE {
                made = Some(Self::of(held.message()? as u32));
            }
            Ok(())
        });
        let begun = match &mut made {
            Some(task) => task.begin(options, start),
            None => Ok(()),
        };
        let restored = if inherited == options { Ok(()) } else { self.set_options(options) };
        Ok((number, made, begun.and(restored)))
    }

    /// Waits for the first stop of a new task, and sets what it begins with.
    fn begin(&mut self, options: Options, start: &impl Fn(&mut Registers)) -> io::Result<()> {
        self.settle(Instant::now() + LONG)?;
        self.set_options(options)?;
        self.set_signal_mask(u64::MAX)?;
        let mut registers = self.registers()?;
        // It is in no call any more, and nobody steps it.
        registers.orig_rax = u64::MAX;
        registers.eflags &= !TRAP_FLAG;
        start(&mut registers);
        self.set_registers(&registers)
    }

    /// Kills a task that [`clone_task`](Self::clone_task) has made, which runs or stands, and leaves nothing of it: its end is taken
    /// here, and then by the program, which knows it by `number`.
    pub(crate) fn end_task(&mut self, instruction: u64, task: Self, number: Option<u64>) {
        // SAFETY: a signal to a process that is traced and whose end nobody has taken, so that it has its number still.
        unsafe { libc::kill(task.thread, libc::SIGKILL) };
        loop {
            match next_of(task.thread(), true) {
                Ok(Some((_, Event::Exited(_) | Event::Killed(_)))) => break,
                // It may be told that it is about to end (`Options::EXIT`).
                Ok(_) => drop(task.resume(0)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Its end was taken already.
                Err(_) => break,
            }
        }
        task.leave();
        if let Some(number) = number {
            let how = (libc::__WCLONE | libc::WNOHANG) as u64;
            // A program that has ended itself has no children.
            let _ = self.call(instruction, libc::SYS_wait4, [number, 0, how, 0, 0, 0]);
        }
    }

    /// Lets it run one instruction, a system call being one, and waits until it has. Signals that come meanwhile wait.
    ///
    /// # Errors
    /// As [`step`](Self::step); `ESRCH` also where that tells of the end.
    pub fn step_alone(&mut self) -> io::Result<()> {
        let own = self.run_telling(Self::step, &mut |_| Ok(()))?;
        own.map_or(Ok(()), |own| self.give_back(&own))
    }

    /// Makes the call that `asking` sets the registers for, as often as the kernel wants it made.
    fn call_with(
        &mut self,
        asking: &dyn Fn(&mut Registers),
        told: Told<'_>,
    ) -> Result<u64, CallError> {
        loop {
            match self.call_once(asking, told).map_err(CallError::Lost)? {
                // Something else than a signal was to be seen to first, or one that cannot be blocked.
                again if AGAIN.contains(&again) => {}
                error @ -4095..=-1 => {
                    return Err(CallError::Call(io::Error::from_raw_os_error(-(error as i32))));
                }
                answer => return Ok(answer.cast_unsigned()),
            }
        }
    }

    fn call_once(&mut self, asking: &dyn Fn(&mut Registers), told: Told<'_>) -> io::Result<i64> {
        Ok(self.detour(asking, Self::step, told)?.rax.cast_signed())
    }

    /// Lets it `run` with registers that `asking` sets until it traps: its registers then. They are as before afterwards.
    pub(super) fn detour(
        &mut self,
        asking: &dyn Fn(&mut Registers),
        run: Run,
        told: Told<'_>,
    ) -> io::Result<Registers> {
        if self.gone {
            return Err(ended());
        }
        let before = self.registers()?;
        // Between two calls it stands, but for a signal that kills it, as `execve` of another
        // thread does.
        let at_exec = self.executed().is_some();
        if !*self.began_at_exec.get_or_insert(at_exec) && at_exec {
            self.gone = true;
            return Err(ended());
        }
        let mut registers = before;
        asking(&mut registers);
        self.set_registers(&registers)?;
        let trapped = self.run_telling(run, told);
        if self.gone {
            // Nothing of it is put into the program that may have its number by now.
            return Err(ended());
        }
        let after = self.registers();
        self.set_registers(&before)?;
        if let Some(own) = trapped? {
            self.give_back(&own)?;
        }
        after
    }

    /// Gives the program its own `SIGTRAP`, which it blocks as a rule: the kernel queues it again.
    /// The thread has to stand in the stop that its trap has led to.
    fn give_back(&mut self, own: &Information) -> io::Result<()> {
        self.set_information(own)?;
        self.interrupt()?;
        self.resume(libc::SIGTRAP)?;
        self.settle(Instant::now() + LONG).map(drop)
    }

    /// Lets it `run` until it traps. Returns the program's own `SIGTRAP` if one waited: the thread
    /// has stopped for that first, and it is not queued any more.
    fn run_telling(&mut self, run: Run, told: Told<'_>) -> io::Result<Option<Information>> {
        let mask = self.signal_mask()?;
        self.set_signal_mask(STEPPING)?;
        let (mut stop_signal, mut own) = (None, None);
        let trapped = loop {
            match run(self) {
                Ok(Stop::Signal(libc::SIGTRAP)) => match self.information() {
                    // Somebody has sent it (sigaction(2), `si_code`).
                    Ok(information) if information.code() <= 0 => own = Some(information),
                    Ok(_) => break Ok(()),
                    Err(error) => break Err(error),
                },
                Ok(Stop::Ended) => return Err(ended()),
                // Another thread has made the call: this one is no more.
                Ok(Stop::Exec) => {
                    self.gone = true;
                    return Err(ended());
                }
                Ok(Stop::Signal(0)) => {
                    if let Err(error) = told(self) {
                        break Err(error);
                    }
                }
                // `SIGSTOP` cannot be blocked.
                Ok(Stop::Signal(signal)) => stop_signal = Some(signal),
                Ok(Stop::Event) => {}
                Err(error) => break Err(error),
            }
        };
        self.set_signal_mask(mask)?;
        if let Some(signal) = stop_signal {
            // It is to stop its process when the thread goes on.
            // SAFETY: a signal to a thread that is traced, so that it has its number still.
            unsafe { libc::syscall(libc::SYS_tkill, self.thread, signal) };
        }
        trapped.map(|()| own)
    }
}

/// The thread is no more.
fn ended() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

fn ask(registers: &mut Registers, instruction: u64, number: i64, arguments: [u64; 6]) {
    registers.rip = instruction;
    registers.rax = number.cast_unsigned();
    // None was interrupted: the kernel must not step back to make it again.
    registers.orig_rax = u64::MAX;
    set_arguments(registers, arguments);
}
