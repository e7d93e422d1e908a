//! Formats instructions.

use iced_x86::{
    Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, SymbolResolver, SymbolResult,
};

/// Formats the instruction that `bytes` at `address` encode, in Intel's notation; `name_of` names
/// functions by their entries.
pub(crate) fn text(bytes: &[u8], address: u64, name_of: impl Fn(u64) -> Option<String>) -> String {
    let decoded = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    // The formatter takes ownership of its names, so it gets only those that this instruction can
    // mention.
    let targets = [decoded.near_branch_target(), decoded.memory_displacement64()];
    let named = targets.iter().filter_map(|at| Some((*at, name_of(*at)?)));
    let names = Box::new(Names(named.collect()));
    let mut formatter = IntelFormatter::with_options(Some(names), None);
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_space_after_operand_separator(true);
    options.set_branch_leading_zeros(false);
    let mut text = String::new();
    formatter.format(&decoded, &mut text);
    text
}

/// Names of a few addresses.
struct Names(Vec<(u64, String)>);

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        _instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        let (_, name) = self.0.iter().find(|(at, _)| *at == address)?;
        Some(SymbolResult::with_str(address, name.as_str()))
    }
}
