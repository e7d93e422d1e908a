//! Single instructions of a file, the filling between its functions, and where functions are entered past their beginning.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic};
use refit_analysis::Module;
use refit_analysis::functions::Function;

/// Returns the instruction at an address of the file; `None` where there is none.
pub(crate) fn decode(module: &Module, address: u64) -> Option<Instruction> {
    let bytes = (1..=15).rev().find_map(|length| module.bytes(address, length))?;
    let found = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    (!found.is_invalid()).then_some(found)
}

/// The address, or the one behind what marks the target of an indirect jump, which stays where it is.
pub(crate) fn behind_mark(module: &Module, address: u64) -> u64 {
    match decode(module, address) {
        Some(mark) if mark.code() == Code::Endbr64 => mark.next_ip(),
        _ => address,
    }
}

/// Addresses within a function that others jump or call to.
pub(crate) fn entered_inside(module: &Module, function: &Function) -> impl Iterator<Item = u64> {
    function.ranges.iter().flat_map(move |range| {
        let next = move |from: u64| module.entered_inside(from..range.end);
        std::iter::successors(next(range.start), move |&last| next(last + 1))
    })
}

/// Bytes from `address` on that are there to fill a gap.
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

/// Whether the instruction is one that compilers fill gaps with.
pub(crate) fn fills(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        // `xchg ax, ax`, as some assemblers fill two bytes.
        || instruction.code() == Code::Xchg_r16_AX
}
