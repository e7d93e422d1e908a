//! Live sets of functions small enough to verify by hand.

use refit_analysis::live::flag;
use refit_analysis::{Live, Module};

use crate::build::{assemble, function};

const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RBX: u8 = 3;
const RSI: u8 = 6;
const RDI: u8 = 7;
const R10: u8 = 10;
const R11: u8 = 11;

/// Returns what is live before the `n`th instruction of a function.
fn before(module: &Module, name: &str, n: usize) -> Live {
    let flow = module.flow(function(module, name));
    flow.live_before(flow.instructions()[n].address)
}

#[test]
fn writes_end_lives_and_parts_do_not() {
    let module = assemble(
        "
FUNC whole
  mov %esi, %eax
  ret
END whole
FUNC low_byte
  mov %sil, %al
  ret
END low_byte
FUNC maybe
  test %edi, %edi
  cmove %esi, %eax
  ret
END maybe
FUNC cleared
  xor %eax, %eax
  ret
END cleared",
    );
    let whole = before(&module, "whole", 0);
    assert!(!whole.general(RAX) && whole.general(RSI) && !whole.general(RDI));
    assert_eq!(whole.flags, flag::DIRECTION);
    assert!(before(&module, "low_byte", 0).general(RAX));
    assert!(before(&module, "maybe", 0).general(RAX));
    assert_eq!(before(&module, "maybe", 1).flags, flag::DIRECTION | flag::ZERO);
    assert!(!before(&module, "cleared", 0).general(RAX));
}

#[test]
fn what_may_do_nothing_leaves_what_was_there() {
    let module = assemble(
        "
FUNC shadowed
  xor %eax, %eax
  rdsspq %rax
  ret
END shadowed
FUNC first_bit
  bsf %rdi, %rax
  ret
END first_bit",
    );
    assert!(before(&module, "shadowed", 1).general(RAX), "without shadow stacks it is a nop");
    assert!(before(&module, "first_bit", 0).general(RAX), "stays where no bit is set");
}

#[test]
fn flags_live_across_what_may_leave_them() {
    let module = assemble(
        "
FUNC shifts
  cmp %rdi, %rsi
  shl %cl, %rdx
  setb %al
  ret
END shifts
FUNC shifts_by_one
  cmp %rdi, %rsi
  shl $1, %rdx
  setb %al
  ret
END shifts_by_one
FUNC steps
  cmp %rdi, %rsi
  dec %rdx
  setb %al
  ret
END steps",
    );
    assert_eq!(before(&module, "shifts", 1).flags & flag::CARRY, flag::CARRY, "perhaps by nothing");
    assert_eq!(before(&module, "shifts_by_one", 1).flags & flag::CARRY, 0);
    assert_eq!(before(&module, "steps", 1).flags & flag::CARRY, flag::CARRY, "dec leaves it");
}

#[test]
fn vectors_have_two_parts() {
    let module = assemble(
        "
FUNC old
  movaps %xmm1, %xmm0
  ret
END old
FUNC new
  vmovaps %xmm1, %xmm0
  ret
END new
FUNC converts
  cvtsi2sd %edi, %xmm0
  ret
END converts",
    );
    let old = before(&module, "old", 0);
    assert_eq!((old.vectors & 3, old.upper & 1), (2, 1), "the upper part stays");
    let new = before(&module, "new", 0);
    assert_eq!((new.vectors & 3, new.upper & 1), (2, 0));
    assert_eq!(before(&module, "converts", 0).vectors & 1, 1, "half of it stays");
}

#[test]
fn callees_are_known_by_what_they_do() {
    let module = assemble(
        "
FUNC local
  mov %rdi, %rax
  ret
END local
FUNC calls_local
  call local
  ret
END calls_local
FUNC calls_unknown
  call *(%rbx)
  ret
END calls_unknown",
    );
    let local = before(&module, "calls_local", 0);
    assert!(local.general(RDI) && !local.general(RSI) && !local.general(RAX));
    let unknown = before(&module, "calls_unknown", 0);
    assert!(unknown.general(RSI) && unknown.general(RAX), "arguments, and how many vectors");
    assert!(!unknown.general(R11));
    assert_eq!(unknown.flags, flag::DIRECTION);
}

#[test]
fn callers_may_need_more_than_the_abi_says() {
    let module = assemble(
        "
FUNC compares
  cmp $5, %rdi
  ret
END compares
FUNC asks
  mov $1, %r10d
  call compares
  sete %al
  add %r10, %rdx
  ret
END asks
FUNC other
  cmp $5, %rdi
  ret
END other",
    );
    let at_return = before(&module, "compares", 1);
    assert_eq!(at_return.flags & flag::ZERO, flag::ZERO, "its result");
    assert!(at_return.general(R10), "the caller saw that it is left alone");
    let other = before(&module, "other", 1);
    assert!(!other.general(R10) && other.flags & flag::ZERO == 0, "nobody needs it there");
}

#[test]
fn jumps_that_are_not_understood_need_everything() {
    let module = assemble("FUNC away\n push %rbx\n .cfi_adjust_cfa_offset 8\n jmp *%rax\nEND away");
    let live = before(&module, "away", 1);
    assert_eq!(live, Live { red_zone: true, ..Live::ALL });
}

#[test]
fn system_calls_overwrite_two_registers() {
    let module = assemble("FUNC calls\n syscall\n ret\nEND calls");
    let live = before(&module, "calls", 0);
    assert!(!live.general(RCX) && !live.general(R11));
    assert!(live.general(R10) && live.general(RDX) && live.general(RBX));
}

#[test]
fn leaves_use_the_red_zone() {
    let module = assemble(
        "
FUNC below
  mov %rdi, -8(%rsp)
  mov -8(%rsp), %rax
  ret
END below
FUNC by_frame
  push %rbp
  mov %rsp, %rbp
  mov %edi, -20(%rbp)
  pop %rbp
  ret
END by_frame
FUNC calls
  sub $24, %rsp
  mov %rdi, 8(%rsp)
  lea 8(%rsp), %rdi
  call *%rsi
  add $24, %rsp
  ret
END calls
FUNC plain
  lea (%rdi,%rsi), %rax
  ret
END plain",
    );
    assert!(before(&module, "below", 0).red_zone);
    assert!(before(&module, "by_frame", 0).red_zone);
    assert!(!before(&module, "calls", 0).red_zone);
    assert!(!before(&module, "plain", 0).red_zone);
}
