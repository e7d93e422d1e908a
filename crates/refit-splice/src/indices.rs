//! Lists of indices of frame descriptions, in the data of each patch area. The code at the entries
//! of `_Unwind_Find_FDE` and `_dl_find_object` reads the list of its area
//! ([`Action::FindFrame`](crate::Action::FindFrame)), so each list names all areas of the program.
//!
//! The program may read a list while it changes. An entry matches nothing while its length is 0,
//! so the length is written last, and reset first. An area is listed when its tables are complete,
//! and its entry is removed before it is unmapped. A thread that still uses the entry either
//! searches the tables: then it is in the code that finds frames ([`Head::finders`]), and the area
//! stays mapped. Or it unwinds a frame whose program counter is in the area, or at a jump that
//! leads there; such a frame is one to which a signal handler returns, and the area stays mapped,
//! too.

use crate::debugger::{self, link_map};
use crate::process::{Program, Refusal};
use crate::record::Head;

/// Offset of a list in the data of an area.
pub(crate) const AT: u64 = 512;
/// Maximum number of entries, and so of areas.
pub(crate) const MOST: usize = 96;
/// Bytes of an entry: address and length of the code, addresses of the index and of the area's
/// `struct link_map`.
pub(crate) const BYTES: usize = 32;
const _: () = assert!(AT + 8 + (MOST * BYTES) as u64 <= debugger::AT);

/// Returns the list of these areas: the number of entries, and the entries.
pub(crate) fn list(heads: &[Head]) -> Vec<u8> {
    let listed = &heads[..heads.len().min(MOST)];
    let entries = listed.iter().flat_map(|head| entry(head).into_iter().flatten());
    (listed.len() as u64).to_le_bytes().into_iter().chain(entries).collect()
}

fn entry(head: &Head) -> [[u8; 8]; 4] {
    let code = head.code_range();
    let length = code.end - code.start;
    [code.start, length, head.address + head.tables, link_map(head)].map(u64::to_le_bytes)
}

/// Adds areas to the list of another one.
pub(crate) fn add(program: &Program, to: &Head, heads: &[Head]) -> Result<(), Refusal> {
    let at = to.address + to.data + AT;
    for head in heads {
        let entries = read(program, at)?;
        let free = entries.iter().position(|&(_, length)| length == 0).unwrap_or(entries.len());
        if free == MOST {
            break;
        }
        let place = at + 8 + (free * BYTES) as u64;
        let [begin, length, index, map] = entry(head);
        write(program, place, &begin)?;
        write(program, place + 16, &index)?;
        write(program, place + 24, &map)?;
        write(program, place + 8, &length)?;
        if free == entries.len() {
            write(program, at, &(free as u64 + 1).to_le_bytes())?;
        }
    }
    Ok(())
}

/// Removes an area from the list of another one. A list that is no longer mapped has no entries.
pub(crate) fn remove(program: &Program, from: &Head, head: &Head) {
    let at = from.address + from.data + AT;
    for (number, (begin, _)) in read(program, at).unwrap_or_default().into_iter().enumerate() {
        if begin == head.code_range().start {
            // It is mapped: the entry has just been read.
            let _ = write(program, at + 8 + (number * BYTES) as u64 + 8, &[0; 8]);
        }
    }
}

/// Reads the address and length of the code of each entry.
fn read(program: &Program, at: u64) -> Result<Vec<(u64, u64)>, Refusal> {
    let count = program.word(at).unwrap_or(0).min(MOST as u64) as usize;
    let mut bytes = vec![0; count * BYTES];
    program.read(at + 8, &mut bytes).map_err(|source| failed(program, source))?;
    let (words, _) = bytes.as_chunks::<8>();
    let entries = words.chunks_exact(BYTES / 8);
    let word = |word: [u8; 8]| u64::from_le_bytes(word);
    Ok(entries.map(|entry| (word(entry[0]), word(entry[1]))).collect())
}

fn write(program: &Program, at: u64, bytes: &[u8]) -> Result<(), Refusal> {
    program.write(at, bytes).map_err(|source| failed(program, source))
}

fn failed(program: &Program, source: std::io::Error) -> Refusal {
    Refusal::System { id: program.id(), what: "change a patch area", source }
}
