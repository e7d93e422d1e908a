//! Semaphores of static tracepoints: numbers of 16 bits that count the tools which listen. A
//! program reaches a tracepoint only while its semaphore is not 0.
//!
//! The area has a record for each semaphore that is to be raised ([`Record::semaphore`]), and a
//! number in its data that says how many of these, from the first on, have been. So a later process
//! can lower them. If refit is killed between the two writes of one semaphore, that one stays
//! raised: the program goes on as if a tool listened.

use crate::process::{Program, Refusal};
use crate::record::{Head, Record};

/// Offset of the number in the data of an area.
const AT: u64 = 256;

/// Raises the semaphores of an area's records.
pub(crate) fn raise(program: &Program, head: &Head, records: &[Record]) -> Result<(), Refusal> {
    let failed = |source| Refusal::System {
        id: program.id(),
        what: "raise the semaphore of a tracepoint",
        source,
    };
    for (number, record) in records.iter().filter(|record| record.is_semaphore()).enumerate() {
        change(program, record.address, |now| now.checked_add(1))
            .and_then(|()| program.write(counter(head), &(number as u64 + 1).to_le_bytes()))
            .map_err(failed)?;
    }
    Ok(())
}

/// Lowers those that have been raised. What is no longer mapped has none.
pub(crate) fn lower(program: &Program, head: &Head, records: &[Record]) {
    let mut raised = [0; 8];
    if program.read(counter(head), &mut raised).is_err() {
        return;
    }
    let raised = u64::from_le_bytes(raised) as usize;
    let semaphores: Vec<&Record> = records.iter().filter(|one| one.is_semaphore()).collect();
    let raised = semaphores.into_iter().take(raised).enumerate();
    for (number, record) in raised.collect::<Vec<_>>().into_iter().rev() {
        // The number first: another tool's share is not taken.
        if program.write(counter(head), &(number as u64).to_le_bytes()).is_ok() {
            let _ = change(program, record.address, |now| now.checked_sub(1));
        }
    }
}

fn counter(head: &Head) -> u64 {
    head.address + head.data + AT
}

fn change(
    program: &Program,
    address: u64,
    to: impl FnOnce(u16) -> Option<u16>,
) -> std::io::Result<()> {
    let mut now = [0; 2];
    program.read(address, &mut now)?;
    match to(u16::from_le_bytes(now)) {
        Some(number) => program.write(address, &number.to_le_bytes()),
        None => Ok(()),
    }
}
