//! Finds where nongnu libunwind looks up frame descriptions of code that was made at run time: the
//! list to which `_U_dyn_register` adds.
//!
//! The list and what libunwind remembers have no names that other files see, so both are read from
//! the code of functions that have: `_U_dyn_info_list_addr` returns the address of the list,
//! `unw_flush_cache` increments the number whose change invalidates what is remembered, and
//! `dwarf_search_unwind_table` reads an entry of the list, whose layout has changed with versions
//! 1.6 and 1.9. Code that is not as expected means that nothing is registered.

use std::ops::Range;

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use refit_analysis::Module;
use refit_splice::process::Program;
use refit_splice::{DynamicList, WALKERS, Walker};

use crate::code::{behind_mark, decode};
use crate::files::Files;

/// Names of its files, as they begin. Files into which it is linked are searched if they are
/// probed, and the program's own in any case.
const FILES: [&str; 2] = ["libunwind.so", "libunwind-x86_64.so"];
/// The function that returns the address of the list.
const LIST: &str = "_U_dyn_info_list_addr";
/// Beginnings of the names of its functions: for the own process only, for any process, and for
/// the list.
const PREFIXES: [&str; 3] = ["_ULx86_64_", "_Ux86_64_", "_U_dyn_"];
/// Functions without such a name that read entries of the list.
const READERS: [&str; 2] = ["find_reg_state", "fetch_proc_info"];
/// Offsets, in an entry of the list, of words that are read only if there is a load offset: the
/// load offset itself, and the address of the index.
const WITH_LOAD_OFFSET: [u64; 2] = [0x30, 0x50];
/// Offset of the address of the index without it.
const WITHOUT_LOAD_OFFSET: u64 = 0x48;

/// Returns the list of the program's libunwind; `None` if it has none.
pub(crate) fn find(program: &Program, files: &mut Files) -> Option<DynamicList> {
    let mut found: Option<(u64, bool)> = None;
    let mut walkers = Vec::new();
    for file in files.all() {
        let name = files.mapped(file).name();
        let is_library = FILES.iter().any(|begin| name.starts_with(begin));
        if is_library || files.mapped(file).is_program_with(program, LIST) {
            // What has ended, or cannot be read, is reported by the installation.
            files.open(file).ok()?;
        }
        let Some((module, bias)) = files.opened(file) else { continue };
        if let Some(list) = list(module) {
            found = found.or(Some((list.wrapping_add(bias), has_load_offset(module)?)));
        } else if !is_library {
            continue;
        }
        // Without all of them, what they remember would be wrong later.
        walkers.push(walker(program, module, bias, is_library)?);
    }
    let (address, has_load_offset) = found?;
    (walkers.len() <= WALKERS).then_some(DynamicList { address, has_load_offset, walkers })
}

/// Returns the address of the list in the file.
fn list(module: &Module) -> Option<u64> {
    let function = function(module, LIST)?;
    let load = decode(module, behind_mark(module, function.start))?;
    let address = match load.code() {
        Code::Lea_r64_m if load.is_ip_rel_memory_operand() => load.ip_rel_memory_address(),
        // Code that is not moved.
        Code::Mov_r32_imm32 => load.immediate32().into(),
        Code::Mov_rm64_imm32 => load.immediate32to64().cast_unsigned(),
        _ => return None,
    };
    let returns = decode(module, load.next_ip())?.mnemonic() == Mnemonic::Ret;
    (load.op0_register().full_register() == Register::RAX && returns).then_some(address)
}

/// Whether entries of the list have a load offset; `None` if the code does not say so.
fn has_load_offset(module: &Module) -> Option<bool> {
    let search = named(module, "dwarf_search_unwind_table")?;
    // Registers with the address of the entry, which is the third argument.
    let mut entry = vec![Register::RDX];
    let mut read = Vec::new();
    for one in instructions(module, search) {
        let memory = (0..one.op_count()).any(|operand| one.op_kind(operand) == OpKind::Memory);
        if memory && entry.contains(&one.memory_base()) {
            read.push(one.memory_displacement64());
        }
        // Calls keep the other copies, and no way through the code overwrites them before its end.
        let writes = one.op0_register() == Register::RDX && one.mnemonic() == Mnemonic::Mov;
        if one.code() == Code::Mov_rm64_r64 && entry.contains(&one.op1_register()) {
            entry.push(one.op0_register());
        } else if writes || one.mnemonic() == Mnemonic::Call {
            entry.retain(|register| *register != Register::RDX);
        }
    }
    let has = |offset: &u64| read.contains(offset);
    match (WITH_LOAD_OFFSET.iter().all(has), WITH_LOAD_OFFSET.iter().any(has)) {
        (true, _) => Some(true),
        (_, false) if has(&WITHOUT_LOAD_OFFSET) => Some(false),
        _ => None,
    }
}

/// Returns what the program's libunwind in this file remembers, and where its code is.
fn walker(program: &Program, module: &Module, bias: u64, is_library: bool) -> Option<Walker> {
    let flush = named(module, "flush_cache")?;
    let counts = |one: &Instruction| {
        let based = one.memory_base() != Register::None && one.memory_index() == Register::None;
        one.has_lock_prefix() && based && !one.is_ip_rel_memory_operand()
    };
    let offset = instructions(module, flush).find(counts)?.memory_displacement64();
    let names = PREFIXES.iter().map(|prefix| format!("{prefix}local_addr_space"));
    let space = names.into_iter().find_map(|name| module.image().variable(&name))?;
    let space = program.word(space.wrapping_add(bias)).ok().filter(|&space| space != 0)?;
    let code = code(module, is_library)?;
    let code = code.start.wrapping_add(bias)..code.end.wrapping_add(bias);
    Some(Walker { generation: space.wrapping_add(offset), code })
}

/// Returns addresses that contain libunwind's code in the file.
fn code(module: &Module, is_library: bool) -> Option<Range<u64>> {
    let image = module.image();
    // Linkers put cold parts elsewhere. Those of functions with such names only lead to `abort`.
    let own = |name: &str| {
        let own =
            PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !name.ends_with(".cold");
        own || READERS.iter().any(|reader| name.starts_with(reader))
    };
    let functions = image.symbols().iter().filter(|symbol| own(&symbol.name));
    let hull = functions.map(|symbol| symbol.address..symbol.address + symbol.size);
    let hull = hull.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end))?;
    if !is_library {
        return Some(hull);
    }
    let mut segments = image.segments().iter();
    segments.find(|one| one.addresses.contains(&hull.start)).map(|one| one.addresses.clone())
}

/// Returns the addresses of the variant of a function for the own process, or else of that for any.
fn named(module: &Module, name: &str) -> Option<Range<u64>> {
    PREFIXES.iter().find_map(|prefix| function(module, &format!("{prefix}{name}")))
}

fn function(module: &Module, name: &str) -> Option<Range<u64>> {
    let symbol = module.image().symbols().iter().find(|symbol| &*symbol.name == name)?;
    Some(symbol.address..symbol.address + symbol.size)
}

/// Decodes the instructions at these addresses of the file.
fn instructions(module: &Module, range: Range<u64>) -> impl Iterator<Item = Instruction> {
    let first = decode(module, range.start);
    std::iter::successors(first, |last| decode(module, last.next_ip()))
        .take_while(move |one| one.ip() < range.end)
}
