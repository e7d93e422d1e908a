//! Starting programs: as a child that is stopped at its entry point, its libraries mapped
//! ([`at_entry`]), or before its first instruction ([`at_exec`]); detached from this process
//! ([`apart`]); in the place of this process ([`become_program`]), with few ties to the running
//! kernel ([`be_movable`]).

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::foreign::Memory;
use crate::seccomp::{self, Action, Condition, Filter, Install};
use crate::trace::{Options, Stop, Tracee};

/// The time that the loader may take; it reads files, possibly over a network.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The argument with which personality(2) changes nothing and returns the current persona.
const PERSONALITY_IS: libc::c_ulong = 0xffff_ffff;
/// The operation of `prctl` by which a movable program makes a request to refit. The kernel has no
/// operation with this number, so it fails where no supervisor handles it.
pub const REQUEST: u64 = 0x7265_6669;
/// The [`REQUEST`] to run at the instance that the argument names.
pub const MOVE: u64 = 1;
/// The [`REQUEST`] for the instance at which the caller runs.
pub const INSTANCE: u64 = 2;
/// The message by which a movable program's filter reports a [`REQUEST`].
pub const REQUESTS: u16 = 0x7271;
/// The message by which the filter reports a call that asks for the processors that a thread may
/// use.
pub const PROCESSORS: u16 = 0x7063;
/// The instruction `int3`.
const BREAKPOINT: u8 = 0xcc;

/// The error that a program was started but cannot be used by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// Its first stop is not that of its `exec`.
    #[error("it did not stop when it was started")]
    NotStopped,
    /// The program has not reached its entry point.
    #[error("it ended, or executed another program, before its first instruction")]
    NotBegun,
    /// The kernel gives the loader no `AT_ENTRY`.
    #[error("it has no entry point")]
    NoEntryPoint,
    /// Its standard input or output is not a pipe.
    #[error("it has no pipes")]
    NoPipes,
}

impl From<LaunchError> for io::Error {
    fn from(error: LaunchError) -> Self {
        io::Error::other(error)
    }
}

/// Starts a program and stops it, as by `SIGSTOP`, where the loader hands over to it: its libraries
/// are mapped, and only initialisers of libraries have run. `SIGCONT` resumes it.
///
/// # Errors
/// The program cannot be started, does not exist, or is not x86-64; or it ended before it got
/// there.
pub fn at_entry(command: &mut Command) -> io::Result<Child> {
    started(command, run_to_entry).map(|(child, ())| child)
}

/// Starts a program and stops it before its very first instruction, which is the loader's or its
/// own. The calling thread traces it, with `options`. The program is killed when that thread ends.
///
/// # Errors
/// The program cannot be started or does not exist; or it was killed before it got there.
pub fn at_exec(command: &mut Command, options: Options) -> io::Result<(Child, Tracee)> {
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe system calls are made, without memory.
    unsafe {
        command.pre_exec(move || {
            // A process that asked to be traced after this one has ended would stay stopped for
            // ever, traced by the process that inherits it.
            let dies = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
            match (dies, libc::getppid() as u32 == parent) {
                (0, true) => Ok(()),
                (0, false) => libc::_exit(1),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
    started(command, |held, deadline| seize_anew(held, options, deadline))
}

/// Starts a program that asks to be traced, and calls `then` in its first stop, which is that of
/// the exec.
fn started<T>(
    command: &mut Command,
    then: impl FnOnce(Tracee, Instant) -> io::Result<T>,
) -> io::Result<(Child, T)> {
    // SAFETY: between fork and exec only an async-signal-safe system call is made.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let mut child = command.spawn()?;
    let deadline = Instant::now() + LOAD_TIMEOUT;
    let mut held = Tracee::of(child.id());
    let result = match held.look(deadline) {
        Ok(Stop::Signal(libc::SIGTRAP)) => then(held, deadline),
        Ok(_) => Err(LaunchError::NotStopped.into()),
        Err(error) => Err(error),
    };
    match result {
        Ok(made) => Ok((child, made)),
        Err(error) => {
            // A program that is not stopped where it should be cannot be used by the caller.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Replaces `PTRACE_TRACEME` by `PTRACE_SEIZE`. A thread that asked to be traced by itself can be
/// neither interrupted nor distinguished from one whose process is stopped. So it is detached in a
/// stop, seized with the wanted options, and continued, all before it returns from the kernel to
/// its first instruction.
fn seize_anew(held: Tracee, options: Options, deadline: Instant) -> io::Result<Tracee> {
    let id = held.thread();
    held.let_go_stopped()?;
    let mut held = Tracee::seize_with(id, options)?;
    held.settle(deadline)?;
    // SAFETY: a signal to a child that has not been waited for.
    if unsafe { libc::kill(id.cast_signed(), libc::SIGCONT) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut signal = 0;
    loop {
        held.resume(signal)?;
        signal = match held.look(deadline)? {
            // This is the `SIGCONT` sent above; it is not passed on.
            Stop::Signal(libc::SIGCONT) => break,
            Stop::Signal(other) => other,
            Stop::Event => 0,
            Stop::Exec | Stop::Ended => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
        };
    }
    held.interrupt()?;
    held.resume(0)?;
    held.settle(deadline)?;
    Ok(held)
}

fn run_to_entry(mut held: Tracee, deadline: Instant) -> io::Result<()> {
    let id = held.thread();
    let memory = Memory::of(id)?;
    let entry = entry(id)?;
    let mut before = [0];
    memory.read(entry, &mut before)?;
    memory.write(entry, &[BREAKPOINT])?;
    let mut signal = 0;
    loop {
        held.resume(signal)?;
        let Stop::Signal(came) = held.look(deadline)? else {
            return Err(LaunchError::NotBegun.into());
        };
        let mut registers = held.registers()?;
        if registers.rip == entry + 1 {
            registers.rip = entry;
            held.set_registers(&registers)?;
            break;
        }
        // A signal from elsewhere: deliver it to the program.
        signal = came;
    }
    memory.write(entry, &before)?;
    held.let_go_stopped()
}

/// Returns the program's entry point, as the kernel passes it to the loader.
fn entry(id: u32) -> io::Result<u64> {
    let found = crate::auxv::of(id)?.into_iter().find(|&(kind, _)| kind == libc::AT_ENTRY);
    Ok(found.map(|(_, value)| value).ok_or(LaunchError::NoEntryPoint)?)
}

/// Starts a program in a session of its own that is not a child of this process, so that this
/// process can `exec` another program which has no children that it did not make. The program has
/// pipes for standard input and output, this process's standard error, and no other descriptors.
/// Returns the other ends of the pipes.
///
/// # Errors
/// The program cannot be started.
pub fn apart(command: &mut Command) -> io::Result<(ChildStdin, ChildStdout)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // SAFETY: between fork and exec only async-signal-safe system calls are made; the intermediate
    // process ends without running any code of this one.
    unsafe {
        command.pre_exec(|| {
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => {}
                _ => libc::_exit(0),
            }
            // These descriptors are for the program alone: if others held them too, a pipe would
            // not end with it.
            let others = libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as i32);
            if others != 0 || libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    // Reaps the intermediate process.
    child.wait()?;
    Ok(pipes.ok_or(LaunchError::NoPipes)?)
}

/// Allows another process of the same user to trace this one, and what it becomes by `exec`, where
/// the host restricts tracing to ancestors (Yama, `ptrace_scope` 1).
pub fn allow_tracer(process: u32) {
    // SAFETY: an option of this process, without memory. Without Yama the call fails, and is not
    // needed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(process), 0, 0, 0) };
}

/// Makes a request to refit for the calling thread. Returns the answer.
///
/// # Errors
/// `EINVAL`, `ENOSYS`: the program does not run under refit. Any other error is refit's answer.
pub fn request(what: u64, of: u64) -> io::Result<u32> {
    // SAFETY: the kernel has no such operation, and refit's answer changes nothing that the
    // compiler relies on.
    let result = unsafe { libc::prctl(REQUEST as i32, what, of, 0, 0) };
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Makes the program that this process becomes, and all of its descendants, depend as little as
/// possible on the kernel that runs them: memory has the same layout each time
/// (`ADDR_NO_RANDOMIZE`), and there are no restartable sequences (a filter makes `rseq` fail with
/// `ENOSYS`). If this process is not privileged (`CAP_SYS_ADMIN`), it gains no privileges by `exec`
/// any more. The filter reports each [`REQUEST`] to the tracer and, if `looked` is set, each call
/// that asks for the processors that a thread may use.
///
/// # Errors
/// The kernel has no filters, or a sandbox forbids them or the fixed layout.
pub fn be_movable(looked: bool) -> io::Result<()> {
    let none = Action::Errno(libc::ENOSYS as u16);
    // The kernel looks at the low half of this argument only.
    let request = Condition { argument: 0, mask: u64::from(u32::MAX), value: REQUEST };
    let filter = Filter::new(Action::Allow).foreign(Action::Allow).rule(libc::SYS_rseq, none);
    let filter = seccomp::managed::rules(filter);
    let filter = filter.rule_if(libc::SYS_prctl, &[request], Action::Trace(REQUESTS));
    let look = if looked { Action::Trace(PROCESSORS) } else { Action::Allow };
    let filter = filter.rule(libc::SYS_sched_getaffinity, look).assemble()?;
    // SAFETY: a refused call fails before it has any effect, as on a kernel that lacks it.
    let install = || unsafe { seccomp::install(&filter, Install::SPECULATION) };
    match install() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            seccomp::gain_no_privileges()?;
            install()?;
        }
        installed => drop(installed?),
    }
    // SAFETY: a setting of this process that takes effect at the next exec; no memory is passed.
    let set = unsafe {
        let now = libc::personality(PERSONALITY_IS);
        libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong)
    };
    if set == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Executes a program, which is searched for as a shell does, in this process: with its
/// descriptors, working directory, environment, and blocked and ignored signals, but `SIGPIPE`,
/// which Rust's startup ignores, reset to its default. Returns only if that fails.
pub fn become_program(program: &OsStr, arguments: &[OsString]) -> io::Error {
    let text = |one: &OsStr| CString::new(one.as_bytes());
    let all = std::iter::once(program).chain(arguments.iter().map(OsString::as_os_str)).map(text);
    let Ok(all) = all.collect::<Result<Vec<_>, _>>() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "an argument holds a zero byte");
    };
    let pointers: Vec<_> = all.iter().map(|one| one.as_ptr()).chain([std::ptr::null()]).collect();
    // SAFETY: the pointers are those of NUL-terminated strings that outlive the call, followed by a
    // null.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::execvp(pointers[0], pointers.as_ptr());
    }
    io::Error::last_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_stands_at_its_entry_with_its_libraries() {
        let mut command = Command::new("/bin/echo");
        command.arg("hello").stdout(std::process::Stdio::piped());
        let child = at_entry(&mut command).expect("started");
        let maps = crate::maps::of(child.id()).expect("its mappings");
        let named =
            |part: &str| maps.iter().any(|mapping| mapping.name.to_string_lossy().contains(part));
        assert!(named("libc"), "{maps:?}");
        // SAFETY: a signal to a child of this process that has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id().cast_signed(), libc::SIGCONT) }, 0);
        let output = child.wait_with_output().expect("its end");
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"hello\n"[..]));
    }

    #[test]
    fn what_is_not_there_is_not_started() {
        let error = at_entry(&mut Command::new("/no/such/program")).expect_err("not there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
