//! Generates the code of versions.

use std::sync::Arc;

use iced_x86::{Code, FlowControl, Instruction};

use super::dispatch;
use super::version::{Goal, ReadyVersions, Version, VersionBlock, VersionInstruction};
use crate::body::has_no_long_form;
use crate::encode::{EncodedCode, address_of, encode, frames};
use crate::jump::{JUMP, Way};
use crate::listing::{COPY_LABELS, Frame, Listing};
use crate::record::Record;
use crate::relocate::made;
use crate::why::Why;

/// Upper bound of the bytes of an instruction and of the jump that may follow it, and of a test.
const INSTRUCTION: u64 = 40;
/// Upper bound of the bytes of the displaced instructions and of the jump back.
const DISPLACED: u64 = 192;

/// Returns the code, placed at `at`, and the changes.
///
/// # Errors
/// [`Why::Generate`] or [`Why::Far`].
pub(crate) fn make(ready: &ReadyVersions, at: u64) -> Result<EncodedCode, Why> {
    let site = &ready.of.site;
    let mut writer = Writer {
        code: Listing::default(),
        back: Vec::new(),
        first: COPY_LABELS,
        begins: Vec::new(),
    };
    let displaced = writer.all(ready)?;
    let Writer { code: listing, back, begins, .. } = writer;
    let failed = |reason: String| Why::Generate { address: site.address, reason };
    let (code, offsets) =
        encode(&listing.instructions, at).map_err(|error| failed(error.to_string()))?;
    let located = |positions: &[(u64, usize)]| {
        let place =
            |&(original, index): &(u64, usize)| Some((original, address_of(at, &offsets, index)?));
        let all: Option<Vec<(u64, u64)>> = positions.iter().map(place).collect();
        all.ok_or_else(|| failed("an instruction grew when it was moved".to_owned()))
    };
    let (copies, mut back) = (located(&displaced)?, located(&back)?);
    back.sort_unstable_by_key(|&(_, copy)| copy);
    // The first instruction of the site is replaced by the jump, so its program counters stay.
    let moves = copies.iter().skip(1).copied().collect();
    let mut records = Way::Jump.records(site.address, &site.code[..JUMP], at, copies)?;
    records.extend(Record::of_copies(&back));
    records.extend(ready.of.calls.iter().filter_map(|one| {
        let begin = *begins.get(one.version)?;
        one.call.leading_to(address_of(at, &offsets, begin)?)
    }));
    Ok(EncodedCode {
        at,
        code,
        records,
        moves,
        flags: Vec::new(),
        calls: false,
        frames: frames(&listing, at, &offsets),
        descriptors: Vec::new(),
        procedures: Arc::clone(&ready.of.body.procedures),
    })
}

/// Returns an upper bound of the bytes of the code.
pub(crate) fn most_bytes(ready: &ReadyVersions) -> u64 {
    let count = ready.instructions() + ready.of.versions.len();
    DISPLACED + INSTRUCTION * count as u64
}

/// Returns an upper bound of the number of records.
pub(crate) fn most_records(ready: &ReadyVersions) -> usize {
    ready.instructions() + ready.of.calls.len() + 3
}

/// Whether the frame behind the instruction, when control gets there, is the one at it.
fn changes_no_register(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall | FlowControl::ConditionalBranch
    )
}

struct Writer {
    code: Listing,
    /// Exact positions, with the addresses at which their threads can continue.
    back: Vec<(u64, usize)>,
    /// The label of the first block of the version that is being written.
    first: u64,
    /// The positions at which the versions begin.
    begins: Vec<usize>,
}

impl Writer {
    /// Writes tests, versions and the displaced instructions. Returns the positions of the latter.
    fn all(&mut self, ready: &ReadyVersions) -> Result<Vec<(u64, usize)>, Why> {
        let (site, versions) = (&ready.of.site, &ready.of.versions);
        let blocks = |version: &Version| version.blocks.len() as u64;
        let other = COPY_LABELS + versions.iter().map(blocks).sum::<u64>();
        self.code.stand_for(site.address);
        // The last version follows the tests.
        let mut label = COPY_LABELS;
        for (number, version) in versions.iter().enumerate() {
            for instruction in dispatch::test(version, site.address)? {
                self.code.push(instruction);
            }
            let (code, to) = match number + 1 == versions.len() {
                true => (Code::Jne_rel32_64, other),
                false => (Code::Je_rel32_64, label),
            };
            self.code.push(made(site.address, Instruction::with_branch(code, to))?);
            label += blocks(version);
        }
        for version in versions.iter().rev() {
            label -= blocks(version);
            self.first = label;
            self.begins.insert(0, self.code.len());
            self.version(version)?;
        }
        self.bind(other);
        ready.displaced.write(&mut self.code)
    }

    fn bind(&mut self, label: u64) {
        let mut here = Instruction::with(Code::Zero_bytes);
        here.set_ip(label);
        self.code.push(here);
    }

    fn version(&mut self, version: &Version) -> Result<(), Why> {
        for (number, block) in version.blocks.iter().enumerate() {
            self.block(number, block)?;
        }
        Ok(())
    }

    fn block(&mut self, number: usize, block: &VersionBlock) -> Result<(), Why> {
        let first = block.instructions.first().map_or(block.start, |one| one.original);
        self.code.stand_for(first);
        self.bind(self.first + number as u64);
        for one in &block.instructions {
            self.code.stand_for(one.original);
            self.stand_back(one.back);
            self.instruction(one);
        }
        let follows = block.next == Some(Goal::Block(number + 1));
        let Some(next) = block.next.filter(|_| !follows || block.instructions.is_empty()) else {
            return Ok(());
        };
        match block.instructions.last() {
            // It may be the last instruction that the function describes: a call that does not
            // return, or a branch before code of another function.
            Some(last) if changes_no_register(&last.instruction) => {
                self.code.frame(Frame::After { last: last.original, next: block.end });
            }
            Some(_) => self.code.stand_for(block.end),
            None => {}
        }
        self.stand_back(block.back);
        if follows {
            // Nothing is left of the block. Its position must be another than that of the next one:
            // threads come to that from elsewhere, too.
            self.code.push(Instruction::with(Code::Nopd));
            return Ok(());
        }
        let jump = Instruction::with_branch(Code::Jmp_rel32_64, self.address(next));
        self.code.push(made(block.start, jump)?);
        Ok(())
    }

    /// Records that threads at the next instruction can continue at this address.
    fn stand_back(&mut self, back: Option<u64>) {
        let position = self.code.len();
        self.back.extend(back.map(|back| (back, position)));
    }

    fn instruction(&mut self, one: &VersionInstruction) {
        let mut copy = one.instruction;
        copy.set_ip(0);
        if let Some(to) = one.to {
            if has_no_long_form(&copy) {
                // The jump may be encoded as several instructions, and then has no offset of its
                // own, so a `nop` marks its position.
                self.code.push(Instruction::with(Code::Nopd));
            }
            copy.set_near_branch64(self.address(to));
        }
        self.code.push(copy);
    }

    /// Returns the label or the address of a goal.
    fn address(&self, goal: Goal) -> u64 {
        match goal {
            Goal::Block(number) => self.first + number as u64,
            Goal::Program(address) => address,
        }
    }
}
