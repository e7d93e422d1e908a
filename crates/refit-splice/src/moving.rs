//! Sites that move to another patch area, with the calls that lead to them ([`move_sites`]).
//!
//! [`move_sites`]: crate::move_sites

use std::collections::BTreeMap;

use crate::patches::in_one_page;
use crate::record::Record;

/// Bytes of a displacement that reaches 2 GiB.
pub const DISPLACEMENT: usize = 4;

/// A direct call of a function, or a direct jump to it, by its displacement of 32 bits, the last
/// bytes of the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectCall {
    /// Address of the displacement in the program.
    pub address: u64,
    /// The displacement there.
    pub displacement: [u8; DISPLACEMENT],
    /// Address of the site that control comes to first, and at which nothing has run before but
    /// `endbr64`.
    pub site: u64,
}

impl DirectCall {
    /// Returns the change by which it leads to an address. `None` if the address is too far away,
    /// or if the displacement lies in two pages.
    pub(crate) fn leading_to(&self, to: u64) -> Option<Record> {
        let from = self.address + DISPLACEMENT as u64;
        let distance = i32::try_from(to.wrapping_sub(from).cast_signed()).ok()?;
        let (old, new) = (self.displacement.to_vec(), distance.to_le_bytes().to_vec());
        let record = Record { address: self.address, old, new, copies: Vec::new() };
        in_one_page(self.address, DISPLACEMENT).then_some(record)
    }
}

/// Sites that move, with the calls that lead to them.
#[derive(Default)]
pub(crate) struct Moving<'m> {
    /// The present change at each site, by its address.
    pub(crate) from: BTreeMap<u64, &'m Record>,
    pub(crate) calls: &'m [DirectCall],
    /// The [`Head::generation`](crate::record::Head::generation) of the new area.
    pub(crate) generation: u64,
}

impl Moving<'_> {
    /// Returns the changes of those calls whose site is among these changes.
    pub(crate) fn redirected(&self, records: &[Record]) -> Vec<Record> {
        let targets: BTreeMap<u64, u64> = records.iter().filter_map(Record::target).collect();
        let redirected = |call: &DirectCall| call.leading_to(*targets.get(&call.site)?);
        self.calls.iter().filter_map(redirected).collect()
    }

    /// Returns a change as it is made: from the bytes that are there now.
    pub(crate) fn as_it_is(&self, record: Record) -> Record {
        match self.from.get(&record.address).filter(|_| record.changes()) {
            Some(now) => Record { old: now.new.clone(), ..record },
            None => record,
        }
    }
}

/// Replaces the bytes of changes that are there, among those from an address on, by the original
/// ones. The changes are given by their addresses.
pub(crate) fn as_it_was(changes: &BTreeMap<u64, &Record>, address: u64, bytes: &mut [u8]) {
    for (&site, record) in changes.range(address..address + bytes.len() as u64) {
        let at = (site - address) as usize;
        if let Some(now) = bytes.get_mut(at..at + record.new.len()).filter(|now| *now == record.new)
        {
            now.copy_from_slice(&record.old);
        }
    }
}
