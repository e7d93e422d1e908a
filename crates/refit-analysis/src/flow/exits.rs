//! The ways in which control leaves an instruction, and names that tell whether it does.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::image::Image;

/// The way in which control leaves an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// To the next instruction.
    Next,
    /// To this address.
    Jump(u64),
    /// To this address or to the next instruction.
    Branch(u64),
    /// To the function at this address, and to the next instruction when it returns.
    Call(u64),
    /// To an unknown function, and to the next instruction when it returns.
    CallIndirect,
    /// To an address in a register or in memory.
    JumpIndirect,
    /// To the caller of the function.
    Return,
    /// Nowhere: it always faults.
    Stop,
}

/// Returns how control leaves `instruction`.
pub(crate) fn exit_of(instruction: &Instruction) -> Exit {
    let target = || instruction.near_branch_target();
    match instruction.flow_control() {
        FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => Exit::Stop,
        FlowControl::Next | FlowControl::Interrupt => Exit::Next,
        FlowControl::UnconditionalBranch if is_near(instruction) => Exit::Jump(target()),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => Exit::JumpIndirect,
        FlowControl::ConditionalBranch => Exit::Branch(target()),
        FlowControl::Return => Exit::Return,
        FlowControl::Call if instruction.code() == Code::Call_rel32_64 => Exit::Call(target()),
        FlowControl::Call if is_system_call(instruction) => Exit::Next,
        FlowControl::Call | FlowControl::IndirectCall => Exit::CallIndirect,
        FlowControl::XbeginXabortXend if is_near(instruction) => Exit::Branch(target()),
        FlowControl::XbeginXabortXend => Exit::Next,
        FlowControl::Exception => Exit::Stop,
    }
}

fn is_near(instruction: &Instruction) -> bool {
    instruction.is_jmp_short_or_near() || instruction.mnemonic() == Mnemonic::Xbegin
}

/// Whether the instruction is a system call.
pub(crate) fn is_system_call(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter)
}

/// Returns the address of the word that an indirect jump or call reads its target from, as an
/// address of the file; `None` if the address depends on registers.
pub fn slot(instruction: &Instruction) -> Option<u64> {
    let direct = instruction.is_ip_rel_memory_operand()
        || (instruction.memory_base() == Register::None
            && instruction.memory_index() == Register::None
            && instruction.memory_displ_size() != 0
            && instruction.segment_prefix() == Register::None);
    direct.then(|| instruction.memory_displacement64())
}

/// Returns the name of the imported function that an indirect jump or call goes to, through a word
/// that the loader fills.
pub(crate) fn import<'a>(image: &'a Image, instruction: &Instruction) -> Option<&'a str> {
    image.import_at(slot(instruction)?)
}

/// Returns the name of the imported function that a jump or call goes to: through a word that the
/// loader fills, or by a stub that jumps through one.
pub fn imported<'a>(image: &'a Image, instruction: &Instruction) -> Option<&'a str> {
    if instruction.op0_kind() == OpKind::NearBranch64 {
        stub_target(image, instruction.near_branch_target())
    } else {
        import(image, instruction)
    }
}

/// Returns the name of the imported function that the stub at `address` jumps to.
pub(crate) fn stub_target(image: &Image, address: u64) -> Option<&str> {
    image.import_at(stub_slot(image, address)?)
}

/// Returns the address of the word that the stub of the procedure linkage table at `address` reads
/// its target from; `None` if no stub is there.
pub fn stub_slot(image: &Image, address: u64) -> Option<u64> {
    let bytes = image.bytes_from(address)?;
    let bytes = &bytes[..bytes.len().min(32)];
    let decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let jump = decoder.into_iter().find(|i| i.mnemonic() != Mnemonic::Endbr64)?;
    if exit_of(&jump) != Exit::JumpIndirect {
        return None;
    }
    slot(&jump)
}

/// Whether a library function of this name never returns to its caller.
pub(crate) fn never_returns(name: &str) -> bool {
    const NAMES: [&str; 32] = [
        "_Exit",
        "_Unwind_Resume",
        "_ZSt9terminatev",
        "__assert",
        "__assert_fail",
        "__assert_perror_fail",
        "__chk_fail",
        "__cxa_bad_cast",
        "__cxa_bad_typeid",
        "__cxa_call_terminate",
        "__cxa_call_unexpected",
        "__cxa_deleted_virtual",
        "__cxa_pure_virtual",
        "__cxa_rethrow",
        "__cxa_throw",
        "__cxa_throw_bad_array_length",
        "__cxa_throw_bad_array_new_length",
        "__fortify_fail",
        "__libc_fatal",
        "__longjmp_chk",
        "__stack_chk_fail",
        "__stack_chk_fail_local",
        "_exit",
        "_longjmp",
        "abort",
        "exit",
        "longjmp",
        "pthread_exit",
        "quick_exit",
        "siglongjmp",
        "thrd_exit",
        "__libc_longjmp",
    ];
    let name = name.strip_suffix("@plt").unwrap_or(name);
    // libstdc++'s internal ones: `std::__throw_length_error(char const*)` and similar.
    NAMES.contains(&name) || (name.starts_with("_ZSt") && name.contains("__throw_"))
}

/// Whether functions of this name preserve registers that the ABI lets them change: hooks of
/// profilers, and thunks, which stand for some other function.
pub(crate) fn is_hook(name: &str) -> bool {
    let name = name.strip_suffix("@plt").unwrap_or(name);
    matches!(name, "__fentry__" | "mcount" | "_mcount") || name.starts_with("__x86_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: &[u8]) -> Exit {
        let mut decoder = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE);
        exit_of(&decoder.decode())
    }

    #[test]
    fn every_way_is_known() {
        assert_eq!(one(&[0x90]), Exit::Next);
        assert_eq!(one(&[0xf4]), Exit::Stop, "hlt");
        assert_eq!(one(&[0x0f, 0x0b]), Exit::Stop, "ud2");
        assert_eq!(one(&[0xcc]), Exit::Next, "int3");
        assert_eq!(one(&[0x0f, 0x05]), Exit::Next, "syscall");
        assert_eq!(one(&[0xeb, 0x10]), Exit::Jump(0x1012));
        assert_eq!(one(&[0xe9, 0, 0, 0, 0]), Exit::Jump(0x1005));
        assert_eq!(one(&[0x74, 0x10]), Exit::Branch(0x1012));
        assert_eq!(one(&[0xe3, 0x10]), Exit::Branch(0x1012), "jrcxz");
        assert_eq!(one(&[0xe2, 0x10]), Exit::Branch(0x1012), "loop");
        assert_eq!(one(&[0xc7, 0xf8, 4, 0, 0, 0]), Exit::Branch(0x100a), "xbegin");
        assert_eq!(one(&[0xe8, 0, 0, 0, 0]), Exit::Call(0x1005));
        assert_eq!(one(&[0xff, 0xd0]), Exit::CallIndirect);
        assert_eq!(one(&[0xff, 0xe0]), Exit::JumpIndirect);
        assert_eq!(one(&[0x3e, 0xff, 0xe0]), Exit::JumpIndirect, "notrack");
        assert_eq!(one(&[0xf3, 0xc3]), Exit::Return, "rep ret");
        assert_eq!(one(&[0x06]), Exit::Stop, "not an instruction");
    }

    #[test]
    fn who_never_returns_is_known_by_name() {
        assert!(never_returns("abort@plt"));
        assert!(never_returns("_ZSt20__throw_length_errorPKc"));
        assert!(!never_returns("error"));
    }
}
