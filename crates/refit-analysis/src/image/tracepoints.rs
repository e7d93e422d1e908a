//! Static tracepoints: places that a program's authors have marked for tools (`sys/sdt.h`), from
//! the notes of the file (`.note.stapsdt`).

use object::LittleEndian as LE;
use object::read::elf::SectionHeader;

use super::elf::Elf;
use super::names::Names;

/// Type of the notes.
const KIND: u32 = 3;
const OWNER: &[u8] = b"stapsdt\0";
/// The most arguments of a tracepoint.
const MOST: usize = 12;

/// A place that the authors of a program have marked: an instruction that does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// Name of the program or library that it belongs to.
    pub provider: String,
    /// Its own name, which several places can have.
    pub name: String,
    /// Address of the instruction.
    pub address: u64,
    /// Address of a number of 16 bits: the place is reached only while it is not 0.
    pub semaphore: Option<u64>,
    /// The arguments; `None` for one that is in no general register and not in memory.
    pub arguments: Vec<Option<TracepointArgument>>,
}

/// An argument of a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracepointArgument {
    /// Size in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether it can be negative.
    pub signed: bool,
    /// Where it is.
    pub at: ArgumentPlace,
}

/// Where an argument of a tracepoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentPlace {
    /// Nowhere: it does not change.
    Constant(i64),
    /// In a general register, by its number in machine code, from a bit on.
    Register(u8, u8),
    /// In memory.
    Memory {
        /// The register to which the others are added.
        base: Option<u8>,
        /// A register, and the number by which it is multiplied.
        index: Option<(u8, u8)>,
        /// The distance in bytes.
        offset: i64,
    },
}

/// Reads the tracepoints of a file; those that cannot be are left out.
pub(super) fn read(elf: &Elf) -> Vec<Tracepoint> {
    let Some((_, mut rest)) = elf.section(".note.stapsdt") else { return Vec::new() };
    // The distance by which the file was moved after it was linked.
    let base = elf.section(".stapsdt.base").map(|(section, _)| section.sh_addr(LE));
    let mut names = Names::within(rest.len());
    let mut found = Vec::new();
    while let Some((note, behind)) = note(rest) {
        found.extend(note.and_then(|text| tracepoint(text, base, &mut names)));
        rest = behind;
    }
    found
}

/// Divides at the end of the first note; returns its text if it is a tracepoint.
fn note(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(word))
    };
    let (owner, length, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
    let begin = 12_usize.checked_add(owner.checked_next_multiple_of(4)?)?;
    let end = begin.checked_add(length)?;
    let text = bytes.get(begin..end)?;
    let ours = kind == KIND && bytes.get(12..12 + owner) == Some(OWNER);
    let behind = bytes.get(end.checked_next_multiple_of(4)?..).unwrap_or_default();
    Some((ours.then_some(text), behind))
}

fn tracepoint(text: &[u8], moved: Option<u64>, names: &mut Names) -> Option<Tracepoint> {
    let (words, rest) = text.split_at_checked(24)?;
    let (words, _) = words.as_chunks::<8>();
    let [address, base, semaphore] = [0, 1, 2].map(|at: usize| u64::from_le_bytes(words[at]));
    let distance = moved.map_or(0, |moved| moved.wrapping_sub(base));
    let mut parts = rest.split(|byte| *byte == 0);
    let mut next = || {
        let part = names.read(|| parts.next())?;
        Some(String::from_utf8_lossy(part).into_owned())
    };
    let (provider, name, arguments) = (next()?, next()?, next().unwrap_or_default());
    let arguments = arguments.split_ascii_whitespace().take(MOST).map(given).collect();
    let moved = |address: u64| address.wrapping_add(distance);
    let semaphore = Some(semaphore).filter(|address| *address != 0).map(moved);
    Some(Tracepoint { provider, name, address: moved(address), semaphore, arguments })
}

/// Parses an argument: `-4@%eax`, `8@-16(%rbp,%rcx,8)`, `4@$7`.
fn given(text: &str) -> Option<TracepointArgument> {
    let (size, place) = text.split_once('@')?;
    let signed = size.starts_with('-');
    let bytes = match size.trim_start_matches('-') {
        "1" => 1,
        "2" => 2,
        "4" => 4,
        "8" => 8,
        _ => return None,
    };
    let at = if let Some(number) = place.strip_prefix('$') {
        ArgumentPlace::Constant(number.parse().ok()?)
    } else if let Some(name) = place.strip_prefix('%') {
        let (register, first) = register(name)?;
        ArgumentPlace::Register(register, first)
    } else {
        memory(place)?
    };
    Some(TracepointArgument { bytes, signed, at })
}

/// Parses an operand in memory. Symbols are not known.
fn memory(text: &str) -> Option<ArgumentPlace> {
    let (offset, registers) = text.strip_suffix(')')?.split_once('(')?;
    let offset = if offset.is_empty() { 0 } else { offset.parse().ok()? };
    let whole = |name: &str| {
        let name = name.trim().strip_prefix('%')?;
        register(name).filter(|_| name.starts_with('r') && !name.ends_with(['d', 'w', 'b']))
    };
    let mut parts = registers.split(',');
    let base = match parts.next()?.trim() {
        "" => None,
        name => Some(whole(name)?.0),
    };
    let index = match parts.next() {
        None => None,
        Some(name) => {
            let scale = parts.next().map_or(Some(1), |scale| scale.trim().parse().ok())?;
            Some((whole(name)?.0, scale))
        }
    };
    Some(ArgumentPlace::Memory { base, index, offset })
}

/// Returns the number of a general register, and the bit from which on it is named.
fn register(name: &str) -> Option<(u8, u8)> {
    const NAMES: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
    const HIGH: [&str; 4] = ["ah", "ch", "dh", "bh"];
    if let Some(at) = HIGH.iter().position(|high| *high == name) {
        return Some((at as u8, 8));
    }
    let number = name.strip_prefix('r').map(|rest| rest.trim_end_matches(['d', 'w', 'b']));
    if let Some(number) = number.and_then(|number| number.parse().ok()) {
        return Some((number, 0)).filter(|_| (8..16).contains(&number));
    }
    let narrow = name.strip_prefix(['r', 'e']).unwrap_or(name);
    let is = |one: &&str| {
        *one == narrow
            || narrow.strip_suffix('l').is_some_and(|low| {
                // `al` is of `ax`, and `sil` of `si`.
                low == *one || low.len() == 1 && one.starts_with(low) && one.ends_with('x')
            })
    };
    NAMES.iter().position(is).map(|at| (at as u8, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_understood() {
        let whole = |at| Some(TracepointArgument { bytes: 8, signed: false, at });
        let memory = |base, index, offset| whole(ArgumentPlace::Memory { base, index, offset });
        for (text, wanted) in [
            ("8@%rdi", whole(ArgumentPlace::Register(7, 0))),
            ("8@%r12", whole(ArgumentPlace::Register(12, 0))),
            ("8@-80(%rbx)", memory(Some(3), None, -80)),
            ("8@(%rsp)", memory(Some(4), None, 0)),
            ("8@8(%rax,%r9,4)", memory(Some(0), Some((9, 4)), 8)),
            ("8@(,%rcx,8)", memory(None, Some((1, 8)), 0)),
            ("8@$-5", whole(ArgumentPlace::Constant(-5))),
            (
                "-4@%r8d",
                Some(TracepointArgument {
                    bytes: 4,
                    signed: true,
                    at: ArgumentPlace::Register(8, 0),
                }),
            ),
            (
                "1@%sil",
                Some(TracepointArgument {
                    bytes: 1,
                    signed: false,
                    at: ArgumentPlace::Register(6, 0),
                }),
            ),
            (
                "1@%bl",
                Some(TracepointArgument {
                    bytes: 1,
                    signed: false,
                    at: ArgumentPlace::Register(3, 0),
                }),
            ),
            (
                "1@%dh",
                Some(TracepointArgument {
                    bytes: 1,
                    signed: false,
                    at: ArgumentPlace::Register(2, 8),
                }),
            ),
            (
                "-2@%ax",
                Some(TracepointArgument {
                    bytes: 2,
                    signed: true,
                    at: ArgumentPlace::Register(0, 0),
                }),
            ),
            ("8f@%xmm0", None),
            ("4@counter(%rip)", None),
            ("8@%r16", None),
            ("8@%xmm0", None),
            ("8@(%eax)", None),
            ("3@%rax", None),
            ("", None),
        ] {
            assert_eq!(given(text), wanted, "{text}");
        }
    }

    #[test]
    fn notes_that_end_early_are_left_out() {
        let mut bytes = Vec::new();
        let text = [&[0; 24][..], b"app\0hit\08@%rdi $x\0"].concat();
        for word in [8_u32, text.len() as u32, KIND] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(OWNER);
        bytes.extend(&text);
        let (found, rest) = note(&bytes).expect("a note");
        assert!(rest.is_empty());
        let mut names = Names::within(bytes.len());
        let one = tracepoint(found.expect("a tracepoint"), None, &mut names).expect("a tracepoint");
        assert_eq!((&*one.provider, &*one.name, one.arguments.len()), ("app", "hit", 2));
        assert!(one.arguments[0].is_some() && one.arguments[1].is_none());
        for length in 0..bytes.len() {
            let _ = note(&bytes[..length]);
        }
    }
}
