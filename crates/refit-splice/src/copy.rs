//! Writes the copy of a function.
//!
//! Instructions follow each other as in the original, each preceded by the snippets of its sites.
//! Direct jumps within the function go to the copy; every other address (in `lea`, return
//! addresses, jump tables) remains one of the original.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use iced_x86::{Code, Instruction};

use crate::body::{Kind, Member, has_no_long_form};
use crate::encode::{EncodedCode, address_of, descriptors, encode, frames, makes_calls};
use crate::listing::{COPY_LABELS, Listing};
use crate::ready::Copied;
use crate::record::Record;
use crate::relocate::{made, write_call};
use crate::site::{At, Site};
use crate::snippet::{self, Setting};
use crate::why::Why;

/// Returns the code and the changes for a copied function; the code is placed at `at`.
pub(crate) fn make(copied: &Copied, at: u64, setting: Setting) -> Result<EncodedCode, Why> {
    let entry = copied.body.entry;
    let failed = |reason: String| Why::Generate { address: entry, reason };
    let mut writer = Writer::new(copied, setting);
    for number in 0..copied.members.len() {
        writer.member(number)?;
    }
    writer.stubs()?;
    let doors = writer.doors()?;
    let Writer { mut code, places, .. } = writer;
    code.push_abort_code();
    let calls = makes_calls(&code.instructions);
    let (bytes, offsets) =
        encode(&code.instructions, at).map_err(|error| failed(error.to_string()))?;
    let place = |index: usize| address_of(at, &offsets, index);
    let (mut moves, mut copies, mut begins) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (member, index) in copied.members.iter().zip(&places) {
        let original = member.instruction.ip();
        let grown = || failed(format!("the instruction at {original:#x} grew when it was moved"));
        let begin = place(index.begin).ok_or_else(grown)?;
        let itself = place(index.itself).ok_or_else(grown)?;
        begins.insert(original, begin);
        copies.push((original, begin));
        if itself != begin {
            copies.push((original, itself));
        }
        let stays = copied.layout.stay.contains(&original);
        if !stays && !copied.layout.gates.contains_key(&original) {
            moves.push((original, begin));
        }
    }
    let (mut ahead, mut records) = (Vec::new(), Vec::new());
    for gate in copied.layout.order(&copied.body, &copied.members)? {
        let Some(way) = copied.layout.gates.get(&gate) else { continue };
        let none = Why::NoCode { address: gate };
        let to = doors.get(&gate).map_or_else(|| begins.get(&gate).copied(), |&door| place(door));
        let Some(to) = to else { return Err(none) };
        let old = copied.body.bytes(gate, way.length()).ok_or(none)?;
        let mut own = way.records(gate, old, to, vec![(gate, to)])?;
        if copied.layout.is_ahead(&copied.body, way) {
            ahead.push(own.remove(0));
        }
        records.extend(own);
    }
    ahead.extend(records);
    ahead.extend(Record::of_copies(&copies));
    let frames = frames(&code, at, &offsets);
    let descriptors = descriptors(&code, at, &offsets)
        .ok_or_else(|| failed("a restartable sequence has no address".into()))?;
    let only_flags = copied.sites.iter().filter(|site| site.at == At::Before && !site.saves());
    let flags = only_flags.filter_map(|site| Some((site.address, *begins.get(&site.address)?)));
    let flags = flags.collect();
    let procedures = Arc::clone(&copied.body.procedures);
    let (code, records) = (bytes, ahead);
    Ok(EncodedCode { at, code, records, moves, flags, calls, frames, descriptors, procedures })
}

/// Returns an upper bound of the bytes of the copy, without snippets.
pub(crate) fn most_bytes(copied: &Copied) -> u64 {
    let each = copied.members.iter().map(|member| {
        let long = member.kind == Kind::Call || has_no_long_form(&member.instruction);
        member.instruction.len() as u64 + if long { 32 } else { 10 }
    });
    // A site may need an additional jump.
    each.sum::<u64>() + 16 * copied.sites.len() as u64 + 64
}

/// Positions of an instruction in the list.
struct Index {
    /// Position of its snippets, or of itself if it has none.
    begin: usize,
    itself: usize,
}

struct Writer<'c> {
    copied: &'c Copied,
    setting: Setting,
    /// Sites by the address of their instruction, in the order in which they were given.
    sites: BTreeMap<u64, Vec<&'c Site>>,
    code: Listing,
    places: Vec<Index>,
    /// Jumps with a snippet on their taken branch: label, instruction, target.
    ways: Vec<(u64, u64, u64)>,
    /// The next free label.
    free: u64,
}

impl<'c> Writer<'c> {
    fn new(copied: &'c Copied, setting: Setting) -> Self {
        let mut sites: BTreeMap<u64, Vec<&Site>> = BTreeMap::new();
        for site in &copied.sites {
            sites.entry(site.address).or_default().push(site);
        }
        let free = COPY_LABELS + copied.members.len() as u64;
        let (code, places, ways) = (Listing::default(), Vec::new(), Vec::new());
        Self { copied, setting, sites, code, places, ways, free }
    }

    /// Returns the label of the copy of the instruction at `address`, or the address itself if it
    /// belongs to another function.
    fn label(&self, address: u64) -> u64 {
        let members = &self.copied.members;
        let found = members.binary_search_by_key(&address, |member| member.instruction.ip());
        found.map_or(address, |number| COPY_LABELS + number as u64)
    }

    fn member(&mut self, number: usize) -> Result<(), Why> {
        let member = &self.copied.members[number];
        self.code.stand_for(member.instruction.ip());
        let begin = self.bind(COPY_LABELS + number as u64);
        self.snippets(member.instruction.ip(), At::Before)?;
        self.code.stand_for(member.instruction.ip());
        let itself = self.code.len();
        self.write(member)?;
        self.places.push(Index { begin, itself });
        let next = member.instruction.next_ip();
        let follows = self.copied.members.get(number + 1).map(|member| member.instruction.ip());
        if member.goes_on() && follows != Some(next) {
            self.code.stand_after(&[member.instruction]);
            self.jump(member, self.label(next))?;
        }
        Ok(())
    }

    /// Binds a label to the current position, which it returns.
    fn bind(&mut self, label: u64) -> usize {
        let mut here = Instruction::with(Code::Zero_bytes);
        here.set_ip(label);
        self.code.push(here);
        self.code.len() - 1
    }

    /// Writes an instruction so that it has the same effect at any address.
    fn write(&mut self, member: &Member) -> Result<(), Why> {
        let address = member.instruction.ip();
        if member.kind == Kind::Call && self.copied.layout.moved.contains(&address) {
            return write_call(&member.instruction, &mut self.code);
        }
        if member.kind != Kind::Plain {
            return self.jump(member, address);
        }
        let mut copy = member.instruction;
        copy.set_ip(0);
        if let Some(target) = member.target() {
            let way = self.sites.get(&address).into_iter().flatten();
            let label = if way.clone().any(|site| site.at == At::Taken) {
                self.ways.push((self.free, address, target));
                self.free += 1;
                self.free - 1
            } else {
                self.label(target)
            };
            if has_no_long_form(&copy) {
                // The jump may be encoded as several instructions, and then has no offset of its
                // own, so a `nop` marks its position.
                self.code.push(Instruction::with(Code::Nopd));
            }
            copy.set_near_branch64(label);
        }
        self.code.push(copy);
        Ok(())
    }

    fn jump(&mut self, member: &Member, to: u64) -> Result<(), Why> {
        let jump = Instruction::with_branch(Code::Jmp_rel32_64, to);
        self.code.push(made(member.instruction.ip(), jump)?);
        Ok(())
    }

    /// Writes the snippets of the sites at an instruction, with labels that no other snippet has.
    fn snippets(&mut self, address: u64, at: At) -> Result<(), Why> {
        let sites = self.sites.get(&address).cloned().unwrap_or_default();
        for site in sites.into_iter().filter(|site| site.at == at) {
            snippet::write(address, &site.actions, site.live, self.setting, &mut self.code)?;
        }
        Ok(())
    }

    /// Writes the snippets for control that enters from outside; returns their positions by the
    /// instruction before which each runs.
    fn doors(&mut self) -> Result<BTreeMap<u64, usize>, Why> {
        let entered = self.copied.sites.iter().filter(|site| site.at == At::Entered);
        let entered: BTreeSet<u64> = entered.map(|site| site.address).collect();
        let mut doors = BTreeMap::new();
        for address in entered {
            self.code.stand_for(address);
            doors.insert(address, self.code.len());
            self.snippets(address, At::Entered)?;
            self.code.stand_for(address);
            let jump = Instruction::with_branch(Code::Jmp_rel32_64, self.label(address));
            self.code.push(made(address, jump)?);
        }
        Ok(doors)
    }

    /// Writes the snippets on the taken branches of jumps.
    fn stubs(&mut self) -> Result<(), Why> {
        for (label, address, target) in std::mem::take(&mut self.ways) {
            self.code.stand_for(address);
            self.bind(label);
            self.snippets(address, At::Taken)?;
            self.code.stand_for(address);
            let jump = Instruction::with_branch(Code::Jmp_rel32_64, self.label(target));
            self.code.push(made(address, jump)?);
        }
        Ok(())
    }
}
