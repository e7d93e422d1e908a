//! Whether the callers of a function use what it leaves in a register.

use iced_x86::{Decoder, DecoderOptions};
use refit_analysis::functions::Sources;
use refit_analysis::image::Kind;
use refit_analysis::{FunctionId, Module};

/// Bytes of a displacement, and of an address that fits into so many.
const DISPLACEMENT: usize = 4;

/// Whether something may use a register when a function returns: code that is not known, or a
/// caller in which the register is live after its call. All bytes of code that may be a reference
/// to the function are looked at.
pub(crate) fn use_result(module: &Module, id: FunctionId, register: u8) -> bool {
    let function = module.function(id);
    let (entry, image) = (function.entry, module.image());
    let fixed = matches!(image.kind(), Kind::Fixed | Kind::Static);
    let elsewhere = [Sources::EXPORT, Sources::START, Sources::RESOLVER];
    if fixed
        || elsewhere.iter().any(|&one| function.sources.contains(one))
        || image.points_within(entry..entry + 1, u64::MAX)
    {
        return true;
    }
    image.code().iter().any(|code| {
        let length = (code.addresses.end - code.addresses.start) as usize;
        let Some(bytes) = module.bytes(code.addresses.start, length) else { return true };
        let mut references = bytes.windows(DISPLACEMENT).enumerate().filter(|(at, bytes)| {
            let displacement = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let behind = code.addresses.start + (at + DISPLACEMENT) as u64;
            // Zeros before the entry are padding.
            displacement != 0 && behind.wrapping_add_signed(displacement.into()) == entry
        });
        references.any(|(at, _)| uses(module, code.addresses.start + at as u64, entry, register))
    })
}

/// Whether the byte before a displacement may be that of a call, a jump, or an operand relative to
/// the instruction pointer; padding has no such bytes.
fn may_refer(module: &Module, displacement: u64) -> bool {
    let before = module.bytes(displacement - 1, 1).and_then(<[u8]>::first);
    before.is_none_or(|&byte| {
        matches!(byte, 0xe8 | 0xe9 | 0x80..=0x8f) || byte & 0b1100_0111 == 0b0000_0101
    })
}

/// Whether what refers to the function by a displacement at this address uses the register.
fn uses(module: &Module, displacement: u64, entry: u64, register: u8) -> bool {
    let Some(caller) = module.function_at(displacement) else {
        return may_refer(module, displacement);
    };
    let flow = module.flow(caller);
    // `call` is one byte and a displacement.
    let call = flow.instruction_at(displacement - 1).filter(|one| {
        one.length as usize == 1 + DISPLACEMENT
            && one.marks.contains(refit_analysis::flow::Marks::CALL)
    });
    match call {
        Some(call) => flow.live_before(call.end()).general(register),
        // Other bytes are a number by chance, or the instruction takes the address, or jumps there.
        None => flow.instructions().iter().any(|one| {
            let covers = one.address < displacement && displacement < one.end();
            covers && refers(module, one.address, usize::from(one.length), entry)
        }),
    }
}

/// Whether an instruction jumps to an address, or has an operand there.
fn refers(module: &Module, address: u64, length: usize, entry: u64) -> bool {
    let Some(bytes) = module.bytes(address, length) else { return true };
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    let relative = instruction.is_ip_rel_memory_operand();
    instruction.near_branch_target() == entry
        || (relative && instruction.ip_rel_memory_address() == entry)
}
