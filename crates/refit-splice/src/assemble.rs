//! Generates all code of a patch area, on all processors.
//!
//! The units are divided into pieces. Where a piece begins depends on the upper bounds of those
//! before it only, so pieces are generated independently of each other. Between them, bytes of the
//! area remain unused, and their pages untouched.

use std::ops::Range;

use rayon::prelude::*;
use refit_sys::trace::RSEQ_DESCRIPTOR;

use crate::encode::EncodedCode;
use crate::generate;
use crate::process::Program;
use crate::ready::Ready;
use crate::record::Record;
use crate::snippet::Setting;
use crate::unwind::Unwinding;
use crate::why::Why;

/// Maximum number of units of a piece.
const UNITS: usize = 256;

/// The code of a patch area, or a piece of it, and what depends on it.
#[derive(Debug, Default)]
pub(crate) struct Assembled {
    /// Code by its address.
    pub(crate) code: Vec<(u64, Vec<u8>)>,
    /// Bytes of the code that finds frames, which comes first.
    pub(crate) finders: u64,
    pub(crate) unwinding: Unwinding,
    /// Changes, in the order in which they are made, those for the code that finds frames first.
    pub(crate) records: Vec<Record>,
    /// Number of the latter.
    pub(crate) finding: usize,
    /// The changes at sites in place.
    pub(crate) places: Vec<Record>,
    /// Moves of program counters.
    pub(crate) moves: Vec<(u64, u64)>,
    /// Sites in copies that only set a flag, with the addresses of the stores.
    pub(crate) flags: Vec<(u64, u64)>,
    /// Targets of short jumps, which change before everything else.
    ahead: Vec<Record>,
}

/// Generates the code of these units for an area whose code begins at `begin`.
///
/// # Errors
/// [`Why`]: a unit's code cannot be generated, or makes system calls that the program filters.
pub(crate) fn assemble(
    program: &Program,
    group: &[Ready],
    begin: u64,
    setting: Setting,
) -> Result<Assembled, Why> {
    let (finders, rest): (Vec<&Ready>, Vec<&Ready>) =
        group.iter().partition(|ready| ready.finds_frames());
    let filtered = program.is_filtered();
    let mut at = begin;
    let pieces = std::iter::once(&*finders).chain(rest.chunks(UNITS)).map(|units| {
        let most = units.iter().map(|ready| generate::most_bytes(ready)).sum::<u64>();
        let room = at..at + most;
        at = room.end;
        (room, units)
    });
    let pieces: Vec<_> = pieces.collect();
    let pieces: Result<Vec<Assembled>, Why> =
        pieces.into_par_iter().map(|(room, units)| piece(units, room, filtered, setting)).collect();
    let mut all = Assembled::default();
    let mut pieces = pieces?.into_iter();
    if let Some(mut finders) = pieces.next() {
        all.finders = finders.code.iter().map(|(_, code)| code.len() as u64).sum();
        // What unwinders need is not taken out by itself.
        finders.places.clear();
        all.append(finders);
    }
    let mut first = all.take_records();
    all.finding = first.len();
    pieces.for_each(|piece| all.append(piece));
    first.append(&mut all.take_records());
    all.records = first;
    Ok(all)
}

impl Assembled {
    /// Takes the changes, in the order in which they are made.
    fn take_records(&mut self) -> Vec<Record> {
        let mut records = std::mem::take(&mut self.ahead);
        records.append(&mut self.records);
        records
    }

    /// Adds the changes for a piece of code of a unit.
    fn add(&mut self, ready: &Ready, made: EncodedCode) {
        match ready {
            Ready::Copied(_) => self.records.extend(made.records),
            Ready::Place(_) | Ready::Arranged(_) | Ready::Versions(_) => {
                // Calls that lead to versions come and go with the jump at the entry.
                let calls = matches!(ready, Ready::Versions(_));
                let own = |one: &&Record| one.is_place() || calls && one.changes();
                self.places.extend(made.records.iter().filter(own).cloned());
                let ahead = |record: &Record| record.changes() && !record.is_place();
                let (ahead, places): (Vec<_>, Vec<_>) = made.records.into_iter().partition(ahead);
                self.ahead.extend(ahead);
                self.records.extend(places);
            }
        }
        self.moves.extend(made.moves);
        self.flags.extend(made.flags);
    }

    fn append(&mut self, mut piece: Self) {
        self.places.append(&mut piece.places);
        self.code.append(&mut piece.code);
        self.unwinding.append(piece.unwinding);
        self.ahead.append(&mut piece.ahead);
        self.records.append(&mut piece.records);
        self.moves.append(&mut piece.moves);
        self.flags.append(&mut piece.flags);
    }
}

/// Generates the code of some units for these addresses.
fn piece(
    units: &[&Ready],
    room: Range<u64>,
    filtered: bool,
    setting: Setting,
) -> Result<Assembled, Why> {
    let sequences: usize = units.iter().map(|ready| generate::sequences(ready, &setting)).sum();
    let alignment = if sequences > 0 { RSEQ_DESCRIPTOR as u64 } else { 1 };
    let begin = room.start.next_multiple_of(alignment);
    // The descriptors come first, so that their addresses are known.
    let (mut all, mut code) = (Assembled::default(), vec![0; sequences * RSEQ_DESCRIPTOR]);
    let mut described = 0;
    for &ready in units {
        let own = described..described + generate::sequences(ready, &setting) * RSEQ_DESCRIPTOR;
        let mut setting = setting;
        if let Some(sequences) = &mut setting.sequences {
            sequences.descriptors = begin + own.start as u64;
        }
        let pieces = generate::make(ready, begin + code.len() as u64, setting)?;
        described = own.end;
        let descriptors = pieces.iter().flat_map(|made| &made.descriptors).copied();
        let descriptors: Vec<_> = descriptors.collect();
        if descriptors.as_flattened().len() != own.len() {
            let address = ready.reach().start;
            let reason = "it has other restartable sequences than were expected".to_owned();
            return Err(Why::Generate { address, reason });
        }
        code[own].copy_from_slice(descriptors.as_flattened());
        for made in pieces {
            if made.calls && filtered {
                return Err(Why::Filtered { address: ready.reach().start });
            }
            // Fills gaps between snippets with traps, for control that gets there by mistake.
            code.resize((made.at - begin) as usize, 0xcc);
            all.unwinding.add(&made);
            code.extend_from_slice(&made.code);
            all.add(ready, made);
        }
    }
    if begin + code.len() as u64 > room.end {
        let address = units.first().map_or(begin, |ready| ready.reach().start);
        let reason = "the patch area is too small for it".to_owned();
        return Err(Why::Generate { address, reason });
    }
    all.code.extend((!code.is_empty()).then_some((begin, code)));
    Ok(all)
}
