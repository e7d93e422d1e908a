//! Tests of tracing: traced threads and followed programs report their actions, and their whole
//! state can be read and set.

use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use refit_sys::auxv::{self, OnStack};
use refit_sys::foreign::Memory;
use refit_sys::launch;
use refit_sys::process;
use refit_sys::seccomp::{self, Action, Filter, Install};
use refit_sys::status::Status;
use refit_sys::trace::{
    self, CallError, Event, Options, Stop, SystemCall, Tracee, batch, find_syscall,
};

use crate::common::{Child, LONG, idle, offered, until};

/// Attaches to a child and stops it; `None` where that is not permitted.
fn held(child: &Child, options: Options) -> Option<Tracee> {
    let mut held = offered("ptrace", Tracee::seize_with(child.id(), options))?;
    held.interrupt().expect("it is there");
    assert_eq!(held.settle(Instant::now() + LONG).expect("it stops"), Stop::Event);
    Some(held)
}

/// Returns the next event of a followed tracee.
fn next(of: &Tracee) -> Event {
    let (thread, event) = trace::next_of(of.thread(), true).expect("traced").expect("waited for");
    assert_eq!(thread, of.thread());
    event
}

#[test]
fn the_extended_state_goes_in_and_out_whatever_its_size() {
    let child = idle();
    let Some(held) = held(&child, Options::empty()) else { return };
    let mut state = match held.extended_state() {
        Ok(state) => state,
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
            println!("skipped: this processor has no extended state");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    // At least the legacy region and the header of XSAVE.
    assert!(state.len() >= 576, "{}", state.len());
    // The first vector register, and the bit that marks it as in use.
    state[160..176].copy_from_slice(b"sixteen bytes of");
    state[512] |= 2;
    held.set_extended_state(&state).expect("it fits");
    assert_eq!(held.extended_state().expect("it is stopped")[160..176], *b"sixteen bytes of");
    assert!(held.set_extended_state(&state[..100]).is_err(), "too short");
    held.let_go().expect("it goes on");
}

/// After the difference is set, all state that a program can see equals the other state.
#[test]
fn what_differs_of_the_extended_state_is_set() {
    let child = idle();
    let Some(held) = held(&child, Options::empty()) else { return };
    let Ok(begin) = held.extended_state() else {
        println!("skipped: this processor has no extended state");
        return;
    };
    // x87 and SSE: control word, a register of each, MXCSR.
    let mut legacy = begin.clone();
    legacy[..2].copy_from_slice(&[0x7f, 0x02]);
    legacy[24..28].copy_from_slice(&[0x80, 0x7f, 0, 0]);
    legacy[32..42].fill(0x51);
    legacy[160..176].fill(0x52);
    legacy[512] |= 3;
    let mut states = vec![begin.clone(), legacy.clone()];
    // The upper half of the vector registers, if there are any.
    if begin.len() >= 576 + 256 {
        for like in [&begin, &legacy] {
            let mut upper = like.clone();
            upper[576..592].fill(0x53);
            upper[512] |= 4;
            states.push(upper);
        }
    }
    let seen = |state: &[u8]| (state[..464].to_vec(), state[576..].to_vec());
    for from in &states {
        for to in &states {
            held.set_extended_state(to).expect("it fits");
            let to = held.extended_state().expect("it is stopped");
            held.set_extended_state(from).expect("it fits");
            let has = held.extended_state().expect("it is stopped");
            held.set_extended_state_but(&to, &has).expect("it fits");
            let now = held.extended_state().expect("it is stopped");
            assert_eq!(seen(&now), seen(&to));
        }
    }
    held.let_go().expect("it goes on");
}

#[test]
fn a_signal_tells_who_sent_it_and_can_be_changed() {
    let child = idle();
    let Some(held) = held(&child, Options::empty()) else { return };
    held.resume(0).expect("it is there");
    child.signal(libc::SIGUSR1);
    assert_eq!(next(&held), Event::Signal(libc::SIGUSR1));
    let first = held.information().expect("a signal");
    assert_eq!((first.signal(), first.sender()), (libc::SIGUSR1, Some(std::process::id())));
    assert_eq!((first.code(), first.address()), (libc::SI_USER, None));
    held.resume(0).expect("it is there");
    child.signal(libc::SIGTERM);
    assert_eq!(next(&held), Event::Signal(libc::SIGTERM));
    held.set_information(&first).expect("a signal");
    assert_eq!(held.information().expect("a signal").signal(), libc::SIGUSR1);
    // The signal number at the resume counts, and the information must fit it.
    held.resume(libc::SIGUSR1).expect("it is there");
    assert_eq!(next(&held), Event::Killed(libc::SIGUSR1));
    std::mem::forget(child);
}

#[test]
fn a_stopped_process_is_left_stopped_until_it_is_continued() {
    let child = idle();
    let Some(held) = held(&child, Options::empty()) else { return };
    held.resume(0).expect("it is there");
    child.signal(libc::SIGSTOP);
    assert_eq!(next(&held), Event::Signal(libc::SIGSTOP));
    held.resume(libc::SIGSTOP).expect("it is there");
    assert_eq!(next(&held), Event::Stopped(libc::SIGSTOP));
    held.leave_stopped().expect("its process is stopped");
    assert_eq!(trace::next_of(child.id(), false).expect("traced"), None);
    child.signal(libc::SIGCONT);
    assert_eq!(next(&held), Event::Interrupted);
    held.resume(0).expect("it is there");
    assert_eq!(next(&held), Event::Signal(libc::SIGCONT));
    held.let_go().expect("it goes on");
}

#[test]
fn system_calls_are_told_when_they_are_entered_and_left() {
    let child = Child::of(|| {
        loop {
            // SAFETY: refused, or made without effect: no process is asked for.
            unsafe { libc::syscall(libc::SYS_close, -1_i64, 7_i64) };
        }
    });
    let Some(held) = held(&child, Options::SYSTEM_CALL) else { return };
    let calls = || -> io::Result<(SystemCall, SystemCall)> {
        loop {
            held.resume_to_system_call(0)?;
            assert_eq!(next(&held), Event::SystemCall);
            let entry = held.system_call()?;
            // The thread may have been interrupted within a call, whose exit is reported next, or
            // within what the C library does after a fork.
            let looked_for = libc::SYS_close as u64;
            if matches!(entry, SystemCall::Entry { number, .. } if number == looked_for) {
                held.resume_to_system_call(0)?;
                assert_eq!(next(&held), Event::SystemCall);
                return Ok((entry, held.system_call()?));
            }
        }
    };
    let (entry, exit) = calls().expect("it is traced");
    let SystemCall::Entry { number, arguments } = entry else { panic!("{entry:?}") };
    assert_eq!(i64::try_from(number), Ok(libc::SYS_close));
    assert_eq!((arguments[0] as i32, arguments[1]), (-1, 7));
    assert_eq!(exit, SystemCall::Exit { value: -i64::from(libc::EBADF), error: true });
    held.let_go().expect("it goes on");
}

/// A shell creates a child, which executes a program, and exits with 3: all events of both are
/// reported, in the order of each.
#[test]
fn a_program_is_followed_with_everything_it_starts() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "/bin/true; /bin/true & wait; exit 3"]).stdin(Stdio::null());
    let kinds = Options::FORK | Options::VFORK | Options::CLONE | Options::EXEC | Options::EXIT;
    let options = kinds | Options::VFORK_DONE | Options::EXIT_KILL;
    let Some((child, first)) = offered("ptrace", launch::at_exec(&mut command, options)) else {
        return;
    };
    let shell = child.id();
    first.resume(0).expect("it is there");
    first.leave();
    let (mut made, mut ran, mut seen, mut ended) = (vec![], vec![], vec![], vec![]);
    while !ended.contains(&(shell, 3)) {
        let (thread, event) = trace::next(true).expect("traced").expect("waited for");
        let mut signal = 0;
        match event {
            Event::Fork { child } | Event::Vfork { child } | Event::Clone { child } => {
                made.push(child);
            }
            Event::Exec { former } => {
                assert_eq!(former, thread);
                ran.push(thread);
            }
            Event::Exit { status } => seen.push((thread, status >> 8)),
            Event::Exited(code) => {
                ended.push((thread, code));
                continue;
            }
            Event::Signal(came) => signal = came,
            Event::Interrupted | Event::VforkDone => {}
            other => panic!("{thread}: {other:?}"),
        }
        let held = Tracee::of(thread);
        held.resume(signal).expect("it is there");
        held.leave();
    }
    made.sort_unstable();
    ran.sort_unstable();
    assert_eq!((made.len(), &made), (2, &ran), "{seen:?}");
    assert!(made.iter().all(|&one| ended.contains(&(one, 0))), "{ended:?}");
    seen.sort_unstable();
    ended.sort_unstable();
    assert_eq!(seen, ended);
    let none = trace::next(true).expect_err("all have ended");
    assert_eq!(none.raw_os_error(), Some(libc::ECHILD));
}

/// Starts a child that stops for each of its calls of `acct`, if it is traced, until one returns 5.
fn stops_for_calls() -> Child {
    Child::of(|| {
        let filter = Filter::new(Action::Allow).rule(libc::SYS_acct, Action::Trace(77));
        let Ok(program) = filter.assemble() else { return 3 };
        // SAFETY: the one call that the filter reports has no effect: there is no such path.
        let installed = seccomp::gain_no_privileges()
            .and_then(|()| unsafe { seccomp::install(&program, Install::empty()) });
        if installed.is_err() {
            return 2;
        }
        // SAFETY: as above.
        while unsafe { libc::syscall(libc::SYS_acct, 1_i64) } != 5 {}
        0
    })
}

/// Any stop cancels an interruption that is still to come, and this thread stops for each call.
#[test]
fn an_interruption_is_not_lost_among_stops_for_calls() {
    let child = stops_for_calls();
    let Some(mut held) = held(&child, Options::SECCOMP) else { return };
    for _ in 0..10 {
        held.resume(0).expect("it is stopped");
        let stops = || refit_sys::process::life(child.id()).is_some_and(|life| life.state == b't');
        until("it stops for its call", stops);
        // An interruption that had come right before that would not be pending any more.
        assert_eq!(held.settle(Instant::now() + LONG).expect("it stops"), Stop::Event);
    }
}

#[test]
fn a_filter_tells_its_tracer() {
    let child = stops_for_calls();
    let Some(held) = held(&child, Options::SECCOMP) else { return };
    held.resume(0).expect("it is there");
    assert_eq!(next(&held), Event::Seccomp { message: 77 });
    let SystemCall::Seccomp { number, arguments, message } = held.system_call().expect("5.3")
    else {
        panic!("{:?}", held.system_call());
    };
    assert_eq!((number, arguments[0], message), (libc::SYS_acct as u64, 1, 77));
    // The call is skipped, and its result is set here.
    let mut registers = held.registers().expect("it is stopped");
    (registers.orig_rax, registers.rax) = (u64::MAX, 5);
    held.set_registers(&registers).expect("it is stopped");
    held.resume(0).expect("it is there");
    assert_eq!(next(&held), Event::Exited(0));
    std::mem::forget(child);
}

/// The auxiliary vector is found where the program looks for it, and the program does not see
/// hidden entries: `LD_SHOW_AUXV` prints what the loader has found.
#[test]
fn what_a_program_is_told_at_its_start_can_be_changed() {
    let mut command = Command::new("/bin/true");
    command.env("LD_SHOW_AUXV", "1").stdout(Stdio::piped());
    let started = launch::at_exec(&mut command, Options::EXIT_KILL);
    let Some((mut child, held)) = offered("ptrace", started) else { return };
    let registers = held.registers().expect("it is stopped");
    let memory = Memory::of(child.id()).expect("a child");
    let mut vector = OnStack::find(&memory, registers.rsp).expect("a program that begins");
    let kept = auxv::of(child.id()).expect("a child");
    assert_eq!(vector.pairs, kept);
    // No instruction has run: the instruction pointer is at the entry of the loader, or of the
    // program itself.
    let base = vector.value(libc::AT_BASE).expect("it has a loader");
    let maps = refit_sys::maps::of(child.id()).expect("a child");
    let at = maps.iter().find(|one| one.range.contains(&registers.rip)).expect("mapped");
    let loader = maps.iter().find(|one| one.range.start == base).expect("mapped");
    assert_eq!((at.file, at.executable), (loader.file, true));
    let entry = memory.word(base + 24).expect("an ELF header");
    assert_eq!(registers.rip, base + entry);
    assert!(vector.hide(&memory, libc::AT_SYSINFO_EHDR).expect("a stack"));
    assert!(!vector.hide(&memory, libc::AT_SYSINFO_EHDR).expect("a stack"), "it is gone");
    assert_eq!(OnStack::find(&memory, registers.rsp).expect("as before"), vector);
    held.let_go().expect("it goes on");
    let mut output = String::new();
    io::Read::read_to_string(&mut child.stdout.take().expect("a pipe"), &mut output).expect("text");
    assert!(child.wait().expect("a child").success());
    assert!(output.contains("AT_ENTRY:") && !output.contains("AT_SYSINFO_EHDR"), "{output}");
}

/// Returns the address of a `syscall` instruction of a child.
fn instruction(child: &Child) -> u64 {
    let memory = Memory::of(child.id()).expect("a child");
    let mappings = refit_sys::maps::of(child.id()).expect("a child");
    find_syscall(&memory, &mappings).expect("it has one")
}

#[test]
fn a_held_thread_makes_calls_and_is_as_before() {
    let child = idle();
    let Some(mut held) = held(&child, Options::EXEC) else { return };
    let at = instruction(&child);
    let state = |held: &Tracee| {
        let registers = held.registers().expect("it stands");
        (format!("{registers:x?}"), held.signal_mask().expect("it stands"))
    };
    let before = state(&held);
    let id = held.call(at, libc::SYS_getpid, [0; 6]).expect("nothing refuses it");
    assert_eq!(id, u64::from(child.id()));
    let refused = held.call(at, libc::SYS_close, [u64::from(u32::MAX), 0, 0, 0, 0, 0]);
    match refused {
        Err(CallError::Call(error)) => assert_eq!(error.raw_os_error(), Some(libc::EBADF)),
        other => panic!("{other:?}"),
    }
    assert_eq!(state(&held), before);
    // A signal that arrives in the meantime and cannot be blocked is not lost.
    child.signal(libc::SIGSTOP);
    assert_eq!(held.call(at, libc::SYS_getpid, [0; 6]).expect("as above"), id);
    assert_eq!(held.call(at, libc::SYS_getpid, [0; 6]).expect("as above"), id);
    assert_eq!(state(&held), before);
    held.let_go().expect("it goes on");
    until("the stop", || process::life(child.id()).is_some_and(|life| life.state == b'T'));
    child.signal(libc::SIGCONT);
    child.signal(libc::SIGTERM);
    assert_eq!(child.wait(), -libc::SIGTERM);
}

/// A signal of the program itself that looks like the trap at the end of an injected call.
#[test]
fn a_trap_that_waits_is_not_taken_for_the_end_of_a_call() {
    let child = Child::of(|| {
        // SAFETY: a set on the stack, of a child that has one thread.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGTRAP);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    });
    let trap = 1 << (libc::SIGTRAP - 1);
    let set = |name: &str| {
        let status = Status::of(child.id()).expect("a child");
        status.set(name).expect("the kernel tells") & trap != 0
    };
    until("it blocks", || set("SigBlk"));
    child.signal(libc::SIGTRAP);
    let Some(mut held) = held(&child, Options::EXEC) else { return };
    let at = instruction(&child);
    let before = format!("{:x?}", held.registers().expect("it stands"));
    for _ in 0..3 {
        let id = held.call(at, libc::SYS_getpid, [0; 6]).expect("nothing refuses it");
        assert_eq!(id, u64::from(child.id()));
        assert!(set("ShdPnd") || set("SigPnd"), "it waits still");
        assert_eq!(format!("{:x?}", held.registers().expect("it stands")), before);
    }
    held.let_go().expect("it goes on");
    child.signal(libc::SIGKILL);
    assert_eq!(child.wait(), -libc::SIGKILL);
}

#[test]
fn a_held_thread_makes_calls_of_a_table_and_is_as_before() {
    use refit_sys::memory::PAGE_SIZE_U64;
    let child = idle();
    let Some(mut held) = held(&child, Options::EXEC) else { return };
    let memory = Memory::of(child.id()).expect("a child");
    let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let none = u64::MAX;
    let area =
        [0, 4 * PAGE_SIZE_U64, (libc::PROT_READ | libc::PROT_EXEC) as u64, anonymous, none, 0];
    let code = held.call(instruction(&child), libc::SYS_mmap, area).expect("it has room");
    memory.write(code, batch::code()).expect("it is mapped");
    let place = (code, code + PAGE_SIZE_U64);
    let state = |held: &Tracee| {
        let registers = held.registers().expect("it stands");
        (format!("{registers:x?}"), held.signal_mask().expect("it stands"))
    };
    let before = state(&held);
    let unmap =
        |page: u64| (libc::SYS_munmap, [code + page * PAGE_SIZE_U64, PAGE_SIZE_U64, 0, 0, 0, 0]);
    let refused = (libc::SYS_close, [u64::from(u32::MAX), 0, 0, 0, 0, 0]);
    let mut made = |calls: &[batch::Entry]| held.calls(&memory, place, calls).expect("it stands");
    assert!(matches!(made(&[]), (0, None)));
    // A signal that arrives in the meantime stays pending.
    child.signal(libc::SIGUSR1);
    match made(&[unmap(3), refused, unmap(2)]) {
        (1, Some(CallError::Call(error))) => assert_eq!(error.raw_os_error(), Some(libc::EBADF)),
        other => panic!("{other:?}"),
    }
    let mapped = |page: u64| {
        let maps = refit_sys::maps::of(child.id()).expect("a child");
        maps.iter().any(|one| one.range.contains(&(code + page * PAGE_SIZE_U64)))
    };
    assert_eq!([mapped(2), mapped(3)], [true, false]);
    let many: Vec<batch::Entry> = (0..40).map(|_| unmap(2)).collect();
    assert!(matches!(made(&many), (40, None)));
    assert_eq!((mapped(2), state(&held)), (false, before));
    child.signal(libc::SIGKILL);
    assert!(held.calls(&memory, place, &many).is_err());
    assert_eq!(child.wait(), -libc::SIGKILL);
}

#[test]
fn a_thread_that_is_killed_makes_no_calls() {
    let child = idle();
    let Some(mut held) = held(&child, Options::EXEC) else { return };
    let at = instruction(&child);
    child.signal(libc::SIGKILL);
    let lost = held.call(at, libc::SYS_getpid, [0; 6]);
    match lost {
        Err(CallError::Lost(error)) => assert_eq!(error.raw_os_error(), Some(libc::ESRCH)),
        other => panic!("{other:?}"),
    }
    let lost = held.clone_task(at, libc::CLONE_VM as u64, Options::EXEC, |_| {});
    assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");
}

/// The task begins at an instruction that ends it, so that none of the program's own code runs in
/// it.
#[test]
fn a_task_begins_where_it_is_told_to() {
    let child = idle();
    let Some(mut held) = held(&child, Options::EXIT_KILL) else { return };
    let at = instruction(&child);
    let flags = libc::CLONE_VM as u64;
    let exit = |registers: &mut trace::Registers| {
        (registers.rip, registers.rax, registers.rdi) = (at, libc::SYS_exit as u64, 7);
    };
    for options in [Options::EXIT_KILL, Options::EXIT_KILL | Options::CLONE | Options::EXIT] {
        held.set_options(options).expect("it stands");
        let made = held.clone_task(at, flags, options, exit);
        let (task, number) = made.expect("nothing refuses it");
        assert_eq!(u64::from(task.thread()), number);
        assert_eq!(task.signal_mask().expect("it stands") | (1 << 8 | 1 << 18), u64::MAX);
        assert!(process::same_memory(child.id(), task.thread()).unwrap_or(true));
        task.resume(0).expect("it stands");
        if options.contains(Options::EXIT) {
            assert_eq!(next(&task), Event::Exit { status: 7 << 8 });
            task.resume(0).expect("it stands");
        }
        assert_eq!(next(&task), Event::Exited(7));
        let how = (libc::__WALL | libc::WNOHANG) as u64;
        let waited = held.call(at, libc::SYS_wait4, [u64::MAX, 0, how, 0, 0, 0]);
        assert_eq!(waited.expect("a child"), number);
    }
    for refused in [libc::CLONE_VFORK, libc::CLONE_THREAD, libc::CLONE_UNTRACED, libc::SIGCHLD] {
        let made = held.clone_task(at, flags | refused as u64, Options::EXIT_KILL, exit);
        assert!(matches!(made, Err(CallError::Call(_))), "{made:?}");
    }
    // A shared handler table requires shared memory (clone(2)).
    let made = held.clone_task(at, libc::CLONE_SIGHAND as u64, Options::EXIT_KILL, exit);
    match made {
        Err(CallError::Call(error)) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL)),
        other => panic!("{other:?}"),
    }
    held.let_go().expect("it goes on");
}

#[test]
fn what_cannot_be_started_is_not_traced() {
    let error = launch::at_exec(&mut Command::new("/no/such/program"), Options::empty());
    assert_eq!(error.expect_err("not there").kind(), io::ErrorKind::NotFound);
    let nobody = Tracee::seize_with(u32::MAX >> 1, Options::empty()).expect_err("not there");
    assert_eq!(nobody.raw_os_error(), Some(libc::ESRCH));
}
