//! A thread that was stopped in a restartable sequence does not come back to the middle of it.

use std::io;
use std::time::Instant;

use refit_sys::foreign::Memory;
use refit_sys::trace::{Options, Stop, Tracee, find_syscall};

use crate::common::{Child, LONG, offered};

/// An area for restartable sequences.
#[repr(align(32))]
struct Area {
    _bytes: [u8; 32],
}

/// Runs in user space all the time, registered for sequences: by the C library, or by itself.
fn spinning() -> Child {
    Child::of(|| {
        let mut area = Area { _bytes: [0; 32] };
        // As glibc has it.
        const SIGNATURE: u32 = 0x5305_3053;
        // SAFETY: the area lives as long as the child.
        let refused = unsafe {
            libc::syscall(libc::SYS_rseq, &raw mut area, size_of::<Area>(), 0, SIGNATURE)
        };
        if refused != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
            return 1;
        }
        loop {
            std::hint::spin_loop();
        }
    })
}

#[test]
fn a_thread_that_makes_a_call_comes_back_to_where_its_sequence_is_aborted() {
    let child = spinning();
    let seized = offered("ptrace", Tracee::seize_with(child.id(), Options::EXEC));
    let Some(mut held) = seized else { return };
    let (before, area, signature) = loop {
        let ended = held.interrupt().is_err();
        if ended || held.settle(Instant::now() + LONG).expect("it stops") == Stop::Ended {
            println!("skipped: the kernel has no restartable sequences");
            return;
        }
        let registers = held.registers().expect("it stands");
        // Not while it is still in a call.
        if registers.orig_rax.cast_signed() < 0
            && let Some((area, signature)) = held.rseq().expect("the kernel tells")
        {
            break (registers, area, signature);
        }
        held.resume(0).expect("it stands");
    };
    // The sequence is where the thread is; its descriptor is on the stack, far below what is used.
    let memory = Memory::of(child.id()).expect("a child");
    let descriptor = (before.rsp - 4096) & !31;
    let (begin, abort) = (before.rip - 8, descriptor + 40);
    let announce = || {
        let words = [0, begin, 16, abort, u64::from(signature) << 32];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        memory.write(descriptor, &bytes).expect("its stack");
        memory.write(area + 8, &descriptor.to_le_bytes()).expect("its area");
    };
    announce();
    let mappings = refit_sys::maps::of(child.id()).expect("a child");
    let at = find_syscall(&memory, &mappings).expect("it has one");
    let id = held.call(at, libc::SYS_getpid, [0; 6]).expect("nothing refuses it");
    assert_eq!(id, u64::from(child.id()));
    assert_eq!(held.registers().expect("it stands").rip, abort);
    assert_eq!(memory.word(area + 8).expect("its area"), 0, "the kernel has forgotten it");
    // Elsewhere it comes back to where it was.
    let mut outside = before;
    outside.rip = begin + 16;
    held.set_registers(&outside).expect("it stands");
    announce();
    held.call(at, libc::SYS_getpid, [0; 6]).expect("nothing refuses it");
    assert_eq!(held.registers().expect("it stands").rip, outside.rip);
    // It goes on until it is killed.
    held.set_registers(&before).expect("it stands");
}
