//! Whether the callers of a function use what it leaves in a register.

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
        references.any(|(at, _)| uses(module, code.addresses.start + at as u64, register))
    })
}

/// Whether what refers to the function by a displacement at this address uses the register.
fn uses(module: &Module, displacement: u64, register: u8) -> bool {
    let Some(caller) = module.function_at(displacement) else { return true };
    let flow = module.flow(caller);
    // `call` is one byte and a displacement.
    let call = flow.instruction_at(displacement - 1).filter(|one| {
        one.length as usize == 1 + DISPLACEMENT
            && one.marks.contains(refit_analysis::flow::Marks::CALL)
    });
    match call {
        Some(call) => flow.live_before(call.end()).general(register),
        // Bytes that look like it by chance, within an instruction that does not have it at its
        // end, or an instruction that takes its address.
        None => flow.instructions().iter().any(|one| one.end() == displacement + 4),
    }
}
