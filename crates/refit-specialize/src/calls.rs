//! Calls of a function with a constant argument.

use std::collections::BTreeMap;

use refit_analysis::Module;
use refit_probe::code::decode;
use refit_probe::direct_calls;
use refit_splice::process::Program;
use refit_splice::{ConstantCall, DISPLACEMENT, DirectCall};

use crate::constants::NoConstants;
use crate::evaluate::Evaluator;
use crate::state::State;

/// The function that is called.
#[derive(Clone, Copy, Debug)]
pub struct Callee {
    /// The address of its entry in the file.
    pub entry: u64,
    /// The address in the program at which control enters its versions.
    pub site: u64,
    /// Number of the general register that chooses the version.
    pub register: u8,
}

/// Returns the direct calls in a file, mapped `bias` bytes from its addresses, at which the
/// register always has the value of a version. Calls whose bytes differ from the file's are left
/// out.
pub fn constant_calls(
    program: &Program,
    (module, bias): (&Module, u64),
    callee: &Callee,
    values: &[u64],
) -> Vec<ConstantCall> {
    let sites = BTreeMap::from([(callee.entry, callee.site)]);
    let calls = direct_calls::find(program, module, bias, &sites, |_| true);
    let constant = |call: DirectCall| {
        let value = value_at(module, call.address.wrapping_sub(bias), callee.register)?;
        let version = values.iter().position(|&one| one == value)?;
        Some(ConstantCall { call, version })
    };
    calls.into_iter().filter_map(constant).collect()
}

/// Returns the value of a register at the call with this displacement, if the instructions before
/// it in its block tell.
fn value_at(module: &Module, displacement: u64, register: u8) -> Option<u64> {
    let flow = module.flow(module.function_at(displacement)?);
    let end = displacement + DISPLACEMENT as u64;
    let all = [1, 2].into_iter().filter_map(|opcode| flow.instruction_at(displacement - opcode));
    let call = all.into_iter().find(|one| one.end() == end)?;
    let (_, block) = flow.block_at(call.address)?;
    let mut evaluator = Evaluator::new(&NoConstants);
    let mut state = State::default();
    for one in flow.block_instructions(block).take_while(|one| one.address < call.address) {
        evaluator.step(&decode(module, one.address)?, &mut state);
    }
    state.whole(register.into()).whole()
}
