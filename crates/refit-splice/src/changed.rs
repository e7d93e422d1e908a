//! Which functions are not, in a program, as they were analysed.

use crate::body::Body;
use crate::immediates;
use crate::process::Program;
use crate::remains;
use crate::why::Why;

/// Returns the indices of those functions that cannot be copied because the program has other code
/// for them: probes, numbers that have been set, or what another tool has changed.
///
/// # Errors
/// [`Why`]: the program cannot be examined.
pub fn changed<'b>(
    program: &Program,
    bodies: impl IntoIterator<Item = &'b Body>,
) -> Result<Vec<usize>, Why> {
    let set = immediates::in_place(program, &remains::find(program)?);
    let differs = |body: &Body| {
        body.parts.iter().any(|part| {
            let mut now = vec![0; part.code.len()];
            program.read(part.address, &mut now).is_err()
                || now != part.code[..]
                || set.range(part.range()).next().is_some()
        })
    };
    let all = bodies.into_iter().enumerate();
    Ok(all.filter(|(_, body)| differs(body)).map(|(index, _)| index).collect())
}
