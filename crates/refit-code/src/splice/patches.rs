//! Changing many places of a program at once, while it stands still: places that are near each other are read and written
//! together, since each access costs a system call whatever its length.

use crate::process::{Program, Refusal};

use super::area::Record;

/// Places that are closer than this are changed together. Less than a page: no page is written that has no such place.
const NEAR: u64 = 512;
/// And at most so much at once.
const MOST: u64 = 1 << 16;

/// A stretch of code with places that change.
struct Stretch<'r> {
    begin: u64,
    before: Vec<u8>,
    after: Vec<u8>,
    records: Vec<&'r Record>,
}

/// What a place looks like now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Now {
    /// As before the change.
    Old,
    /// As after it.
    New,
    /// Neither: somebody else has changed it, or it is not mapped any more.
    Foreign,
}

/// Changes the code to what `wanted` makes of each place that is as it says it is now: the bytes to put there, or `None` to leave
/// it. All changes are made or none.
///
/// # Errors
/// What `wanted` says, before anything is changed; [`Refusal`]: the program's memory cannot be written.
pub(super) fn change<'r, E: From<Refusal>>(
    program: &Program,
    records: impl IntoIterator<Item = &'r Record>,
    mut wanted: impl FnMut(&'r Record, Now) -> Result<Option<&'r [u8]>, E>,
) -> Result<(), E> {
    let mut stretches = stretches(records);
    for stretch in &mut stretches {
        let readable = program.read(stretch.begin, &mut stretch.before).is_ok();
        stretch.after.clone_from(&stretch.before);
        for record in &stretch.records {
            let at = (record.address - stretch.begin) as usize;
            let place = &mut stretch.after[at..at + record.new.len()];
            let now = match &*place {
                _ if !readable => Now::Foreign,
                // A short jump can come out as the one that stood there.
                bytes if bytes == record.old => Now::Old,
                bytes if bytes == record.new => Now::New,
                _ => Now::Foreign,
            };
            if let Some(bytes) = wanted(record, now)? {
                place.copy_from_slice(bytes);
            }
        }
    }
    let changed = stretches.iter().filter(|stretch| stretch.before != stretch.after);
    for (done, stretch) in changed.clone().enumerate() {
        if let Err(source) = program.write(stretch.begin, &stretch.after) {
            for stretch in changed.take(done + 1) {
                // What could be written a moment ago can be written back.
                let _ = program.write(stretch.begin, &stretch.before);
            }
            let id = program.id();
            return Err(Refusal::System { id, what: "change its code", source }.into());
        }
    }
    Ok(())
}

fn stretches<'r>(records: impl IntoIterator<Item = &'r Record>) -> Vec<Stretch<'r>> {
    let mut sorted: Vec<_> = records.into_iter().filter(|record| record.changes()).collect();
    sorted.sort_by_key(|record| record.address);
    let mut stretches: Vec<Stretch<'_>> = Vec::new();
    for record in sorted {
        let end = record.address + record.new.len() as u64;
        match stretches.last_mut() {
            Some(last)
                if record.address < last.begin + last.before.len() as u64 + NEAR
                    && end - last.begin <= MOST =>
            {
                let length = (end - last.begin) as usize;
                last.before.resize(length.max(last.before.len()), 0);
                last.records.push(record);
            }
            _ => {
                let before = vec![0; record.new.len()];
                let (begin, after) = (record.address, Vec::new());
                stretches.push(Stretch { begin, before, after, records: vec![record] });
            }
        }
    }
    stretches
}
