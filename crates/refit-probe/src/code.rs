//! Reads single instructions of a file, the padding between its functions, and entries past the
//! beginning of a function.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic};
use refit_analysis::Module;
use refit_analysis::functions::Function;

/// Decodes the instruction at an address of the file; `None` if there is none.
pub fn decode(module: &Module, address: u64) -> Option<Instruction> {
    let bytes = (1..=15).rev().find_map(|length| module.bytes(address, length))?;
    let found = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    (!found.is_invalid()).then_some(found)
}

/// Returns the address after the `endbr64` at `address`, which has to stay in place, or `address`
/// if there is none.
pub(crate) fn behind_mark(module: &Module, address: u64) -> u64 {
    match decode(module, address) {
        Some(mark) if mark.code() == Code::Endbr64 => mark.next_ip(),
        _ => address,
    }
}

/// Returns the addresses within a function that others jump to or call.
pub(crate) fn entered_inside(module: &Module, function: &Function) -> impl Iterator<Item = u64> {
    function.ranges.iter().flat_map(move |range| {
        let next = move |from: u64| module.entered_inside(from..range.end);
        std::iter::successors(next(range.start), move |&last| next(last + 1))
    })
}

/// Counts the bytes of padding from `address` on.
pub(crate) fn padding(module: &Module, address: u64) -> usize {
    let mut at = address;
    while at < address + 16 && module.function_at(at).is_none() {
        match decode(module, at) {
            Some(filler) if fills(&filler) => at = filler.next_ip(),
            _ => break,
        }
    }
    (at - address) as usize
}

/// Whether compilers use the instruction as padding.
pub(crate) fn fills(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        // `xchg ax, ax`: some assemblers fill two bytes with it.
        || instruction.code() == Code::Xchg_r16_AX
}
