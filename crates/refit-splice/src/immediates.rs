//! Immediates of instructions, replaced in place.
//!
//! The instructions stay where they are and keep their lengths, so no thread is moved, no code is
//! generated, and a thread at such an instruction runs it with the old number or with the new one.
//! It costs the program nothing.
//!
//! Immediates that change together are one *setting*, with a patch area that has a record for each
//! and no code. It is recorded before it is made, and undone, by this or by another process, as all
//! splices are ([`remains`]). All bytes of a setting are in one page, which the kernel writes
//! wholly or not at all (`patches.rs`): so if refit is killed, all of its immediates
//! have changed, or none has.
//!
//! A setting that replaces another one has a greater generation, and records the bytes of the file
//! as the old ones, too. The earlier area is taken out after the change. If refit is killed in
//! between, the later area is taken out first, and the earlier one then has nothing to undo.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use refit_sys::memory::PAGE_SIZE_U64;
use tracing::{debug, warn};

use crate::area::{Area, Room, unmap};
use crate::patches::{Now, Places, in_one_page};
use crate::process::{Program, STOP_TIMEOUT, Still, clean};
use crate::record::{Contents, Record};
use crate::remains::{self, Remains};
use crate::why::Why;

/// Most bytes of an immediate that one record has.
const RECORDED: usize = 4;

/// An immediate to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Immediate {
    /// Address of the instruction in the program.
    pub instruction: u64,
    /// Address of the immediate's bytes.
    pub address: u64,
    /// The bytes that the file has there.
    pub old: Vec<u8>,
    /// The bytes that replace them; as many.
    pub new: Vec<u8>,
}

/// Bytes of immediates that have been replaced, in one patch area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Address, bytes of the file and bytes that replaced them, in the order of addresses.
    pub bytes: Vec<ReplacedBytes>,
}

/// Successive bytes that have been replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedBytes {
    /// Address of the first one in the program.
    pub address: u64,
    /// The bytes of the file.
    pub old: Vec<u8>,
    /// The bytes that are there now.
    pub new: Vec<u8>,
}

/// Replaces immediates, in one stop. Returns its time.
///
/// # Errors
/// [`Why`]; the program is unchanged then.
pub fn set(program: &Program, immediates: &[Immediate]) -> Result<Duration, Why> {
    let Some(first) = immediates.first() else { return Ok(Duration::ZERO) };
    let begin = immediates.iter().map(|one| one.address).min().unwrap_or(first.address);
    let end = immediates.iter().map(|one| one.address + one.new.len() as u64).max();
    let length = end.unwrap_or(begin).saturating_sub(begin) as usize;
    let even = immediates.iter().all(|one| one.old.len() == one.new.len() && !one.new.is_empty());
    if !even || !in_one_page(begin, length) {
        return Err(Why::Pages { address: begin });
    }
    let records = records(immediates);
    let ((made, earlier), stood) = program.stand_still(STOP_TIMEOUT, |still| {
        let found = remains::find(program)?;
        refuse_elsewhere(program, immediates, &found)?;
        let range = begin..begin + length as u64;
        let earlier = covering(&found, &range);
        let generation = found.iter().map(|one| one.head.generation).max().unwrap_or(0) + 1;
        let room = Room { records: records.len(), tables: 0, code: 1, data: PAGE_SIZE_U64 + 1 };
        let mut area = Area::make(still, &range, room)?;
        area.head.contents = Contents::Immediates;
        area.head.generation = generation;
        let made = area.note(program, &records).and_then(|()| change(still, &records, &found));
        // One with the same numbers is in place again, and stays.
        let earlier: Vec<u64> =
            earlier.filter(|one| !is_in_place(program, one)).map(|one| one.head.address).collect();
        if made.is_err() {
            unmap(still, [area.head].into_iter())?;
        }
        if let Err(left) = clean(still) {
            warn!(process = program.id(), %left, "code for calls is left; repair it later");
        }
        Ok::<_, Why>((made, earlier))
    })?;
    made?;
    // The numbers are in place, whether the earlier areas can be unmapped or not.
    if !earlier.is_empty()
        && let Err(left) = remains::give_back(program, &earlier)
    {
        warn!(process = program.id(), %left, "an earlier setting is left; repair it later");
    }
    debug!(process = program.id(), records = records.len(), ?stood, "immediates replaced");
    Ok(stood)
}

/// Restores the immediates of the settings that have bytes in this range of addresses. Returns the
/// number of settings that were in place.
///
/// # Errors
/// [`Why`]: the program cannot be stopped or changed.
pub fn unset(program: &Program, range: Range<u64>) -> Result<usize, Why> {
    let found = remains::find(program)?;
    let areas: Vec<u64> = covering(&found, &range).map(|one| one.head.address).collect();
    let set = covering(&found, &range).filter(|one| is_in_place(program, one)).count();
    if !areas.is_empty() {
        remains::give_back(program, &areas)?;
    }
    Ok(set)
}

/// Returns the settings that are in place.
///
/// # Errors
/// [`Why`]: the program has ended.
pub fn settings(program: &Program) -> Result<Vec<Setting>, Why> {
    let found = remains::find(program)?;
    let replaced = |record: &Record| ReplacedBytes {
        address: record.address,
        old: record.old.clone(),
        new: record.new.clone(),
    };
    let of = |one: &Remains| Setting { bytes: one.records.iter().map(replaced).collect() };
    Ok(found.iter().filter(|one| is_in_place(program, one)).map(of).collect())
}

/// Returns the addresses of all bytes that have been replaced, among the areas that were found.
pub(crate) fn in_place(program: &Program, found: &[Remains]) -> BTreeSet<u64> {
    let settings = found.iter().filter(|one| is_in_place(program, one));
    let records = settings.flat_map(|one| &one.records);
    records.flat_map(|record| record.address..record.address + record.new.len() as u64).collect()
}

/// Whether an area is of a setting that is in place: all of its bytes are there.
fn is_in_place(program: &Program, one: &Remains) -> bool {
    let count = one.records.len();
    one.holds_immediates() && count > 0 && one.in_place(program).count() == count
}

/// Returns the records of a setting. An immediate of eight bytes has two; they are in one page, so
/// they are written at once.
fn records(immediates: &[Immediate]) -> Vec<Record> {
    let of = |one: &Immediate| {
        let parts = one.old.chunks(RECORDED).zip(one.new.chunks(RECORDED));
        let begins = (one.address..).step_by(RECORDED);
        let record = |(address, (old, new)): (u64, (&[u8], &[u8]))| Record {
            address,
            old: old.to_vec(),
            new: new.to_vec(),
            copies: Vec::new(),
        };
        begins.zip(parts).map(record).collect::<Vec<_>>()
    };
    let mut records: Vec<Record> = immediates.iter().flat_map(of).collect();
    records.sort_by_key(|record| record.address);
    records
}

/// Changes the bytes, if they are those of the file, or those of an earlier setting.
fn change(still: &Still<'_>, records: &[Record], found: &[Remains]) -> Result<(), Why> {
    let program = still.program();
    let set = in_place(program, found);
    let change = Places::new(records).decide(program, |record, now| {
        let mut own = record.address..record.address + record.new.len() as u64;
        match now {
            Now::Old | Now::New => Ok(Some(&*record.new)),
            // Those of an earlier setting.
            Now::Foreign | Now::Replaced if own.any(|byte| set.contains(&byte)) => {
                Ok(Some(&*record.new))
            }
            _ => Err(Why::Changed { address: record.address }),
        }
    })?;
    change.make(program)?;
    Ok(())
}

/// Refuses an instruction that runs elsewhere: the bytes here are not the ones that count.
fn refuse_elsewhere(
    program: &Program,
    immediates: &[Immediate],
    found: &[Remains],
) -> Result<(), Why> {
    let entered = found.iter().filter(|one| one.entered(program) > 0);
    let copies = entered.flat_map(|one| one.records.iter().flat_map(|record| &record.copies));
    let elsewhere: BTreeSet<u64> = copies.map(|&(from, _)| from).collect();
    let one = immediates.iter().find(|one| elsewhere.contains(&one.instruction));
    one.map_or(Ok(()), |one| Err(Why::Elsewhere { address: one.instruction }))
}

/// Returns the areas with immediates in this range.
fn covering<'f>(
    found: &'f [Remains],
    range: &'f Range<u64>,
) -> impl Iterator<Item = &'f Remains> + 'f {
    let has = |one: &&Remains| one.records.iter().any(|record| range.contains(&record.address));
    found.iter().filter(|one| one.holds_immediates()).filter(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_immediate_has_two_records() {
        let one = Immediate {
            instruction: 0x1000,
            address: 0x1002,
            old: vec![1, 2, 3, 4, 5, 6, 7, 8],
            new: vec![8, 7, 6, 5, 4, 3, 2, 1],
        };
        let short = Immediate { instruction: 0xff0, address: 0xff3, old: vec![1], new: vec![2] };
        let records = records(&[one, short]);
        let parts: Vec<_> = records.iter().map(|one| (one.address, &one.new[..])).collect();
        assert_eq!(parts, [(0xff3, &[2][..]), (0x1002, &[8, 7, 6, 5]), (0x1006, &[4, 3, 2, 1])]);
        let read = records.iter().map(|one| Record::from_bytes(&one.to_bytes()));
        assert!(read.eq(records.iter().cloned().map(Some)));
    }
}
