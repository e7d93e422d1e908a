//! Checks that the functions to be copied are in the program as they are in its file.

use crate::moving::{Moving, as_it_was};
use crate::plan::Plan;
use crate::process::Program;
use crate::ready::Ready;
use crate::remains::Remains;
use crate::why::Why;

/// Refuses a function to be copied that is not as it was analysed: the bytes that are copied are
/// not compared later. Calls that lead to versions (`found`) are copied as they were.
///
/// # Errors
/// [`Why::Changed`].
pub(crate) fn refuse_changed(
    program: &Program,
    plan: &Plan,
    moving: &Moving<'_>,
    found: &[Remains],
) -> Result<(), Why> {
    let redirected = found.iter().flat_map(Remains::redirected);
    let redirected = redirected.map(|record| (record.address, record)).collect();
    for part in plan.ready.iter().flat_map(Ready::bodies).flat_map(|body| &body.parts) {
        let mut now = vec![0; part.code.len()];
        let read = program.read(part.address, &mut now);
        as_it_was(&moving.from, part.address, &mut now);
        as_it_was(&redirected, part.address, &mut now);
        let differs = now.iter().zip(&part.code).position(|(now, then)| now != then);
        if let Some(at) = if read.is_err() { Some(0) } else { differs } {
            return Err(Why::Changed { address: part.address + at as u64 });
        }
    }
    Ok(())
}
