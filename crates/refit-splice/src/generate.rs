//! Generates machine code for the patch area.

use std::sync::Arc;

use crate::arrange;
use crate::copy;
use crate::encode::{EncodedCode, address_of, descriptors, encode, frames, makes_calls};
use crate::listing::Listing;
use crate::ready::{Place, Ready};
use crate::record::Record;
use crate::site::Site;
use crate::snippet::{self, Setting, Step};
use crate::versions;
use crate::why::Why;

/// Returns code and changes, in pieces that ascend; the code is placed at the next multiple of 16
/// from `from` on, and the descriptors of its restartable sequences where `setting` says.
pub(crate) fn make(ready: &Ready, from: u64, setting: Setting) -> Result<Vec<EncodedCode>, Why> {
    let at = from.next_multiple_of(16);
    match ready {
        Ready::Place(place) => Ok(vec![make_place(place, at, setting)?]),
        Ready::Copied(copied) => Ok(vec![copy::make(copied, at, setting)?]),
        Ready::Arranged(arranged) => arrange::make(arranged, at),
        Ready::Versions(ready) => Ok(vec![versions::make(ready, at)?]),
    }
}

/// Upper bound of the bytes of the instructions that a jump displaces, of the jump back, and of
/// the gap to the next snippet.
const DISPLACED: u64 = 192;
/// Upper bound of the bytes that save registers and flags, and restore them.
const SAVING: u64 = 320;

/// Returns an upper bound of the bytes of its code.
pub(crate) fn most_bytes(ready: &Ready) -> u64 {
    let snippet = |site: &Site| {
        let saving = if site.saves() { SAVING } else { 0 };
        DISPLACED + saving + site.actions.iter().map(Step::most_bytes).sum::<u64>()
    };
    match ready {
        Ready::Place(place) => snippet(&place.site),
        Ready::Copied(copied) => {
            copy::most_bytes(copied) + copied.sites.iter().map(snippet).sum::<u64>()
        }
        Ready::Arranged(arranged) => arrange::most_bytes(arranged),
        Ready::Versions(ready) => versions::most_bytes(ready),
    }
}

/// Returns the number of its restartable sequences.
pub(crate) fn sequences(ready: &Ready, setting: &Setting) -> usize {
    let counts = |site: &Site| site.actions.iter().filter(|step| step.is_plain_count()).count();
    match ready {
        _ if setting.sequences.is_none() => 0,
        Ready::Place(place) => counts(&place.site),
        Ready::Copied(copied) => copied.sites.iter().map(counts).sum(),
        Ready::Arranged(_) | Ready::Versions(_) => 0,
    }
}

/// Returns an upper bound of the number of its records.
pub(crate) fn most_records(ready: &Ready) -> usize {
    match ready {
        Ready::Place(_) => 3,
        Ready::Copied(copied) => {
            2 * copied.layout.gates.len() + copied.members.len() + copied.sites.len() + 1
        }
        Ready::Arranged(arranged) => arrange::most_records(arranged),
        Ready::Versions(ready) => versions::most_records(ready),
    }
}

fn make_place(place: &Place, at: u64, setting: Setting) -> Result<EncodedCode, Why> {
    let address = place.site.address;
    let failed = |reason: String| Why::Generate { address, reason };
    let mut listing = Listing::default();
    snippet::write(address, &place.site.actions, place.site.live, setting, &mut listing)?;
    let begins = place.displaced.write(&mut listing)?;
    listing.push_abort_code();
    let calls = makes_calls(&listing.instructions);
    let encoded = encode(&listing.instructions, at);
    let (code, places) = encoded.map_err(|error| failed(error.to_string()))?;
    let copies =
        begins.iter().map(|&(original, index)| Some((original, address_of(at, &places, index)?)));
    let copies: Option<Vec<_>> = copies.collect();
    let copies = copies.ok_or_else(|| failed("an instruction grew when it was moved".into()))?;
    // The first instruction of a site is replaced by the jump, so its program counters stay.
    let moves = copies.iter().skip(1).copied().collect();
    let old = &place.site.code[..place.way.length()];
    let records = if place.finds_frames_only() {
        // A change with copies would count as a site.
        let mut records = place.way.records(address, old, at, Vec::new())?;
        records.extend(Record::of_copies(&copies));
        records
    } else {
        place.way.records(address, old, at, copies)?
    };
    let frames = frames(&listing, at, &places);
    let descriptors = descriptors(&listing, at, &places)
        .ok_or_else(|| failed("a restartable sequence has no address".into()))?;
    let (flags, procedures) = (Vec::new(), Arc::clone(&place.site.procedures));
    Ok(EncodedCode { at, code, records, moves, flags, calls, frames, descriptors, procedures })
}
