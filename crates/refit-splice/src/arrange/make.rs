//! Encodes an arrangement.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use iced_x86::Instruction;

use super::align::{self, NOPS};
use super::arranged::{Arranged, Block, Function};
use super::arrangement::{Alignment, ArrangedCall, ArrangedTable, Callee};
use super::calls;
use super::write::{Written, write};
use crate::body::{Member, has_no_long_form};
use crate::encode::{EncodedCode, address_of, encode, frames};
use crate::jump::{JUMP, Way};
use crate::listing::Frame;
use crate::procedures::Procedures;
use crate::record::Record;
use crate::why::Why;

/// Returns the code and the changes for an arrangement, a piece for each function; the code is
/// placed at `at`.
///
/// # Errors
/// [`Why::Generate`].
pub(crate) fn make(arranged: &Arranged, at: u64) -> Result<Vec<EncodedCode>, Why> {
    let tables = Tables::new(arranged, at);
    let at = tables.end.next_multiple_of(LINE);
    let written = write(arranged, &tables.distances)?;
    let encoded = Encoded::new(arranged, &written, at)?;
    let copies = encoded.located(&written.places)?;
    // Where threads continue that are at an instruction.
    let left_out = encoded.located(&written.left_out)?;
    let mut to: BTreeMap<u64, u64> = left_out.iter().copied().collect();
    to.extend(copies.iter().copied());
    let mut back = encoded.located(&written.jumps)?;
    back.extend(encoded.located(&written.others)?);
    back.extend(copies.into_iter().filter(|(original, _)| !tables.is_used_at(*original)));
    back.sort_unstable_by_key(|&(_, copy)| copy);
    back.dedup_by_key(|&mut (_, copy)| copy);
    // Where a jump was left out, threads continue at the jump: an unwinder that finds the address
    // on a stack looks for the call before it. The last of two that have the same copy counts.
    let is_known = |at| back.binary_search_by_key(&at, |&(_, copy)| copy).is_ok();
    let jumps = left_out.into_iter();
    let jumps: Vec<_> =
        jumps.filter(|&(jump, at)| !tables.is_used_at(jump) && is_known(at)).collect();
    back.extend(jumps);
    back.sort_by_key(|&(_, copy)| copy);
    let mut all: Vec<EncodedCode> = tables.encode(&to)?.into_iter().collect();
    let mut entered = BTreeSet::new();
    for (number, &(index, _)) in written.runs.iter().enumerate() {
        let range = encoded.begin(&written, number)..encoded.begin(&written, number + 1);
        let function = &arranged.functions[index];
        let Entered { mut records, moves } = match entered.insert(index) {
            true => enter(function, &to)?,
            false => Entered::default(),
        };
        records.extend(Record::of_copies(within(&back, &range, |&(_, copy)| copy)));
        all.push(EncodedCode {
            at: range.start,
            code: encoded.code[(range.start - at) as usize..(range.end - at) as usize].to_vec(),
            records,
            moves,
            flags: Vec::new(),
            calls: false,
            frames: within(&encoded.frames, &range, |&(from, _)| from).to_vec(),
            descriptors: Vec::new(),
            procedures: Arc::clone(&function.body.procedures),
        });
    }
    Ok(all)
}

/// Bytes of a cache line.
const LINE: u64 = 64;

/// Bytes of the longer entries, to a multiple of which all tables are filled.
const ENTRY: u64 = 8;

/// Returns the room for a table.
fn bytes(table: &ArrangedTable) -> u64 {
    let entry = if table.base.is_some() { 4 } else { ENTRY };
    (entry * table.targets.len() as u64).next_multiple_of(ENTRY)
}

/// The copies of jump tables, one after the other.
struct Tables<'a> {
    tables: &'a [ArrangedTable],
    begin: u64,
    end: u64,
    /// Distances of the copies from the tables, by the addresses of the loads.
    distances: HashMap<u64, i64>,
}

impl<'a> Tables<'a> {
    fn new(arranged: &'a Arranged, begin: u64) -> Self {
        let (mut end, mut distances) = (begin, HashMap::new());
        for table in &arranged.tables {
            distances.insert(table.load, end.wrapping_sub(table.address).cast_signed());
            end += bytes(table);
        }
        Self { tables: &arranged.tables, begin, end, distances }
    }

    /// Whether an entry, or the target that was computed from it, is in a register before this
    /// instruction. A thread there goes on in the copy, and leaves it by the jump at most.
    fn is_used_at(&self, address: u64) -> bool {
        self.tables.iter().any(|table| table.load < address && address <= table.jump)
    }

    /// Returns the tables, with the targets where `to` has their copies; `None` if there are none.
    fn encode(&self, to: &BTreeMap<u64, u64>) -> Result<Option<EncodedCode>, Why> {
        let mut code = Vec::new();
        for table in self.tables {
            for target in &table.targets {
                let copy = to.get(target).unwrap_or(target);
                let Some(base) = table.base else {
                    code.extend(copy.to_le_bytes());
                    continue;
                };
                let distance = i32::try_from(copy.wrapping_sub(base).cast_signed());
                let distance = distance.map_err(|_| Why::Far { address: table.address })?;
                code.extend(distance.to_le_bytes());
            }
            code.resize(code.len().next_multiple_of(ENTRY as usize), 0);
        }
        let procedures = Procedures { name: "jump tables".to_owned(), parts: Vec::new() };
        Ok((!code.is_empty()).then(|| EncodedCode {
            at: self.begin,
            code,
            records: Vec::new(),
            moves: Vec::new(),
            flags: Vec::new(),
            calls: false,
            frames: Vec::new(),
            descriptors: Vec::new(),
            procedures: Arc::new(procedures),
        }))
    }
}

/// The code of an arrangement.
struct Encoded {
    at: u64,
    code: Vec<u8>,
    offsets: Vec<u32>,
    frames: Vec<(u64, Frame)>,
}

impl Encoded {
    fn new(arranged: &Arranged, written: &Written, at: u64) -> Result<Self, Why> {
        let mut instructions = Cow::Borrowed(&written.code.instructions[..]);
        let encoded = |instructions: &[Instruction]| {
            encode(instructions, at).map_err(|error| Why::Generate {
                address: arranged.functions.first().map_or(at, |function| function.body.entry),
                reason: error.to_string(),
            })
        };
        let (mut code, mut offsets) = encoded(&instructions)?;
        let rounds = if written.paddings.is_empty() { 0 } else { align::ROUNDS };
        for _ in 0..rounds {
            if !align::pad(instructions.to_mut(), &written.paddings, (at, &offsets))? {
                break;
            }
            (code, offsets) = encoded(&instructions)?;
        }
        let frames = frames(&written.code, at, &offsets);
        Ok(Self { at, code, offsets, frames })
    }

    /// Returns the addresses of positions.
    fn located(&self, positions: &[(u64, usize)]) -> Result<Vec<(u64, u64)>, Why> {
        let place = |&(original, index): &(u64, usize)| {
            let place = address_of(self.at, &self.offsets, index).ok_or_else(|| Why::Generate {
                address: original,
                reason: "it grew when it was moved".to_owned(),
            })?;
            Ok((original, place))
        };
        positions.iter().map(place).collect()
    }

    /// Returns where the code of a run begins; that behind the last one is the end.
    fn begin(&self, written: &Written, run: usize) -> u64 {
        let first = written.runs.get(run).and_then(|&(_, index)| self.offsets.get(index));
        self.at + first.map_or(self.code.len() as u64, |&offset| u64::from(offset))
    }
}

/// Returns those items, which ascend, whose address is in a range.
fn within<'a, T>(all: &'a [T], range: &Range<u64>, address: impl Fn(&T) -> u64) -> &'a [T] {
    let first = all.partition_point(|one| address(one) < range.start);
    let end = all.partition_point(|one| address(one) < range.end);
    &all[first..end]
}

/// The way into the copy of a function.
#[derive(Default)]
struct Entered {
    /// The changes by which control comes to it.
    records: Vec<Record>,
    /// The moves of threads that are in the bytes that change.
    moves: Vec<(u64, u64)>,
}

/// Returns the way into the copy of a function, of whose instructions `to` has the copies.
fn enter(function: &Function, to: &BTreeMap<u64, u64>) -> Result<Entered, Why> {
    let Entered { mut records, mut moves } = Entered::default();
    for &gate in &function.gates {
        // Its block may not be copied.
        let Some(&copy) = to.get(&gate) else { continue };
        let old = function.body.bytes(gate, JUMP).ok_or(Why::NoCode { address: gate })?;
        records.extend(Way::Jump.records(gate, old, copy, vec![(gate, copy)])?);
        let inside = to.range(gate + 1..gate + JUMP as u64);
        moves.extend(inside.map(|(&original, &copy)| (original, copy)));
    }
    Ok(Entered { records, moves })
}

/// Returns an upper bound of the bytes of the code.
pub(crate) fn most_bytes(arranged: &Arranged) -> u64 {
    let instruction = |member: &Member| {
        member.instruction.len() as u64 + if has_no_long_form(&member.instruction) { 24 } else { 8 }
    };
    let block = |block: &Block| {
        let members = arranged.members(block);
        let padding = block.alignment.map_or(0, |_| Alignment::MOST);
        members.iter().map(instruction).sum::<u64>() + JUMP as u64 + padding
    };
    let tables: u64 = arranged.tables.iter().map(bytes).sum();
    let compared = |one: &ArrangedCall| match &one.callee {
        Callee::Likely(functions) => calls::MOST_BYTES * (functions.len() as u64 + 1),
        Callee::Stored(_) => 0,
    };
    let calls: u64 = arranged.calls.iter().map(compared).sum();
    arranged.blocks.iter().map(block).sum::<u64>() + tables + calls + 2 * LINE
}

/// Returns an upper bound of the number of records.
pub(crate) fn most_records(arranged: &Arranged) -> usize {
    let gates = arranged.functions.iter().map(|function| function.gates.len()).sum::<usize>();
    let padding = |block: &Block| block.alignment.map_or(0, |_| NOPS);
    let members = arranged.blocks.iter().map(|block| block.members.len() + 1 + padding(block));
    // Four instructions and a jump for each function, and the rest.
    let compared = arranged.calls.iter().map(|one| match &one.callee {
        Callee::Likely(functions) => 5 * functions.len() + 2,
        Callee::Stored(_) => 0,
    });
    gates + members.sum::<usize>() + compared.sum::<usize>()
}
