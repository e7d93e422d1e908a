//! Starting programs: stopped before the first instruction of its own, with its libraries mapped ([`at_entry`]); as a child of
//! nobody here ([`apart`]); in the place of this process ([`become_program`]), bound to nothing of the running kernel ([`be_movable`]).

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::foreign::Memory;
use crate::seccomp::{self, Action, Condition, Filter, Install};
use crate::trace::{Options, Stop, Tracee};

/// How long the loader may take: it reads files, over a network perhaps.
const LOADING: Duration = Duration::from_secs(60);
/// What personality(2) is given that is to say what is set.
const PERSONALITY_IS: libc::c_ulong = 0xffff_ffff;
/// The operation of `prctl` by which a program that is movable asks refit for something. The kernel has none with this number: where nobody
/// follows the program, it fails.
pub const REQUEST: u64 = 0x7265_6669;
/// The [`REQUEST`] to run at the instance that is named.
pub const MOVE: u64 = 1;
/// The [`REQUEST`] to be told where one runs.
pub const INSTANCE: u64 = 2;
/// What the filter of a program that is movable says of it.
pub const REQUESTS: u16 = 0x7271;
/// What it says of one that asks which processors a thread may use.
pub const PROCESSORS: u16 = 0x7063;
/// `int3`.
const BREAKPOINT: u8 = 0xcc;

/// Starts a program; it stands still (as after `SIGSTOP`) where the loader has handed over to it: libraries are mapped, and no
/// instruction of it has run, but initialisers of libraries. `SIGCONT` lets it go on.
///
/// # Errors
/// It cannot be started; it is not there or not x86-64; it ended before it got there.
pub fn at_entry(command: &mut Command) -> io::Result<Child> {
    started(command, run_to_entry).map(|(child, ())| child)
}

/// Starts a program, which stands before the first instruction of all, the loader's or its own, and is traced by the calling
/// thread, with events as the options say. It does not outlive that thread.
///
/// # Errors
/// It cannot be started; it is not there; it was killed before it got there.
pub fn at_exec(command: &mut Command, options: Options) -> io::Result<(Child, Tracee)> {
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe system calls are made, without memory.
    unsafe {
        command.pre_exec(move || {
            // One that asks to be traced when this process has ended would stand for ever, traced by whoever inherits it.
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

/// Starts a program that asks to be traced, and does something about it in its first stop, which is that of the exec.
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
    let deadline = Instant::now() + LOADING;
    let mut held = Tracee::of(child.id());
    let result = match held.look(deadline) {
        Ok(Stop::Signal(libc::SIGTRAP)) => then(held, deadline),
        Ok(_) => Err(io::Error::other("it did not stop when it was started")),
        Err(error) => Err(error),
    };
    match result {
        Ok(made) => Ok((child, made)),
        Err(error) => {
            // What does not stand where it should is not what was asked for.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Who asks to be traced by itself can be neither interrupted nor told from a stop of its process: it is let go, stopped, traced
/// again as one wants it, and continued. All of that before it gets back from the kernel to its first instruction.
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
            // Ours, which nobody has to know of.
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
            return Err(io::Error::other(
                "it ended, or became another program, before it had begun",
            ));
        };
        let mut registers = held.registers()?;
        if registers.rip == entry + 1 {
            registers.rip = entry;
            held.set_registers(&registers)?;
            break;
        }
        // Somebody has sent it something: it is its own.
        signal = came;
    }
    memory.write(entry, &before)?;
    held.let_go_stopped()
}

/// Where the program itself begins, as the kernel told the loader.
fn entry(id: u32) -> io::Result<u64> {
    let found = crate::auxv::of(id)?.into_iter().find(|&(kind, _)| kind == libc::AT_ENTRY);
    found.map(|(_, value)| value).ok_or_else(|| io::Error::other("it tells no entry point"))
}

/// Starts a program in a session of its own that is no child of this process, so that this process can become another one which
/// has no child that it did not make. It has pipes for standard input and output, standard error as it is here, and no other
/// descriptors. Returns the other ends.
///
/// # Errors
/// It cannot be started.
pub fn apart(command: &mut Command) -> io::Result<(ChildStdin, ChildStdout)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // SAFETY: between fork and exec only async-signal-safe system calls are made; the process in between ends without
    // running anything of this one.
    unsafe {
        command.pre_exec(|| {
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => {}
                _ => libc::_exit(0),
            }
            // Descriptors that the program is to have, but nobody else: a pipe would not end with it.
            let others = libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as i32);
            if others != 0 || libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    // That in between.
    child.wait()?;
    pipes.ok_or_else(|| io::Error::other("it has no pipes"))
}

/// Lets this process, and what it becomes, be traced by another one of the same user, where the host restricts that to ancestors
/// (Yama, `ptrace_scope` 1).
pub fn allow_tracer(process: u32) {
    // SAFETY: an option of this process, without memory. Where there is no Yama nobody has to be allowed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(process), 0, 0, 0) };
}

/// Asks refit for something, for the calling thread; what that is told.
///
/// # Errors
/// `EINVAL`, `ENOSYS`: it does not run under refit. What refit says.
pub fn request(what: u64, of: u64) -> io::Result<u32> {
    // SAFETY: the kernel has no such operation, and what refit does changes nothing that a program sees.
    let told = unsafe { libc::prctl(REQUEST as i32, what, of, 0, 0) };
    u32::try_from(told).map_err(|_| io::Error::last_os_error())
}

/// Has what this process becomes, and all that it starts, hold as little as can be of the kernel that runs it: memory has the same layout
/// each time (`ADDR_NO_RANDOMIZE`), and there are no restartable sequences (`rseq` fails with `ENOSYS`, by a filter). Where this
/// process is not privileged (`CAP_SYS_ADMIN`), it gains no privileges by `exec` any more. Who traces it is told of its [`REQUEST`]s, and, if
/// that is to be `looked` at, of each time that it asks for the processors that a thread may use.
///
/// # Errors
/// The kernel has no filters; a sandbox forbids them, or to fix the layout.
pub fn be_movable(looked: bool) -> io::Result<()> {
    let none = Action::Errno(libc::ENOSYS as u16);
    // The kernel looks at its low half only.
    let request = Condition { argument: 0, mask: u64::from(u32::MAX), value: REQUEST };
    let filter = Filter::new(Action::Allow).foreign(Action::Allow).rule(libc::SYS_rseq, none);
    let filter = seccomp::managed::rules(filter);
    let filter = filter.rule_if(libc::SYS_prctl, &[request], Action::Trace(REQUESTS));
    let look = if looked { Action::Trace(PROCESSORS) } else { Action::Allow };
    let filter = filter.rule(libc::SYS_sched_getaffinity, look).assemble()?;
    // SAFETY: calls that are refused fail as on a kernel that does not have them, before they have done anything.
    let install = || unsafe { seccomp::install(&filter, Install::SPECULATION) };
    match install() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            seccomp::gain_no_privileges()?;
            install()?;
        }
        installed => drop(installed?),
    }
    // SAFETY: a setting of this process that counts from the next exec on; no memory is passed.
    let set = unsafe {
        let now = libc::personality(PERSONALITY_IS);
        libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong)
    };
    if set == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Becomes a program, which is looked for as a shell does: same process, descriptors, directory, environment, blocked and ignored
/// signals (but `SIGPIPE`, which Rust's start ignores, has its default). Returns only if it cannot.
pub fn become_program(program: &OsStr, arguments: &[OsString]) -> io::Error {
    let text = |one: &OsStr| CString::new(one.as_bytes());
    let all = std::iter::once(program).chain(arguments.iter().map(OsString::as_os_str)).map(text);
    let Ok(all) = all.collect::<Result<Vec<_>, _>>() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "an argument holds a zero byte");
    };
    let pointers: Vec<_> = all.iter().map(|one| one.as_ptr()).chain([std::ptr::null()]).collect();
    // SAFETY: the pointers are those of texts with a zero at the end that live as long, and a null follows the last.
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
        // SAFETY: a signal to a child of ours that has not been waited for.
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
