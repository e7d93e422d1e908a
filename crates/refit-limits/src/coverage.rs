//! All memory of a program that can be served is, and all of each mapping.
//!
//! One of which only a part is served is two to the kernel, which moves only one at a time: `mremap` of both fails with `EFAULT`. A program maps and
//! unmaps while it is looked at, so a mapping may have come, or grown, where another one was seen. So one looks again until nothing has changed
//! meanwhile: what is in two parts then is so for an instant, and not until the next round.

use std::io;
use std::ops::Range;

use refit_memory::program::Pager;

use crate::survey::{self, Servable};

/// Looks, at most: a program can map and unmap all the time.
const LOOKS: u32 = 4;

/// Has it served, but for what is ours (`areas`), and for what has guards, if it is `guarded`; what is.
pub(crate) fn cover(
    pager: &Pager,
    process: u32,
    areas: &[Range<u64>],
    guarded: bool,
) -> io::Result<Vec<Range<u64>>> {
    let mut served = Vec::new();
    let mut mapped = survey::anonymous(process, guarded)?;
    for _ in 0..LOOKS {
        let ranges: Vec<_> = mapped.iter().map(|one| one.range.clone()).collect();
        pager.space().resume(&ranges);
        let mut apart = pager.space().native();
        apart.extend_from_slice(areas);
        apart.sort_unstable_by_key(|range| range.start);
        served.clear();
        for Servable { range, room, name } in mapped {
            for part in survey::apart(&range, &apart) {
                let room = if part.end == range.end { room } else { part.end };
                // Unmapped since, or not to be served: locked in memory by a device, say.
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
