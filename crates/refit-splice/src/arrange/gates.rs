//! Decides where control enters the copies.
//!
//! A gate is a jump in place of the first instructions of a block. It needs a block of which all
//! these instructions are copied, and that has room for it: nothing leads between them.

use std::collections::BTreeSet;
use std::ops::Range;

use super::arrangement::ArrangedBlock;
use crate::body::{Body, Kind, Member};
use crate::jump::JUMP;
use crate::patches::in_one_page;
use crate::why::Why;

/// Returns the gates of a function, ascending.
///
/// # Errors
/// [`Why::Short`]: there is room for none, so control would not come to the copy.
pub(super) fn find(
    body: &Body,
    members: &[Member],
    blocks: &[&ArrangedBlock],
) -> Result<Vec<u64>, Why> {
    let entry = behind_mark(members, body.entry);
    let led_to = led_to(body, members);
    let mut gates = BTreeSet::new();
    for block in blocks {
        let address = behind_mark(members, block.addresses.start);
        let wanted = block.enters || address == entry;
        if wanted && is_free(members, block, address, &led_to) {
            gates.insert(address);
        }
    }
    if gates.is_empty() {
        return Err(Why::Short { address: entry, room: 0 });
    }
    // Of two gates that overlap, the first one stays.
    let mut kept: Vec<u64> = Vec::new();
    for gate in gates {
        if kept.last().is_none_or(|last| last + JUMP as u64 <= gate) {
            kept.push(gate);
        }
    }
    Ok(kept)
}

/// Returns the addresses to which control comes in other ways than by falling through.
fn led_to(body: &Body, members: &[Member]) -> BTreeSet<u64> {
    let targets = members.iter().filter_map(Member::target);
    let behind = members.iter().filter(|one| one.kind != Kind::Plain);
    let behind = behind.map(|one| one.instruction.next_ip());
    targets.chain(behind).chain(body.entered.iter().copied()).collect()
}

/// Returns the address after the `endbr64` at `address`, which stays in place, or `address` if
/// there is none.
fn behind_mark(members: &[Member], address: u64) -> u64 {
    let found = members.binary_search_by_key(&address, |one| one.instruction.ip());
    let mark = found.ok().map(|at| &members[at]).filter(|member| member.is_landing());
    mark.map_or(address, |mark| mark.instruction.next_ip())
}

/// Whether a jump fits at an address of a block.
fn is_free(
    members: &[Member],
    block: &ArrangedBlock,
    address: u64,
    led_to: &BTreeSet<u64>,
) -> bool {
    let end = address + JUMP as u64;
    let members = &members[within(members, &(address..block.addresses.end))];
    let plain = |member: &&Member| {
        member.kind == Kind::Plain && !member.is_landing() || member.instruction.ip() == address
    };
    let covered = members.iter().take_while(|one| one.instruction.ip() < end);
    let covered = covered.take_while(plain).last().map_or(address, |one| one.instruction.next_ip());
    // Padding behind the block would do as well, but is not worth a search.
    covered >= end
        && covered <= block.addresses.end
        && led_to.range(address + 1..end).next().is_none()
        && in_one_page(address, JUMP)
}

/// Returns the indices of the instructions that begin at these addresses.
pub(super) fn within(members: &[Member], addresses: &Range<u64>) -> Range<usize> {
    let at = |address: u64| members.partition_point(|one| one.instruction.ip() < address);
    at(addresses.start)..at(addresses.end)
}
