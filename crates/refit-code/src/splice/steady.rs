//! Whether threads of a program keep the thread pointer (`fs`) that the C library has given them.
//!
//! Snippets read the number of the processor, and of the thread, from the C library's area of the thread. A program with threads of its own
//! may have other thread pointers at times, and what they lead to need not be mapped. It can set them in two ways, by `wrfsbase` and by the
//! system call `arch_prctl`; its files show whether it has either. The C library and the dynamic linker have, for the beginning of
//! a thread. A file that only seems to costs some nanoseconds each time that something is counted: snippets ask the processor then.

use refit_sys::maps::Mapping;

use crate::process::{Program, Refusal};

/// The number of `arch_prctl` as the operand of `mov eax` or `mov edi`, for `syscall` and for a function of that name; in 64 bits, too.
const NUMBERS: [&[u8]; 4] = [
    &[0xb8, 158, 0, 0, 0],
    &[0xbf, 158, 0, 0, 0],
    &[0x48, 0xc7, 0xc0, 158, 0, 0, 0],
    &[0x48, 0xc7, 0xc7, 158, 0, 0, 0],
];
/// Its name, among those that a file imports.
const NAME: &[u8] = b"\0arch_prctl\0";
/// How much of a mapping is looked at: names stand at the beginning of a file.
const MOST: u64 = 64 << 20;

/// Whether nothing in the files whose code a program runs sets thread pointers.
///
/// # Errors
/// [`Refusal`]: it has ended.
pub(super) fn keeps_thread_pointers(program: &Program) -> Result<bool, Refusal> {
    let mappings = program.mappings()?;
    let of_files = mappings.iter().filter(|one| one.file.1 != 0 && !one.writable && one.readable);
    let own = of_files.filter(|one| !is_of_the_library(one));
    Ok(!own.into_iter().any(|mapping| sets_thread_pointers(program, mapping)))
}

/// Whether it is of the C library, or of the dynamic linker.
fn is_of_the_library(mapping: &Mapping) -> bool {
    let name = mapping.name.file_name().unwrap_or_default().to_string_lossy();
    ["libc.so", "libc-2", "libpthread", "ld-linux", "ld-2", "ld-musl", "libc.musl"]
        .iter()
        .any(|known| name.starts_with(known))
}

fn sets_thread_pointers(program: &Program, mapping: &Mapping) -> bool {
    let length = (mapping.range.end - mapping.range.start).min(MOST);
    let mut bytes = vec![0; length as usize];
    if program.read(mapping.range.start, &mut bytes).is_err() {
        return false;
    }
    if !mapping.executable {
        return bytes.windows(NAME.len()).any(|window| window == NAME);
    }
    let number = |at: &[u8]| NUMBERS.iter().any(|number| at.starts_with(number));
    (0..bytes.len()).any(|at| match bytes[at] {
        0xb8 | 0xbf | 0x48 => number(&bytes[at..]),
        0xf3 => writes_base(&bytes[at + 1..]),
        _ => false,
    })
}

/// Whether this is `wrfsbase` behind its prefix: `0f ae /2` of a register.
fn writes_base(code: &[u8]) -> bool {
    let code = match code {
        [0x40..=0x4f, rest @ ..] => rest,
        code => code,
    };
    matches!(code, [0x0f, 0xae, 0xd0..=0xd7, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instruction_is_known_with_and_without_a_prefix() {
        assert!(writes_base(&[0x0f, 0xae, 0xd7]) && writes_base(&[0x48, 0x0f, 0xae, 0xd0]));
        // `rdfsbase`, `wrgsbase`.
        assert!(!writes_base(&[0x48, 0x0f, 0xae, 0xc0]) && !writes_base(&[0x0f, 0xae, 0xd8]));
    }
}
