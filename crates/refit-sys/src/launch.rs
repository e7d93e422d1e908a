//! Starting a program and stopping it before the first instruction of its own, with its libraries mapped.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::trace::{Held, Options, Stop};

/// How long the loader may take: it reads files, over a network perhaps.
const LOADING: Duration = Duration::from_secs(60);
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
/// thread, with events as the options say.
///
/// # Errors
/// It cannot be started; it is not there; it was killed before it got there.
pub fn at_exec(command: &mut Command, options: Options) -> io::Result<(Child, Held)> {
    started(command, |held, deadline| seize_anew(held, options, deadline))
}

/// Starts a program that asks to be traced, and does something about it in its first stop, which is that of the exec.
fn started<T>(
    command: &mut Command,
    then: impl FnOnce(Held, Instant) -> io::Result<T>,
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
    let mut held = Held::of(child.id());
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
fn seize_anew(held: Held, options: Options, deadline: Instant) -> io::Result<Held> {
    let id = held.thread();
    held.let_go_stopped()?;
    let mut held = Held::seize_with(id, options)?;
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

fn run_to_entry(mut held: Held, deadline: Instant) -> io::Result<()> {
    let id = held.thread();
    let memory = File::options().read(true).write(true).open(format!("/proc/{id}/mem"))?;
    let entry = entry(id)?;
    let mut before = [0];
    memory.read_exact_at(&mut before, entry)?;
    memory.write_all_at(&[BREAKPOINT], entry)?;
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
    memory.write_all_at(&before, entry)?;
    held.let_go_stopped()
}

/// Where the program itself begins, as the kernel told the loader.
fn entry(id: u32) -> io::Result<u64> {
    let found = crate::auxv::of(id)?.into_iter().find(|&(kind, _)| kind == libc::AT_ENTRY);
    found.map(|(_, value)| value).ok_or_else(|| io::Error::other("it tells no entry point"))
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
