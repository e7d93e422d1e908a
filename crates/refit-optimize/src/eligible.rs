//! The functions whose calls can be made from copies.
//!
//! To some functions a return address is more than a place to return to: those that save it where
//! refit cannot find it (`setjmp` keeps it encrypted, the child of `vfork` uses up the one of its
//! parent), and those that look up the file of their caller (`dlsym`). Functions that call them
//! stay where they are. So do programs whose return addresses cannot be changed, and files with an
//! unwinder.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use refit_analysis::flow::{Flow, Marks, imported};
use refit_analysis::functions::Sources;
use refit_analysis::{FunctionId, Module};
use refit_probe::code::decode;
use refit_probe::files::Files;
use refit_probe::watch;
use refit_splice::process::Program;
use refit_sys::status::Status;

/// Names of these functions in C libraries, without what precedes and follows them there.
const NAMES: [&str; 14] = [
    "setjmp",
    "sigsetjmp",
    "savectx",
    "getcontext",
    "swapcontext",
    "makecontext",
    "vfork",
    "dlopen",
    "dlmopen",
    "dlsym",
    "dlvsym",
    "mcount",
    "fentry",
    "dl_iterate_phdr",
];
/// Beginnings of the names of functions of unwinders, which look up the frames of their callers.
const UNWINDERS: [&str; 8] = [
    "Unwind_",
    "uw_",
    "execute_cfa_program",
    "execute_stack_op",
    "dl_find_object",
    "gxx_personality",
    "gcc_personality",
    "cxa_",
];
/// The function that unwinders ask for frames.
const FINDER: &str = "_Unwind_Find_FDE";
/// Offset from the thread pointer of the word with which glibc encrypts addresses.
const POINTER_GUARD: u64 = 0x30;
/// Number of instructions of a called function that are looked at.
const LOOKED_AT: usize = 64;

/// Whether a thread has a shadow stack, as Linux 6.6 and later report.
pub fn has_shadow_stack(program: &Program) -> bool {
    let status = Status::of(program.face()).unwrap_or_default();
    let features = status.line("x86_Thread_features").unwrap_or_default();
    features.split_whitespace().any(|feature| feature == "shstk")
}

/// Whether a file of a program has the unwinder of exceptions in itself. A program without other
/// files has everything in itself.
///
/// # Errors
/// [`watch::Error`]: the file cannot be analysed.
pub fn has_unwinder(files: &mut Files, file: usize) -> Result<bool, watch::Error> {
    let is_static = files.all().len() == 1;
    let (module, _) = files.open(file)?;
    let unwinds = |id: &FunctionId| !module.function(*id).sources.contains(Sources::STUB);
    Ok(is_static || module.find(FINDER).iter().any(unwinds))
}

/// Whether a function may run in a copy, and all its calls be made from there.
pub fn calls_can_move(module: &Module, flow: &Flow) -> bool {
    if module.function(flow.function()).names.iter().any(|name| unwinds(name)) {
        return false;
    }
    let calls = flow.instructions().iter().filter(|one| one.marks.contains(Marks::CALL));
    let mut calls = calls.filter_map(|one| decode(module, one.address));
    let mut jumps = flow.instructions().iter().filter(|one| one.marks.contains(Marks::JUMP));
    let leaves = |one: &refit_analysis::flow::Instruction| {
        decode(module, one.address).is_none_or(|jump| !depends(module, &jump))
    };
    calls.all(|call| !depends(module, &call)) && jumps.all(leaves)
}

/// Whether a call or a jump leads to a function to which its return address means more.
fn depends(module: &Module, call: &Instruction) -> bool {
    if let Some(name) = imported(module.image(), call) {
        return is_listed(name);
    }
    if call.op0_kind() != OpKind::NearBranch64 {
        return false;
    }
    let target = call.near_branch_target();
    let Some(id) = module.function_at(target) else { return false };
    let function = module.function(id);
    function.names.iter().any(|name| is_listed(name))
        || (function.entry == target && encrypts(module, id))
}

/// Whether this is the name of such a function, among others `__sigsetjmp` and `_setjmp@plt`.
fn is_listed(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name).trim_start_matches('_');
    NAMES.contains(&name)
}

/// Whether this is the name of a function of an unwinder.
fn unwinds(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    UNWINDERS.iter().any(|begin| name.starts_with(begin))
}

/// Whether the beginning of a function encrypts an address, as `setjmp` does.
fn encrypts(module: &Module, function: FunctionId) -> bool {
    let range = module.function(function).ranges.first();
    let Some(range) = range else { return false };
    let length = (range.end - range.start).min(15 * LOOKED_AT as u64) as usize;
    let Some(bytes) = module.bytes(range.start, length) else { return false };
    let decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
    let until = |one: &Instruction| one.flow_control() != FlowControl::Return;
    decoder.into_iter().take(LOOKED_AT).take_while(until).any(|one| {
        one.segment_prefix() == Register::FS
            && one.memory_base() == Register::None
            && one.memory_displacement64() == POINTER_GUARD
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decorated_names_are_known() {
        for name in ["_setjmp", "__sigsetjmp@GLIBC_2.2.5", "vfork@plt", "dlsym"] {
            assert!(is_listed(name), "{name}");
        }
        assert!(!is_listed("longjmp") && !is_listed("my_setjmp2"));
    }

    #[test]
    fn functions_of_the_shell_that_set_jumps_stay() {
        let module = Module::open("/bin/bash").expect("a program");
        let all = (0..module.functions().len() as u32).map(FunctionId);
        let stay = all.filter(|&id| !calls_can_move(&module, &module.flow(id))).count();
        assert!((1..module.functions().len() / 4).contains(&stay), "{stay}");
    }
}
