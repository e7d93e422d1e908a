//! Checks whether the threads of a program keep the thread pointer (`fs`) that the C library set.
//!
//! Snippets read the number of the processor, and of the thread, from the C library's thread area.
//! A program that implements its own threads may set other thread pointers at times, and the memory
//! that they point to need not be mapped. It can set them in two ways, by `wrfsbase` and by the
//! system call `arch_prctl`; its files show whether they contain either. The C library and the
//! dynamic linker use these to start threads, and are excepted. A false alarm costs some
//! nanoseconds for each count: snippets then read the processor number by `rdpid`.

use memchr::memmem;
use refit_sys::maps::Mapping;

use crate::process::{Program, Refusal};

/// Encodings of `mov eax` with the number of `arch_prctl`, before `syscall`.
const NUMBERS: [&[u8]; 2] = [&[0xb8, 158, 0, 0, 0], &[0x48, 0xc7, 0xc0, 158, 0, 0, 0]];
const SYSCALL: &[u8] = &[0x0f, 0x05];
/// The same number as the first argument (`mov edi`) of a call of the C library's `syscall`.
const ARGUMENTS: [&[u8]; 2] = [&[0xbf, 158, 0, 0, 0], &[0x48, 0xc7, 0xc7, 158, 0, 0, 0]];
const CALLS: [&[u8]; 2] = [&[0xe8], &[0xff]];
/// Maximum number of bytes from the number to the call: other arguments are set in between.
const NEAR: usize = 64;
/// Name of the function; in a file that imports it, a zero precedes it and one follows it.
const NAME: &[u8] = b"arch_prctl";
/// Maximum number of bytes of a mapping that are searched: names are at the beginning of a file.
const MOST: u64 = 64 << 20;

/// Returns whether no file whose code the program runs sets thread pointers.
///
/// # Errors
/// [`Refusal`]: the program has ended.
pub(crate) fn keeps_thread_pointers(program: &Program) -> Result<bool, Refusal> {
    let mappings = program.mappings()?;
    let of_files = mappings.iter().filter(|one| one.file.1 != 0 && !one.writable && one.readable);
    let own = of_files.filter(|one| !is_of_the_library(one));
    Ok(!own.into_iter().any(|mapping| sets_thread_pointers(program, mapping)))
}

/// Whether the mapping is of the C library or the dynamic linker.
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
    match mapping.executable {
        true => has_code_for_it(&bytes),
        false => imports_it(&bytes),
    }
}

fn imports_it(bytes: &[u8]) -> bool {
    let zero = |at: usize| bytes.get(at) == Some(&0);
    memmem::find_iter(bytes, NAME).any(|at| at > 0 && zero(at - 1) && zero(at + NAME.len()))
}

/// Whether these bytes contain an instruction that sets a thread pointer, at any offset.
fn has_code_for_it(bytes: &[u8]) -> bool {
    let calls = |numbers: [&[u8]; 2], call: &[&[u8]]| {
        numbers.iter().any(|number| {
            memmem::find_iter(bytes, number).any(|at| {
                let behind = &bytes[at + number.len()..];
                let near = &behind[..behind.len().min(NEAR)];
                call.iter().any(|call| memmem::find(near, call).is_some())
            })
        })
    };
    calls(NUMBERS, &[SYSCALL])
        || calls(ARGUMENTS, &CALLS)
        || memmem::find_iter(bytes, &[0x0f, 0xae])
            .any(|at| (1..=2).any(|before| at >= before && writes_base(&bytes[at - before..])))
}

/// Whether this is `wrfsbase`: `f3`, perhaps a prefix, `0f ae /2` of a register.
fn writes_base(code: &[u8]) -> bool {
    let [0xf3, code @ ..] = code else { return false };
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
        assert!(has_code_for_it(&[0x90, 0xf3, 0x0f, 0xae, 0xd7]));
        assert!(has_code_for_it(&[0xf3, 0x48, 0x0f, 0xae, 0xd0]));
        // `rdfsbase`, `wrgsbase`.
        assert!(!has_code_for_it(&[0xf3, 0x48, 0x0f, 0xae, 0xc0]));
        assert!(!has_code_for_it(&[0xf3, 0x0f, 0xae, 0xd8]));
    }

    #[test]
    fn the_name_counts_where_it_is_one_of_a_table() {
        assert!(imports_it(b"\0syscall\0arch_prctl\0"));
        assert!(!imports_it(b"\0my_arch_prctl\0") && !imports_it(b"arch_prctl\0"));
        assert!(!imports_it(b"\0arch_prctl and more\0") && !imports_it(b"\0arch_prctl"));
    }

    #[test]
    fn the_number_counts_where_a_call_is_made_with_it() {
        let number = |before: u8| [before, 158, 0, 0, 0];
        let then = |number: [u8; 5], between: usize, call: &[u8]| {
            [&number[..], &vec![0x90; between], call].concat()
        };
        assert!(has_code_for_it(&then(number(0xb8), 20, SYSCALL)));
        assert!(has_code_for_it(&then(number(0xbf), 20, &[0xe8, 1, 2, 3, 4])));
        assert!(has_code_for_it(&then(number(0xbf), 20, &[0xff, 0x15, 1, 2, 3, 4])));
        // The number in a comparison, or a line of source.
        assert!(!has_code_for_it(&then(number(0xb8), 20, &[0xc3])));
        assert!(!has_code_for_it(&then(number(0xb8), 2 * NEAR, SYSCALL)));
        assert!(!has_code_for_it(&then(number(0xbf), 20, &[0xc3])));
    }
}
