//! Finds the direct calls and jumps in a program that lead to the entries of functions.

use std::collections::BTreeMap;

use rayon::prelude::*;
use refit_analysis::flow::Marks;
use refit_analysis::{FunctionId, Module};
use refit_splice::process::Program;
use refit_splice::{DISPLACEMENT, DirectCall};

/// Opcodes, of one byte each, of a direct call and a direct jump.
const CALL: u8 = 0xe8;
const JUMP: u8 = 0xe9;
/// First byte, and upper half of the second, of a conditional jump.
const TWO_BYTES: u8 = 0x0f;
const CONDITION: u8 = 0x80;

/// Bytes that may be a call, by their addresses in the file.
struct Candidate {
    instruction: u64,
    /// Address of the displacement.
    place: u64,
    displacement: [u8; DISPLACEMENT],
    target: u64,
}

/// Returns the calls of a file, mapped `bias` bytes from its addresses, that lead to an entry of
/// `sites`, which has the address in the program of the site of each entry. Calls by functions
/// that never run are left out; `runs` tells which run.
pub fn find(
    program: &Program,
    module: &Module,
    bias: u64,
    sites: &BTreeMap<u64, u64>,
    runs: impl Fn(FunctionId) -> bool,
) -> Vec<DirectCall> {
    let mut of = BTreeMap::<FunctionId, Vec<Candidate>>::new();
    for code in module.image().code() {
        let addresses = &code.addresses;
        let mut bytes = vec![0; (addresses.end - addresses.start) as usize];
        // What is there now may be a jump of refit's, or of another tool.
        if program.read(addresses.start.wrapping_add(bias), &mut bytes).is_err() {
            continue;
        }
        for found in candidates(&bytes, addresses.start, sites) {
            if let Some(function) = module.function_at(found.instruction).filter(|one| runs(*one)) {
                of.entry(function).or_default().push(found);
            }
        }
    }
    let all: Vec<_> = of.into_iter().collect();
    let real = |(function, found): (FunctionId, Vec<Candidate>)| {
        let flow = module.flow(function);
        let real = found.into_iter().filter(|found| {
            let end = found.place + DISPLACEMENT as u64;
            let known = flow
                .instruction_at(found.instruction)
                .is_some_and(|one| one.end() == end && !one.marks.contains(Marks::OVERLAPPED));
            let as_in_file = module.bytes(found.place, DISPLACEMENT);
            known && as_in_file.is_some_and(|bytes| bytes == found.displacement)
        });
        let calls = real.filter_map(|found| {
            let (address, displacement) = (found.place.wrapping_add(bias), found.displacement);
            Some(DirectCall { address, displacement, site: *sites.get(&found.target)? })
        });
        calls.collect::<Vec<_>>()
    };
    all.into_par_iter().flat_map_iter(real).collect()
}

/// Returns what may be a call of one of these entries, among bytes that begin at `begin`.
fn candidates<'b>(
    bytes: &'b [u8],
    begin: u64,
    sites: &'b BTreeMap<u64, u64>,
) -> impl Iterator<Item = Candidate> + 'b {
    let opcode = |at: &usize| match bytes[*at] {
        CALL | JUMP => Some((*at, 1)),
        TWO_BYTES if bytes.get(at + 1).is_some_and(|one| one & 0xf0 == CONDITION) => Some((*at, 2)),
        _ => None,
    };
    let found =
        memchr::memchr3_iter(CALL, JUMP, TWO_BYTES, bytes).filter_map(move |at| opcode(&at));
    found.filter_map(move |(at, opcode)| {
        let displacement: [u8; DISPLACEMENT] =
            bytes.get(at + opcode..at + opcode + DISPLACEMENT)?.try_into().ok()?;
        let instruction = begin + at as u64;
        let place = instruction + opcode as u64;
        let distance = i64::from(i32::from_le_bytes(displacement));
        let target = (place + DISPLACEMENT as u64).wrapping_add_signed(distance);
        let found = Candidate { instruction, place, displacement, target };
        sites.contains_key(&target).then_some(found)
    })
}
