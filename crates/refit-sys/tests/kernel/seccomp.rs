//! System calls of a thread are told, answered, refused and let through as its filter says.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use refit_sys::memory::SharedMapping;
use refit_sys::pidfd::Pidfd;
use refit_sys::seccomp::{
    self, Action, AddFd, Answer, Condition, Filter, Install, Listener, Notification, Program,
};

use crate::common::{Child, PAGE_SIZE, offered, until};

/// A call that no library makes, and that takes whatever it is given.
const CALL: i64 = libc::SYS_acct;

fn call(arguments: [u64; 3]) -> Result<i64, i32> {
    let [one, two, three] = arguments;
    // SAFETY: the filter of the thread that calls this does not let it through.
    let answer = unsafe { libc::syscall(CALL, one, two, three) };
    if answer < 0 {
        Err(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        Ok(answer)
    }
}

fn install(program: &Program, how: Install) -> io::Result<Option<OwnedFd>> {
    seccomp::gain_no_privileges()?;
    // SAFETY: the filters here concern `CALL`, and calls that the tests make themselves.
    unsafe { seccomp::install(program, how) }
}

fn filter(rule: Action) -> Program {
    Filter::new(Action::Allow).rule(CALL, rule).assemble().expect("short")
}

/// A thread whose calls are told, and the listener; `None` if this host does not let us.
fn listen<T: Send + 'static>(
    how: Install,
    program: Program,
    what: impl FnOnce() -> T + Send + 'static,
) -> Option<(Listener, JoinHandle<T>)> {
    let (send, receive) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _ = send.send(install(&program, how | Install::LISTENER));
        let _ = ended.recv();
        what()
    });
    let installed = offered("seccomp listener", receive.recv().expect("it tells"));
    let _ = end.send(());
    let fd = installed?.expect("one was asked for");
    Some((Listener::new(fd).expect("sizes that are known"), thread))
}

fn next(from: &Listener) -> Notification {
    loop {
        match from.receive() {
            Ok(Some(call)) => return call,
            Ok(None) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}"),
        }
    }
}

#[test]
fn a_call_is_told_and_returns_what_is_answered() {
    let caller = || (refit_sys::thread::id(), call([1, 2, u64::MAX]), call([4; 3]));
    let Some((listener, caller)) = listen(Install::empty(), filter(Action::Notify), caller) else {
        return;
    };
    match listener.wake_on_same_processor() {
        Ok(()) => {}
        // Before 6.6.
        Err(error) => assert_ne!(error.raw_os_error(), Some(libc::EBADF), "{error}"),
    }
    let first = next(&listener);
    assert_eq!(i64::from(first.number), CALL);
    assert_eq!(first.arguments[..3], [1, 2, u64::MAX]);
    assert!(first.instruction != 0 && listener.waits(first.id).expect("it answers"));
    assert!(listener.answer(first.id, Answer::Value(77)).expect("an answer"));
    let second = next(&listener);
    assert!(!listener.waits(first.id).expect("it answers"));
    assert!(!listener.answer(first.id, Answer::Value(1)).expect("too late"));
    assert!(listener.answer(second.id, Answer::Errno(libc::EDOM)).expect("an answer"));
    let (id, one, two) = caller.join().expect("it calls");
    assert_eq!((one, two), (Ok(77), Err(libc::EDOM)));
    assert_eq!((first.thread, second.thread), (id, id));
    // Nobody has the filter any more.
    let mut polled = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
    until("the end of the filter", || {
        rustix::event::poll(&mut polled, None).expect("it polls");
        polled[0].revents().contains(rustix::event::PollFlags::HUP)
    });
}

#[test]
fn a_call_may_be_made_after_all() {
    let program = Filter::new(Action::Allow).rule(libc::SYS_getppid, Action::Notify);
    // SAFETY: takes nothing.
    let caller = || unsafe { libc::syscall(libc::SYS_getppid) };
    let program = program.assemble().expect("short");
    let Some((listener, caller)) = listen(Install::WAIT_KILLABLE, program, caller) else { return };
    let call = next(&listener);
    assert!(listener.answer(call.id, Answer::Continue).expect("an answer"));
    let parent = i64::from(std::os::unix::process::parent_id());
    assert_eq!(caller.join().expect("it calls"), parent);
}

#[test]
fn rules_and_their_conditions_are_the_kernels() {
    let odd = Condition { argument: 0, mask: 1, value: 1 };
    let high = Condition { argument: 1, mask: u64::MAX, value: 1 << 40 };
    let far = Filter::new(Action::Allow)
        .rule_if(CALL, &[odd, high], Action::Errno(1000))
        .rule_if(CALL, &[high], Action::Errno(1001))
        .rule_if(CALL, &[odd], Action::Trace(1))
        .rule(CALL, Action::Errno(1002));
    // Far from it on both sides, so that there is a tree.
    let far = (400..440).fold(far, |far, number| {
        far.rule(3 * number, Action::Errno(1003)).rule(3 * number + 1, Action::Errno(1004))
    });
    let program = far.assemble().expect("short");
    let made = thread::spawn(move || {
        install(&program, Install::empty())?;
        // SAFETY: calls of no such number do nothing, and are refused.
        let unknown = |number| unsafe {
            libc::syscall(number);
            io::Error::last_os_error().raw_os_error()
        };
        let made = [[3, 1 << 40], [2, 1 << 40], [1, 0], [2, 1], [2, (1 << 40) | 1]];
        io::Result::Ok((
            made.map(|[one, two]| call([one, two, 0])),
            [1200, 1201, 1202, 1319].map(unknown),
        ))
    });
    let Some((made, unknown)) = offered("seccomp", made.join().expect("it calls")) else { return };
    assert_eq!(made, [Err(1000), Err(1001), Err(libc::ENOSYS), Err(1002), Err(1002)]);
    assert_eq!(unknown, [Some(1003), Some(1004), Some(libc::ENOSYS), Some(libc::ENOSYS)]);
}

#[test]
fn a_caller_is_given_a_descriptor_as_its_answer() {
    let file = SharedMapping::new(c"refit-test", PAGE_SIZE).expect("a memfd");
    let inode = |fd: i32| std::fs::metadata(format!("/proc/self/fd/{fd}")).map(|_| fd);
    let caller = move || {
        let given = call([0; 3]);
        let number = i32::try_from(given.unwrap_or(-1)).unwrap_or(-1);
        (given, inode(number).is_ok(), call([1; 3]))
    };
    let Some((listener, caller)) = listen(Install::empty(), filter(Action::Notify), caller) else {
        return;
    };
    let add = AddFd { fd: file.as_fd(), number: None, close_on_exec: true, answer: true };
    let call = next(&listener);
    let number = listener.add_fd(call.id, add).expect("5.14").expect("it waits");
    let call = next(&listener);
    // The thread is one of this process: the descriptor can be looked at, and closed, here.
    let same = std::fs::read_link(format!("/proc/self/fd/{number}")).expect("it is open");
    assert!(same.to_string_lossy().contains("refit-test"), "{same:?}");
    let over = AddFd { number: Some(number), answer: false, ..add };
    assert_eq!(listener.add_fd(call.id, over).expect("5.9"), Some(number));
    assert!(listener.answer(call.id, Answer::Value(0)).expect("an answer"));
    let (given, there, last) = caller.join().expect("it calls");
    assert_eq!((given, there, last), (Ok(i64::from(number)), true, Ok(0)));
    // SAFETY: nobody owns it.
    assert_eq!(unsafe { libc::close(number.cast_signed()) }, 0);
    let added = listener.add_fd(call.id, add).expect("too late");
    assert_eq!(added, None);
}

/// The child's listener comes here as that of a program that refit starts does: by its number.
#[test]
fn all_threads_of_another_process_are_told_until_it_is_killed() {
    let shared = SharedMapping::new(c"refit-test", PAGE_SIZE).expect("a memfd");
    let child = Child::of(|| {
        let started = std::sync::Arc::new(std::sync::Barrier::new(2));
        let other = started.clone();
        let thread = thread::spawn(move || {
            other.wait();
            call([5, 0, 0]).is_ok_and(|answer| answer == 50)
        });
        let how = Install::ALL_THREADS | Install::LISTENER;
        let fd = match install(&filter(Action::Notify), how) {
            Ok(Some(fd)) => fd,
            _ => return 2,
        };
        shared.write_at(0, &(fd.as_raw_fd() + 1).to_ne_bytes());
        started.wait();
        let answered = thread.join().is_ok_and(|answered| answered);
        i32::from(!answered || call([6, 0, 0]).is_ok())
    });
    let mut word = [0; 4];
    until("the child's listener", || {
        shared.read_at(0, &mut word);
        word != [0; 4] || refit_sys::process::life(child.id()).is_none_or(|life| life.ended())
    });
    if word == [0; 4] {
        println!("skipped: no seccomp listener in a child");
        return;
    }
    let theirs = (i32::from_ne_bytes(word) - 1).cast_unsigned();
    let process = Pidfd::open(child.id()).expect("a child");
    let Some(fd) = offered("pidfd_getfd", process.get_fd(theirs)) else { return };
    let listener = Listener::new(fd).expect("sizes that are known");
    let first = next(&listener);
    assert_eq!(first.arguments[0], 5);
    assert_ne!(first.thread, child.id());
    assert!(listener.answer(first.id, Answer::Value(50)).expect("an answer"));
    let second = next(&listener);
    assert_eq!((second.arguments[0], second.thread), (6, child.id()));
    process.signal(libc::SIGKILL).expect("a child");
    assert_eq!(child.wait(), -libc::SIGKILL);
    assert!(!listener.waits(second.id).expect("it answers"));
    assert!(!listener.answer(second.id, Answer::Value(0)).expect("too late"));
}

#[test]
fn what_is_to_be_movable_has_no_restartable_sequences_and_a_fixed_layout() {
    let child = Child::of(|| {
        if refit_sys::launch::be_movable(false).is_err() {
            return 2;
        }
        let none = std::ptr::null::<u8>();
        // SAFETY: no area is told, so that nothing could be registered; asking for the personality
        // changes nothing.
        let (rseq, personality) = unsafe {
            (libc::syscall(libc::SYS_rseq, none, 32, 0, 0), libc::personality(0xffff_ffff))
        };
        let refused = io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS);
        let fixed = personality & libc::ADDR_NO_RANDOMIZE != 0;
        // SAFETY: the kernel has no such operation. The tracer that is to be told is not there.
        let request = unsafe { libc::prctl(refit_sys::launch::REQUEST as i32, 1, 1, 0, 0) };
        let unheard = io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS);
        i32::from(!(rseq == -1 && refused && fixed && request == -1 && unheard))
    });
    match child.wait() {
        2 => println!("skipped: no filters in a child"),
        code => assert_eq!(code, 0),
    }
}

#[test]
fn a_filter_is_not_installed_where_it_may_not_be() {
    let program = filter(Action::Notify);
    let refused = thread::spawn(move || {
        let first = install(&program, Install::LISTENER);
        let second = install(&program, Install::LISTENER);
        (first, second)
    });
    let (first, second) = refused.join().expect("it tries");
    let Some(first) = offered("seccomp listener", first) else { return };
    assert!(first.is_some());
    let refused = second.expect_err("it has a listener").raw_os_error();
    assert_eq!(refused, Some(libc::EBUSY));
}
