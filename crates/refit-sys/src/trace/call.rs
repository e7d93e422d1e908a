//! System calls made by a stopped thread, at a `syscall` instruction of its own program.
//!
//! The thread's registers and blocked signals are restored afterwards. So is the state of a call
//! that the stop has interrupted: when the thread continues, the kernel decides by its registers
//! whether to repeat the call.
//!
//! The thread has to be in a stop that [`Tracee::interrupt`] has caused (or in the first stop of a
//! new thread). In other stops it is within a call, whose result would overwrite the registers set
//! here, or is about to receive a signal, which would be lost.

use std::io;
use std::time::{Duration, Instant};

use super::{Event, Information, Options, Registers, Stop, Tracee, next_of};
use crate::foreign::Memory;
use crate::maps::Mapping;
use crate::restart::{RESTARTS, set_arguments};

/// The error that a system call was not made, or failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The error that the call returned.
    #[error("the system refused the call: {0}")]
    Call(#[source] io::Error),
    /// The thread could not make the call: `ESRCH`, it was killed; [`UnreportedTask`]; else the
    /// error of `ptrace`.
    #[error("the thread could not make the call: {0}")]
    Lost(#[source] io::Error),
}

impl From<CallError> for io::Error {
    fn from(error: CallError) -> Self {
        let (CallError::Call(error) | CallError::Lost(error)) = error;
        error
    }
}

/// The error that no code of a program holds a `syscall` instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its code has no system call")]
pub struct NoSyscall;

impl From<NoSyscall> for io::Error {
    fn from(error: NoSyscall) -> Self {
        io::Error::other(error)
    }
}

/// The error that a `clone` has succeeded but the kernel has not reported the new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel has not reported its new task")]
pub struct UnreportedTask;

/// Returns the address of a `syscall` instruction in a program's mappings.
///
/// # Errors
/// [`NoSyscall`]: its code has none.
pub fn find_syscall(memory: &Memory, mappings: &[Mapping]) -> Result<u64, NoSyscall> {
    let runs = |mapping: &&Mapping| mapping.executable && mapping.readable;
    let mut code: Vec<_> = mappings.iter().filter(runs).collect();
    // The vDSO is small and always has one.
    code.sort_by_key(|mapping| mapping.name.as_os_str() != "[vdso]");
    let found = code.into_iter().find_map(|mapping| {
        let length = usize::try_from(mapping.range.end - mapping.range.start).ok()?;
        let mut bytes = vec![0; length.min(1 << 22)];
        memory.read(mapping.range.start, &mut bytes).ok()?;
        let at = bytes.windows(2).position(|pair| pair == SYSCALL)?;
        Some(mapping.range.start + at as u64)
    });
    found.ok_or(NoSyscall)
}

fn unreported() -> CallError {
    CallError::Lost(io::Error::other(UnreportedTask))
}

/// The bytes of a `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The flag by which a thread traps after an instruction.
const TRAP_FLAG: u64 = 1 << 8;
/// The time within which a task begins, or ends, on any host.
const TASK_TIMEOUT: Duration = Duration::from_secs(60);

/// The signals that are blocked while a thread is stepped: all but the one that reports the step.
/// If that signal were blocked, the kernel would reset the program's handler for it.
const STEPPING: u64 = !(1 << (libc::SIGTRAP - 1));

/// A function that is called at stops that are not for signals.
type OnStop<'a> = &'a mut dyn FnMut(&Tracee) -> io::Result<()>;

/// Resumes the thread and waits for its next stop.
type Run = fn(&mut Tracee) -> io::Result<Stop>;

/// The result of a `clone`: its return value, the task that it has created, and whether the state
/// that the task begins with could be set.
type Cloned = (Result<u64, CallError>, Option<Tracee>, io::Result<()>);

impl Tracee {
    /// Makes one system call at the `syscall` instruction at `instruction` ([`find_syscall`]).
    /// Returns its result.
    ///
    /// # Errors
    /// [`CallError`]. `ESRCH` also if another thread has called `execve` in the meantime: that
    /// thread has this one's number then, and [is before its first instruction](Self::executed).
    /// Each later call fails in the same way.
    pub fn call(
        &mut self,
        instruction: u64,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, CallError> {
        let asking = |registers: &mut Registers| ask(registers, instruction, number, arguments);
        self.call_with(&asking, &mut |_| Ok(()))
    }

    /// Creates a task that does not run the program's code, by `clone(flags, 0, 0, 0, 0)` at the
    /// `syscall` instruction at `instruction`. The task begins with this thread's registers as
    /// changed by `start`, with all signals blocked. It is traced as this thread is, and is in its
    /// first stop. Returns it, and the number by which the program knows it (its PID namespace may
    /// be another one).
    ///
    /// `options` are those that this thread is traced with, and that the task inherits: the kernel
    /// cannot be asked for them. If the caller is killed before the task has been given its
    /// registers, the task continues after `instruction`, with the registers of `start` except
    /// those that the call changes. Where that is code of refit's, that is safe too.
    ///
    /// # Errors
    /// [`CallError`]; no task is left then, unless the program is killed in that very instant: the
    /// task is in its first stop then, and [`super::next`] reports it as an unknown one. `EINVAL`:
    /// with these `flags` the task is not traced (`CLONE_UNTRACED`), is reported in another way
    /// (`CLONE_VFORK`, an exit signal), or is not a process of its own (`CLONE_THREAD`).
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
                let error = number.err().or(begun.err().map(CallError::Lost));
                Err(error.unwrap_or_else(unreported))
            }
        }
    }

    /// As [`clone_task`](Self::clone_task), for a thread of this thread's process.
    ///
    /// # Errors
    /// [`CallError`]; a thread that was created nevertheless is in its first stop, and its process
    /// is unusable.
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
        made.ok_or_else(unreported)
    }

    /// Makes the call of `clone`. Returns its result, the new task, and whether the task's
    /// beginning could be set.
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
            // The code of an event is its number above that of `SIGTRAP` (ptrace(2),
            // `PTRACE_GETSIGINFO`).
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

    /// Waits for the first stop of a new task, and sets the state that it begins with.
    fn begin(&mut self, options: Options, start: &impl Fn(&mut Registers)) -> io::Result<()> {
        self.settle(Instant::now() + TASK_TIMEOUT)?;
        self.set_options(options)?;
        self.set_signal_mask(u64::MAX)?;
        let mut registers = self.registers()?;
        // It is in no call any more, and is not stepped.
        registers.orig_rax = u64::MAX;
        registers.eflags &= !TRAP_FLAG;
        start(&mut registers);
        self.set_registers(&registers)
    }

    /// Kills a task that [`clone_task`](Self::clone_task) has created, running or stopped, and
    /// reaps it twice: here, and in the program, which knows it by `number`.
    pub(crate) fn end_task(&mut self, instruction: u64, task: Self, number: Option<u64>) {
        // SAFETY: a signal to a process that is traced and has not been reaped, so that it still
        // has its number.
        unsafe { libc::kill(task.thread, libc::SIGKILL) };
        loop {
            match next_of(task.thread(), true) {
                Ok(Some((_, Event::Exited(_) | Event::Killed(_)))) => break,
                // It may report that it is about to end (`Options::EXIT`).
                Ok(_) => drop(task.resume(0)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It was reaped already.
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

    /// Lets the thread run one instruction, which may be a system call, and waits until it has run.
    /// Signals that arrive in the meantime stay pending.
    ///
    /// # Errors
    /// As [`step`](Self::step); `ESRCH` also where `step` reports the end.
    pub fn step_alone(&mut self) -> io::Result<()> {
        let own = self.run_telling(Self::step, &mut |_| Ok(()))?;
        own.map_or(Ok(()), |own| self.give_back(&own))
    }

    /// Makes the call that `asking` sets the registers for, and repeats it as long as the kernel
    /// asks for that.
    fn call_with(
        &mut self,
        asking: &dyn Fn(&mut Registers),
        told: OnStop<'_>,
    ) -> Result<u64, CallError> {
        loop {
            match self.call_once(asking, told).map_err(CallError::Lost)? {
                // The kernel had to handle something else first, or a signal that cannot be
                // blocked.
                again if RESTARTS.contains(&again) => {}
                error @ -4095..=-1 => {
                    return Err(CallError::Call(io::Error::from_raw_os_error(-(error as i32))));
                }
                answer => return Ok(answer.cast_unsigned()),
            }
        }
    }

    fn call_once(&mut self, asking: &dyn Fn(&mut Registers), told: OnStop<'_>) -> io::Result<i64> {
        Ok(self.detour(asking, Self::step, told)?.rax.cast_signed())
    }

    /// Runs the thread by `run`, with registers that `asking` sets, until it traps. Returns its
    /// registers at the trap, and restores its former registers.
    pub(super) fn detour(
        &mut self,
        asking: &dyn Fn(&mut Registers),
        run: Run,
        told: OnStop<'_>,
    ) -> io::Result<Registers> {
        if self.gone {
            return Err(ended());
        }
        let before = self.registers_to_return_to()?;
        // Between two calls it stays stopped, unless a signal kills it, as the `execve` of another
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
            // The program that may have the thread's number by now must not be changed.
            return Err(ended());
        }
        let after = self.registers();
        self.set_registers(&before)?;
        if let Some(own) = trapped? {
            self.give_back(&own)?;
        }
        after
    }

    /// Delivers the program's own `SIGTRAP` to it again. The program blocks the signal as a rule,
    /// so the kernel queues it. The thread has to be in the stop of its trap.
    fn give_back(&mut self, own: &Information) -> io::Result<()> {
        self.set_information(own)?;
        self.interrupt()?;
        self.resume(libc::SIGTRAP)?;
        self.settle(Instant::now() + TASK_TIMEOUT).map(drop)
    }

    /// Runs the thread by `run` until it traps. Returns the program's own `SIGTRAP` if one was
    /// pending: the thread has stopped for that signal first, and it is no longer queued.
    fn run_telling(&mut self, run: Run, told: OnStop<'_>) -> io::Result<Option<Information>> {
        let mask = self.signal_mask()?;
        self.set_signal_mask(STEPPING)?;
        let (mut stop_signal, mut own) = (None, None);
        let trapped = loop {
            match run(self) {
                Ok(Stop::Signal(libc::SIGTRAP)) => match self.information() {
                    // Another process has sent it (sigaction(2), `si_code`).
                    Ok(information) if information.code() <= 0 => own = Some(information),
                    Ok(_) => break Ok(()),
                    Err(error) => break Err(error),
                },
                Ok(Stop::Ended) => return Err(ended()),
                // Another thread has called `execve`: this one has ended.
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
            // Sent again, so that it stops the process when the thread continues. SAFETY: a signal
            // to a thread that is traced, so that it still has its number.
            unsafe { libc::syscall(libc::SYS_tkill, self.thread, signal) };
        }
        trapped.map(|()| own)
    }
}

/// Returns the error for a thread that has ended.
fn ended() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

fn ask(registers: &mut Registers, instruction: u64, number: i64, arguments: [u64; 6]) {
    registers.rip = instruction;
    registers.rax = number.cast_unsigned();
    // No call was interrupted: the kernel must not step back to repeat one.
    registers.orig_rax = u64::MAX;
    set_arguments(registers, arguments);
}
