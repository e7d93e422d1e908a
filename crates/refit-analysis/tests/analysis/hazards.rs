//! One hazard each, in which a naive traversal goes wrong.

use refit_analysis::flow::{EdgeKind, Marks, Target};

use crate::build::{assemble, assemble_fixed, blocks_by, build, flow, function};

/// Cases of a jump table, the table itself, and data behind it that looks like more of it.
const CASES: &str = "
0: mov $10, %eax
   ret
1: mov $11, %eax
   ret
2: mov $12, %eax
   ret
3: mov $13, %eax
   ret
9: mov $99, %eax
   ret
   .section .rodata
   .p2align 2
7: .long 0b-7b, 1b-7b, 2b-7b, 3b-7b
   .long 0x7fffffff, 9b-7b
   .text";

fn table(dispatch: &str) -> (usize, bool) {
    let jump = "lea 7f(%rip), %rdx\n movslq (%rdx,%rax,4), %rax\n add %rdx, %rax\n jmp *%rax";
    let source = format!("FUNC picks\n{dispatch}\n{jump}\n{CASES}\nEND picks");
    let module = assemble(&source);
    let flow = flow(&module, "picks");
    (blocks_by(&flow, |e| e.kind == EdgeKind::Table).len(), flow.targets_known())
}

#[test]
fn a_comparison_bounds_a_table() {
    assert_eq!(table("cmp $3, %edi\n ja 9f\n mov %edi, %eax"), (4, true), "before the copy");
    assert_eq!(table("mov %edi, %eax\n cmp $3, %eax\n ja 9f"), (4, true), "after the copy");
    assert_eq!(table("mov %edi, %eax\n cmp $4, %eax\n jae 9f"), (4, true), "not above");
    assert_eq!(table("lea -65(%rdi), %eax\n cmp $3, %al\n ja 9f\n movzbl %al, %eax"), (4, true));
    assert_eq!(table("movzbl (%rdi), %eax\n cmp $3, %al\n ja 9f"), (4, true), "low byte");
    let twice = "mov %edi, %eax\n cmp $7, %eax\n ja 9f\n cmp $3, %al\n ja 9f";
    assert_eq!(table(twice), (4, true), "first all, then the low byte");
    assert_eq!(table("lea 4(%rdi), %eax\n cmp $-4, %edi\n jb 9f"), (4, true), "from -4 to -1");
    assert_eq!(table("cmpl $3, 8(%rdi)\n ja 9f\n mov 8(%rdi), %eax"), (4, true), "in memory");
}

#[test]
fn a_width_or_a_mask_bounds_a_table_that_may_be_shorter() {
    assert_eq!(table("movzbl (%rdi), %eax"), (4, true), "256 at most; the fifth is no code");
    assert_eq!(table("mov %edi, %eax\n and $7, %eax"), (4, true), "8 at most");
    assert_eq!(table("mov %edi, %eax\n and $1, %eax"), (2, true));
}

#[test]
fn a_table_without_a_bound_is_read_to_its_end() {
    assert_eq!(table("mov %rdi, %rax"), (4, true));
    assert_eq!(table("cmp $3, %edi\n je 9f\n mov %edi, %eax"), (4, true), "no order");
    assert_eq!(table("cmp $3, %edi\n jg 9f\n mov %edi, %eax"), (4, true), "signed");
    let two = "test %esi, %esi\n je 5f\n cmp $3, %edi\n ja 9f\n5: mov %edi, %eax";
    assert_eq!(table(two), (4, true), "bounded on one way only");
    let called = "cmp $3, %ecx\n ja 9f\n call *%rsi\n mov %ecx, %eax";
    assert_eq!(table(called), (4, true), "changed by a call since");
}

/// A table of two cases without a bound, behind which this data follows.
fn followed_by(data: &str) -> (usize, bool) {
    followed_by_and(data, "")
}

/// The same, with this code besides.
fn followed_by_and(data: &str, code: &str) -> (usize, bool) {
    let source = format!(
        "
FUNC before
   mov $5, %eax
   ret
8: mov $6, %eax
   ret
END before
{code}
FUNC picks
   lea 7f(%rip), %rdx
   movslq (%rdx,%rdi,4), %rax
   add %rdx, %rax
   jmp *%rax
0: mov $10, %eax
   ret
1: mov $11, %eax
   lea 6f(%rip), %rdx
   movslq (%rdx,%rsi,4), %rcx
   add %rdx, %rcx
   jmp *%rcx
2: mov $12, %eax
   ret
3: mov $13, %eax
   ret
END picks
   int3
4: ret
   .section .rodata
   .p2align 2
7: .long 0b-7b, 1b-7b
{data}
6: .long 2b-6b, 3b-6b, 0x7fffffff
   .text"
    );
    let flow = flow(&assemble(&source), "picks");
    (blocks_by(&flow, |e| e.kind == EdgeKind::Table).len(), flow.targets_known())
}

#[test]
fn a_table_without_a_bound_ends_where_its_entries_lead_into_other_functions() {
    assert_eq!(followed_by(".long 0x7fffffff"), (4, true), "no code");
    assert_eq!(followed_by(".long 8b-7b"), (4, true), "within another function");
    // Code that is of no function may be a part of this one.
    assert!(!followed_by(".long 4b-7b").1);
    // Control does not arrive within an instruction.
    assert!(!followed_by(".long 0b-7b+2").1);
    // Unless another function has a table there.
    let another = "FUNC another
   lea 5f(%rip), %rcx
   movslq (%rcx,%rdi,4), %rax
   add %rcx, %rax
   jmp *%rax
END another";
    assert_eq!(followed_by_and("5: .long 0b-7b+2", another), (4, true), "of another function");
    // The entries of the next table, relative to this one, are 8 bytes less: some may be taken for
    // its own, and none of its own is missing.
    let (targets, known) = followed_by("");
    assert!(targets >= 4 && known, "{targets}");
}

#[test]
fn a_comparison_that_lets_through_more_than_the_table_has_is_not_believed() {
    assert_eq!(table("mov %edi, %eax\n cmp $4, %eax\n ja 9f"), (4, false));
}

#[test]
fn addresses_in_tables_are_relocated() {
    let source = "
FUNC picks
  cmp $2, %rdi
  ja 9f
  lea 7f(%rip), %rax
  jmp *(%rax,%rdi,8)
0: ret
1: nop
   ret
2: nop
   ret
9: ret
  .section .data.rel.ro, \"aw\"
  .p2align 3
7: .quad 0b, 1b, 2b
  .text
END picks";
    let flow = flow(&assemble(source), "picks");
    assert_eq!(blocks_by(&flow, |e| e.kind == EdgeKind::Table).len(), 3);
    assert!(flow.targets_known());
}

#[test]
fn tables_at_fixed_addresses_are_read_and_writable_ones_are_not() {
    let source = |section: &str| {
        format!(
            "
FUNC begin
  cmp $2, %rdi
  ja 9f
  jmp *7f(,%rdi,8)
0: ret
1: nop
   ret
2: nop
   ret
9: ret
  .section {section}
  .p2align 3
7: .quad 0b, 1b, 2b
  .text
END begin"
        )
    };
    let module = assemble_fixed(&source(".rodata"));
    let found = flow(&module, "begin");
    assert_eq!(blocks_by(&found, |e| e.kind == EdgeKind::Table).len(), 3);
    let module = assemble_fixed(&source(".data"));
    assert!(!flow(&module, "begin").targets_known(), "it can change");
}

#[test]
fn tail_calls_lead_to_functions() {
    let source = "
FUNC callee
  ret
END callee
FUNC direct
  jmp callee
END direct
FUNC through_object
  mov (%rdi), %rax
  jmp *16(%rax)
END through_object
FUNC with_frame
  push %rbx
  .cfi_adjust_cfa_offset 8
  jmp *%rax
END with_frame";
    let module = assemble(source);
    let callee = function(&module, "callee");
    let targets = |name| flow(&module, name).edges().iter().map(|e| e.to).collect::<Vec<_>>();
    assert_eq!(targets("direct"), [Target::Function(callee)]);
    assert_eq!(targets("through_object"), [Target::Elsewhere]);
    assert_eq!(targets("with_frame"), [Target::Unknown], "no function is left like this");
}

#[test]
fn nothing_is_read_behind_a_call_that_does_not_return() {
    let source = "
FUNC dies
  ud2
END dies
FUNC dies_too
  push %rax
  call dies
  .byte 0x06, 0x06, 0x06
END dies_too
FUNC lives
  test %edi, %edi
  je 1f
  ret
1: call dies_too
  .byte 0x06
END lives";
    let module = assemble(source);
    assert!(!module.returns(function(&module, "dies")));
    assert!(!module.returns(function(&module, "dies_too")));
    assert!(module.returns(function(&module, "lives")));
    assert_eq!(flow(&module, "dies_too").instructions().len(), 2);
    assert_eq!(flow(&module, "lives").instructions().len(), 4);
}

#[test]
fn a_jump_past_a_lock_prefix_leads_into_an_instruction() {
    let source = "
FUNC adds
  test %edi, %edi
  je 1f
  .byte 0xf0
1: cmpxchg %ecx, (%rsi)
  ret
END adds";
    let module = assemble(source);
    let flow = flow(&module, "adds");
    let entry = module.function(flow.function()).entry;
    let locked = flow.instruction_at(entry + 4).expect("with the prefix");
    let bare = flow.instruction_at(entry + 5).expect("without it");
    assert_eq!(locked.end(), bare.end());
    assert!(locked.marks.contains(Marks::OVERLAPPED) && !bare.marks.contains(Marks::OVERLAPPED));
    let (block, found) = flow.block_at(entry + 5).expect("a block");
    assert_eq!(found.start, entry + 5);
    assert_eq!(flow.edges_from(block).len(), 1, "to the return");
    assert_eq!(flow.block_at(entry + 4).map(|(_, b)| b.start), Some(entry + 4));
    assert_eq!(flow.blocks().len(), 4);
}

#[test]
fn a_cold_part_belongs_to_its_function() {
    let source = "
FUNC warm
  push %rbx
  .cfi_adjust_cfa_offset 8
  test %edi, %edi
  jne warm.cold
8: pop %rbx
  .cfi_adjust_cfa_offset -8
  ret
END warm
  .section .text.unlikely, \"ax\"
FUNC warm.cold
  .cfi_def_cfa_offset 16
  xor %eax, %eax
  jmp 8b
END warm.cold
  .text";
    let module = assemble(source);
    let warm = module.function(function(&module, "warm"));
    assert_eq!(warm.ranges.len(), 2);
    assert!(module.find("warm.cold").is_empty());
    let flow = flow(&module, "warm");
    assert!(flow.edges().iter().all(|e| matches!(e.to, Target::Block(_) | Target::Caller)));
    assert_eq!(module.function_at(warm.ranges[1].start), Some(flow.function()));
}

#[test]
fn a_function_may_call_its_own_next_instruction() {
    let module = assemble("FUNC here\n call 1f\n1: pop %rax\n ret\nEND here");
    let flow = flow(&module, "here");
    assert_eq!(flow.instructions().len(), 3);
    assert!(flow.edges().iter().any(|e| e.kind == EdgeKind::Call));
    assert_eq!(module.functions().iter().filter(|f| !f.names.is_empty()).count(), 1);
}

#[test]
fn instructions_that_are_hard_to_move_are_marked() {
    let source = "
FUNC marked
  endbr64
  mov 1f(%rip), %eax
  syscall
1: jrcxz 1b
  call *%rax
  int3
  ret
END marked";
    let flow = flow(&assemble(source), "marked");
    let marks: Vec<Marks> = flow.instructions().iter().map(|i| i.marks).collect();
    let one_each = [
        Marks::LANDING,
        Marks::RELATIVE,
        Marks::SYSCALL,
        Marks::SHORT,
        Marks::INDIRECT,
        Marks::TRAP,
        Marks::RETURN,
    ];
    assert_eq!(marks.len(), one_each.len());
    assert!(marks.iter().zip(one_each).all(|(marks, one)| marks.contains(one)), "{marks:?}");
}

#[test]
fn exceptions_go_to_landing_pads() {
    let source = "
void may_throw(int);
struct Guard { ~Guard(); };
int catches(int n) {
  try { Guard guard; may_throw(n); } catch (int caught) { return caught; }
  return 0;
}";
    let module = build("c++", "cc", source, &["-O2", "-shared", "-fPIC"]);
    let flow = flow(&module, "_Z7catchesi");
    let pads = blocks_by(&flow, |e| e.kind == EdgeKind::Unwind);
    assert!(!pads.is_empty());
    // No other way leads there.
    assert!(blocks_by(&flow, |e| e.kind != EdgeKind::Unwind).iter().all(|b| !pads.contains(b)));
}

#[test]
fn a_static_program_is_understood() {
    let source = "int main(int n, char **v) { return n + (v[0] != 0); }";
    let module = build("cc", "c", source, &["-O2", "-static"]);
    assert!(module.functions().len() > 300);
    let main = flow(&module, "main");
    assert!(main.targets_known() && !main.blocks().is_empty());
    assert!(!module.returns(function(&module, "abort")));
    assert!(module.returns(function(&module, "malloc")));
}
