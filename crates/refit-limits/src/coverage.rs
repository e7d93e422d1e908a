//! Makes sure that all servable memory of a program is served, and each mapping as a whole.
//!
//! To the kernel, a mapping of which only a part is served is two mappings, and it moves only one
//! at a time: `mremap` of both fails with `EFAULT`. A program maps and unmaps while its mappings
//! are read, so a mapping may appear or grow meanwhile. So refit reads the mappings again until
//! they have not changed: a mapping then is in two parts for an instant, and not until the next
//! round.

use std::io;
use std::ops::Range;

use refit_memory::program::Pager;

use crate::survey::{self, Servable};

/// The largest number of readings: a program can map and unmap all the time.
const MAX_READINGS: u32 = 4;

/// Serves the memory of a program, except refit's own `areas`, and except mappings with guards if
/// it is `guarded`. Returns what is served.
pub(crate) fn cover(
    pager: &Pager,
    process: u32,
    areas: &[Range<u64>],
    guarded: bool,
) -> io::Result<Vec<Range<u64>>> {
    let mut served = Vec::new();
    let mut mapped = survey::anonymous(process, guarded)?;
    for _ in 0..MAX_READINGS {
        let ranges: Vec<_> = mapped.iter().map(|one| one.range.clone()).collect();
        pager.space().resume(&ranges);
        let mut apart = pager.space().native();
        apart.extend_from_slice(areas);
        apart.sort_unstable_by_key(|range| range.start);
        served.clear();
        for Servable { range, room, name } in mapped {
            for part in survey::apart(&range, &apart) {
                let room = if part.end == range.end { room } else { part.end };
                // Unmapped since, or not servable: locked in memory by a device, for instance.
                if pager.manage(&part, room, &name).is_ok() {
                    served.push(part);
                }
            }
        }
        mapped = survey::anonymous(process, guarded)?;
        if mapped.iter().map(|one| &one.range).eq(&ranges) {
            break;
        }
    }
    Ok(served)
}
