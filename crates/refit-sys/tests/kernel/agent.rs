//! Tests of agents: tasks of this process in other programs make calls there and leave nothing
//! behind.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

use refit_sys::agent::{AREA, Agent, Call, Ground, SIZE};
use refit_sys::foreign::Memory;
use refit_sys::maps;
use refit_sys::memory::SharedMapping;
use refit_sys::pidfd::Pidfd;
use refit_sys::process;
use refit_sys::trace::{self, CallError, Event, Options, Tracee, find_syscall};
use refit_sys::userfault::{Features, Modes, Userfault};

use crate::common::{Child, LONG, PAGE_SIZE, Pages, idle, offered, until};

/// A stopped program with an area for an agent.
struct Program {
    child: Child,
    held: Tracee,
    memory: Memory,
    instruction: u64,
    area: u64,
}

impl Program {
    fn of(child: Child) -> Option<Self> {
        let seized = Tracee::seize_with(child.id(), OPTIONS);
        let mut held = offered("ptrace", seized)?;
        held.interrupt().expect("it is there");
        held.settle(Instant::now() + LONG).expect("it stops");
        let memory = Memory::of(child.id()).expect("a child");
        let mappings = maps::of(child.id()).expect("a child");
        let instruction = find_syscall(&memory, &mappings).expect("it has one");
        let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let how = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let arguments = [0, AREA, access, how, u64::MAX, 0];
        let area = held.call(instruction, libc::SYS_mmap, arguments).expect("it has room");
        Some(Self { child, held, memory, instruction, area })
    }

    fn plant_by(&mut self, process: &Pidfd, area: u64) -> io::Result<(Agent, Tracee)> {
        let (memory, instruction) = (&self.memory, self.instruction);
        let ground =
            Ground { program: process, memory, instruction, area, options: OPTIONS, keep: &[2] };
        Agent::set_up(&mut self.held, &ground)
    }

    fn set_up(&mut self) -> (Agent, Tracee) {
        let process = Pidfd::open(self.child.id()).expect("a child");
        self.plant_by(&process, self.area).expect("it is planted")
    }

    /// Returns the state that an agent has to leave unchanged.
    fn state(&self) -> (String, u64, Vec<String>) {
        let registers = self.held.registers().expect("it stands");
        let mask = self.held.signal_mask().expect("it stands");
        (format!("{registers:x?}"), mask, descriptors(self.child.id()))
    }

    /// Returns whether the program has a child of any kind, ended or not.
    fn has_child(&mut self) -> bool {
        let how = (libc::__WALL | libc::WNOHANG) as u64;
        let waited = self.held.call(self.instruction, libc::SYS_wait4, [u64::MAX, 0, how, 0, 0, 0]);
        match waited {
            Ok(_) => true,
            Err(CallError::Call(error)) if error.raw_os_error() == Some(libc::ECHILD) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// `CLONE` is missing, because it is set while an agent is created.
const OPTIONS: Options = Options::EXEC.union(Options::EXIT_KILL);

fn descriptors(process: u32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it is there");
    let mut found: Vec<String> = entries
        .map(|entry| {
            let entry = entry.expect("it is there");
            let to = std::fs::read_link(entry.path()).expect("it is there");
            format!("{:?} {}", entry.file_name(), to.display())
        })
        .collect();
    found.sort_unstable();
    found
}

fn call(number: i64, arguments: [u64; 6]) -> Call {
    Call { number, arguments }
}

fn ended(made: io::Result<Vec<i64>>) -> bool {
    made.expect_err("it is gone").raw_os_error() == Some(libc::ESRCH)
}

/// Returns the next event of a traced task.
fn next(of: &Tracee) -> Event {
    let (thread, event) = trace::next_of(of.thread(), true).expect("traced").expect("waited for");
    assert_eq!(thread, of.thread());
    event
}

#[test]
fn an_agent_makes_calls_beside_its_program_which_is_as_before() {
    let Some(mut program) = Program::of(idle()) else { return };
    let id = program.child.id();
    let before = program.state();
    let (agent, task) = program.set_up();
    assert_eq!(program.state(), before);
    program.held.resume(0).expect("it goes on");
    let number = task.thread();
    let mut own = descriptors(number);
    own.retain(|one| !one.starts_with("\"2\""));
    assert!(own.len() == 1 && own[0].contains("socket:"), "{own:?}");
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).expect("it is there");
    assert!(status.starts_with("Name:\trefit agent\n"), "{status}");
    assert!(status.contains("SigBlk:\tfffffffffffbfeff\n"), "all but KILL and STOP: {status}");
    let root = std::fs::read_link(format!("/proc/{number}/cwd")).expect("it is there");
    assert_eq!(root, std::path::Path::new("/"));
    if let Some(same) = offered("kcmp", process::same_memory(id, number)) {
        assert!(same);
    }
    let who = [call(libc::SYS_getpid, [0; 6]), call(libc::SYS_gettid, [0; 6])];
    for round in 0..1000_u64 {
        let mut data = round.to_ne_bytes();
        let answers = agent.make(&who, &mut data).expect("it answers");
        assert_eq!(answers, [i64::from(number), i64::from(number)]);
        assert_eq!(data, round.to_ne_bytes());
    }
    let length = 3 * PAGE_SIZE as u64;
    let how = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let map = call(libc::SYS_mmap, [0, length, 0, how, u64::MAX, 0]);
    let made = agent.make(&[map], &mut []).expect("it answers")[0].cast_unsigned();
    let mapped = || {
        let maps = maps::of(id).expect("a child");
        maps.iter().any(|one| one.range.contains(&made))
    };
    assert!(mapped());
    let unmap = call(libc::SYS_munmap, [made, length, 0, 0, 0, 0]);
    let failing = call(libc::SYS_close, [u64::from(u32::MAX), 0, 0, 0, 0, 0]);
    let answers = agent.make(&[failing, unmap], &mut []).expect("it answers");
    assert_eq!(answers, [-i64::from(libc::EBADF), 0]);
    assert!(!mapped());
    drop(agent);
    assert_eq!(next(&task), Event::Exited(0));
}

#[test]
fn a_batch_is_as_long_as_the_buffer_at_most() {
    let Some(mut program) = Program::of(idle()) else { return };
    let (agent, task) = program.set_up();
    let most = (SIZE - 8) / 64;
    let calls = vec![call(libc::SYS_getpid, [0; 6]); most];
    let mut data = vec![7; SIZE - 8 - most * 64];
    let answers = agent.make(&calls, &mut data).expect("it fits");
    assert_eq!(answers, vec![i64::from(task.thread()); most]);
    assert!(data.iter().all(|&byte| byte == 7));
    data.push(7);
    let refused = agent.make(&calls, &mut data).expect_err("too long");
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(agent.make(&[], &mut []).expect("as before"), []);
}

/// `UFFDIO_MOVE` moves only pages of the process that calls it.
#[test]
fn an_agent_moves_pages_of_its_program() {
    let there = refit_sys::userfault::offered();
    let Some(there) = offered("userfaultfd", there) else { return };
    if !there.contains(Features::MOVE) {
        println!("skipped: this kernel lacks {:?}", Features::MOVE);
        return;
    }
    let shared = SharedMapping::new(c"refit-test", PAGE_SIZE).expect("a memfd");
    let byte = |at: usize| {
        let mut byte = [0];
        shared.read_at(at, &mut byte);
        byte[0]
    };
    let (from, to) = (Pages::anonymous(1), Pages::anonymous(1));
    let child = Child::of(|| {
        from.set(0, 42);
        shared.write_at(0, &[1]);
        while byte(1) == 0 {
            std::thread::yield_now();
        }
        i32::from(to.get(0)) * 2 + i32::from(from.get(0))
    });
    until("a page of the child's own", || byte(0) == 1);
    let Some(mut program) = Program::of(child) else { return };
    let (agent, task) = program.set_up();
    let make = call(libc::SYS_userfaultfd, [libc::O_CLOEXEC as u64, 0, 0, 0, 0, 0]);
    let number = agent.make(&[make], &mut []).expect("it answers")[0];
    let number = u32::try_from(number).expect("it may");
    let its = Pidfd::open(task.thread()).expect("it is there");
    let server = Userfault::from(its.get_fd(number).expect("the agent's"));
    server.agree(Features::MOVE).expect("offered");
    server.register(to.all(), Modes::MISSING).expect("anonymous memory");
    // `struct uffdio_move`: destination, source, length, mode, number of bytes moved.
    let words = [to.all().start, from.all().start, PAGE_SIZE as u64, 0, 0];
    let mut data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let request = 0xc028_aa05;
    let shift = call(libc::SYS_ioctl, [u64::from(number), request, agent.data_address(1), 0, 0, 0]);
    assert_eq!(agent.make(&[shift], &mut data).expect("it answers"), [0]);
    assert_eq!(data[32..], (PAGE_SIZE as u64).to_ne_bytes());
    program.held.resume(0).expect("it goes on");
    shared.write_at(1, &[1]);
    assert_eq!(program.child.wait(), 84);
}

#[test]
fn an_agent_outlives_its_program_until_it_is_dropped() {
    let Some(mut program) = Program::of(idle()) else { return };
    let (agent, task) = program.set_up();
    let Program { child, .. } = program;
    child.signal(libc::SIGKILL);
    assert_eq!(child.wait(), -libc::SIGKILL);
    let who = [call(libc::SYS_getpid, [0; 6])];
    assert_eq!(agent.make(&who, &mut []).expect("it answers"), [i64::from(task.thread())]);
    drop(agent);
    assert_eq!(next(&task), Event::Exited(0));
}

#[test]
fn an_agent_that_was_killed_is_told_to_be_gone() {
    let Some(mut program) = Program::of(idle()) else { return };
    let (agent, task) = program.set_up();
    Pidfd::open(task.thread()).expect("it is there").signal(libc::SIGKILL).expect("it is there");
    assert_eq!(next(&task), Event::Killed(libc::SIGKILL));
    assert!(ended(agent.make(&[], &mut [])));
    assert!(ended(agent.make(&[call(libc::SYS_getpid, [0; 6])], &mut [])));
    // The agent ends in the middle of a batch.
    let (agent, task) = program.set_up();
    let exit = call(libc::SYS_exit, [3, 0, 0, 0, 0, 0]);
    assert!(ended(agent.make(&[exit], &mut [])));
    assert_eq!(next(&task), Event::Exited(3));
}

#[test]
fn an_agent_that_is_ended_and_reaped_leaves_nothing() {
    let Some(mut program) = Program::of(idle()) else { return };
    let before = program.state();
    for _ in 0..3 {
        let (agent, task) = program.set_up();
        let number = task.thread();
        assert!(!program.has_child());
        agent.end_and_reap(&mut program.held, program.instruction, task);
        // The agent is an orphan, and may still be a zombie.
        assert!(process::life(number).is_none_or(|life| life.ended()));
        assert!(!program.has_child());
        assert_eq!(program.state(), before);
    }
}

#[test]
fn what_cannot_be_planted_leaves_nothing() {
    let (_reader, writer) = io::pipe().expect("a pipe");
    let shared = SharedMapping::new(c"refit-test", PAGE_SIZE).expect("a memfd");
    // The descriptor that is asked for exists there, but is no socket.
    let other = Child::of(|| {
        for number in 3..512 {
            // SAFETY: descriptors of this process, which nobody else in it uses any more.
            unsafe { libc::dup2(writer.as_raw_fd(), number) };
        }
        shared.write_at(0, &[1]);
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    });
    until("the descriptors of the child", || {
        let mut byte = [0];
        shared.read_at(0, &mut byte);
        byte == [1]
    });
    let Some(mut program) = Program::of(idle()) else { return };
    let before = program.state();
    let wrong = Pidfd::open(other.id()).expect("a child");
    let refused = program.plant_by(&wrong, program.area).expect_err("no socket");
    assert_eq!(refused.raw_os_error(), Some(libc::ENOTSOCK), "{refused}");
    assert_eq!(program.state(), before);
    assert!(!program.has_child());
    // A program without descriptors.
    other.signal(libc::SIGKILL);
    assert_eq!(other.wait(), -libc::SIGKILL);
    let refused = program.plant_by(&wrong, program.area).expect_err("it has ended");
    assert_eq!(refused.raw_os_error(), Some(libc::ESRCH), "{refused}");
    assert_eq!(program.state(), before);
    assert!(!program.has_child());
    let own = Pidfd::open(program.child.id()).expect("a child");
    let nowhere = program.plant_by(&own, 2 * PAGE_SIZE as u64).expect_err("nothing is there");
    assert_eq!(nowhere.raw_os_error(), Some(libc::EIO), "{nowhere}");
    assert_eq!(program.state(), before);
    drop(program.set_up());
}
