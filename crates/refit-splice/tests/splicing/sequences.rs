//! Counts by restartable sequences: exact whatever interrupts them, and announced to the kernel
//! only while a thread is in the patch area.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use refit_splice::process::{Refusal, STOP_TIMEOUT};
use refit_splice::remains;
use refit_sys::patch_area::is_area;
use refit_sys::trace::{RSEQ_ANNOUNCED, RSEQ_DESCRIPTOR, Stop, Tracee};

use super::lives::counted;
use super::victim::{Built, Victim, build, until};

/// Bytes of a lane with one cell.
const LANE: usize = 64;

fn start() -> Victim {
    static BUILT: OnceLock<Built> = OnceLock::new();
    let built: &Path =
        BUILT.get_or_init(|| build("cc", "splicing/sequences.c", &["-pthread"])).path();
    Victim::of(built)
}

/// Reads the cell of each lane; the last one is that of threads without a lane.
fn lanes(victim: &Victim) -> Vec<u64> {
    let program = victim.program();
    let mappings = program.mappings().expect("its mappings");
    let data = mappings.iter().find(|one| is_area(one) && one.writable && one.shared);
    let begin = data.expect("the lanes").range.start;
    let count = refit_sys::processor::count().next_power_of_two() + 1;
    let lane = |number: usize| program.word(begin + (number * LANE) as u64).expect("mapped");
    (0..count).map(lane).collect()
}

/// Whether the program has sequences, so that there is something to test.
fn has_sequences(victim: &Victim) -> bool {
    let found = victim.program().stand_still(STOP_TIMEOUT, |still| Ok::<_, Refusal>(still.rseq()));
    let has = found.expect("it stands").0.is_some();
    if !has {
        println!("skipped: threads have no restartable sequences here");
    }
    has
}

/// Returns the address of the addition: the last instruction of the only sequence in the area.
fn addition(victim: &Victim) -> u64 {
    let program = victim.program();
    let mappings = program.mappings().expect("its mappings");
    let code = mappings.iter().find(|one| is_area(one) && one.executable).expect("the code");
    let word = |at: u64| program.word(at).expect("mapped");
    let places = code.range.clone().step_by(RSEQ_DESCRIPTOR);
    let found = places.map(|at| [0, 1, 2, 3].map(|number| word(at + number * 8)));
    let mut described = found.filter(|words| words[0] == 0 && code.range.contains(&words[1]));
    let [_, begin, length, _] = described.next().expect("a descriptor");
    let mut bytes = vec![0; length as usize];
    program.read(begin, &mut bytes).expect("mapped");
    let last = iced_x86::Decoder::with_ip(64, &bytes, begin, 0).into_iter().last();
    last.expect("it is not empty").ip()
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn stop(held: &mut Tracee) {
    held.interrupt().expect("it is there");
    held.settle(deadline()).expect("it stops");
}

/// Has a stopped thread trap before it executes the instruction at this address; 0 ends that.
/// Returns whether the processor can be had for it.
#[expect(unsafe_code, reason = "a breakpoint of one thread, in a register of the processor")]
fn break_at(thread: u32, address: u64) -> bool {
    let control = u64::from(address != 0);
    [(0, address), (7, control)].into_iter().all(|(register, value)| {
        let at = std::mem::offset_of!(libc::user, u_debugreg) + register * 8;
        // SAFETY: it changes a register of a thread that is stopped.
        unsafe { libc::ptrace(libc::PTRACE_POKEUSER, thread, at, value) == 0 }
    })
}

#[expect(unsafe_code, reason = "it moves a thread of another process")]
fn move_to(thread: u32, processor: usize) {
    // SAFETY: a set of processors is a plain structure, which is read.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        let thread = thread.cast_signed();
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// All threads call the function at the same time, and one of them is moved to another processor
/// each time that it has read the number of its own and is about to add.
#[test]
fn no_count_is_lost_where_a_thread_is_moved_before_it_adds() {
    const TIMES: u64 = 500;
    let mut victim = start();
    if !has_sequences(&victim) {
        return;
    }
    let installed = counted(&victim);
    let (add, program) = (addition(&victim), victim.program());
    assert_eq!(victim.ask("begin"), "begun");
    let threads = || refit_sys::process::threads(program.id());
    until(|| threads().len() > 1);
    let thread = threads().into_iter().max().expect("several");
    let mut held = Tracee::seize(thread).expect("a thread of a child of ours");
    stop(&mut held);
    if !break_at(thread, add) {
        println!("skipped: no breakpoints of the processor: {}", std::io::Error::last_os_error());
        return;
    }
    for time in 0..TIMES {
        held.resume(0).expect("it stands");
        assert_eq!(held.look(deadline()).expect("it comes there"), Stop::Signal(libc::SIGTRAP));
        assert_eq!(held.registers().expect("it stands").rip, add);
        move_to(thread, time as usize % refit_sys::processor::count());
    }
    assert!(break_at(thread, 0), "{}", std::io::Error::last_os_error());
    held.resume(0).expect("it stands");
    stop(&mut held);
    held.let_go().expect("it goes on");
    let calls: u64 = victim.ask("end").parse().expect("a number");
    let lanes = lanes(&victim);
    assert_eq!(lanes.iter().sum::<u64>(), calls, "{lanes:?}");
    assert_eq!(installed.cell(0).expect("read"), calls);
    // Each of these was aborted, and few others.
    let aborted = lanes.last().copied().expect("the last lane");
    assert!((TIMES..calls / 100).contains(&aborted), "{lanes:?}");
    remains::repair(&program).expect("taken out");
}

#[test]
fn a_thread_that_the_kernel_does_not_know_counts_in_the_last_lane() {
    let mut victim = start();
    if !has_sequences(&victim) {
        return;
    }
    let installed = counted(&victim);
    let calls: u64 = victim.ask("unknown 1000").parse().expect("a number");
    assert_eq!(calls, 1000, "it cannot be had");
    assert_eq!(installed.cell(0).expect("read"), calls);
    assert_eq!(lanes(&victim).last(), Some(&calls));
    remains::repair(&victim.program()).expect("taken out");
}

#[test]
fn a_thread_that_is_stepped_gets_through() {
    let mut victim = start();
    let installed = counted(&victim);
    let program = victim.program();
    let mut held = Tracee::seize(program.id()).expect("a child of ours");
    stop(&mut held);
    victim.say("once");
    let mut steps = 0;
    while installed.cell(0).expect("read") == 0 {
        assert!(matches!(
            held.step().expect("it goes on"),
            Stop::Signal(libc::SIGTRAP) | Stop::Event
        ));
        steps += 1;
        assert!(steps < 1_000_000, "it does not get through");
    }
    held.let_go().expect("it goes on");
    assert_eq!(victim.line(), "1");
    assert_eq!(installed.cell(0).expect("read"), 1);
    remains::repair(&program).expect("taken out");
}

/// So an area can be unmapped when no thread is in it: the kernel reads what is announced when it
/// resumes a thread, and kills the program if it is not there.
#[test]
fn nothing_is_announced_outside_of_the_area() {
    let mut victim = start();
    if !has_sequences(&victim) {
        return;
    }
    assert_eq!(victim.ask("begin"), "begun");
    let program = victim.program();
    let (mut inside, mut outside) = (0, 0);
    for _ in 0..40 {
        let _installed = counted(&victim);
        let mappings = program.mappings().expect("its mappings");
        let area =
            |address: u64| mappings.iter().any(|one| is_area(one) && one.range.contains(&address));
        for _ in 0..5 {
            let stood = program.stand_still(STOP_TIMEOUT, |still| {
                // A thread may not be registered yet.
                let Some((offset, _)) = still.rseq() else { return Ok(()) };
                for thread in still.threads() {
                    let registers = still.registers(thread)?;
                    let at =
                        registers.fs_base.wrapping_add_signed(i64::from(offset)) + RSEQ_ANNOUNCED;
                    let announced = program.word(at).expect("the thread's memory");
                    match area(registers.rip) {
                        true => inside += 1,
                        false => {
                            outside += 1;
                            assert!(!area(announced), "{announced:x}, {:x}", registers.rip);
                        }
                    }
                }
                Ok::<_, Refusal>(())
            });
            stood.expect("it stands");
        }
        let removed = remains::repair(&program).expect("taken out");
        assert_eq!((removed.areas, removed.kept), (1, 0), "{removed:?}");
    }
    assert!(inside > 0 && outside > 0, "{inside}, {outside}");
    victim.ask("end");
}
