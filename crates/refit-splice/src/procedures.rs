//! Names and frame descriptions of functions.

use refit_analysis::Live;
use refit_analysis::image::Procedure;
use refit_analysis::image::procedure::{Cfa, Row, Rule, STACK_POINTER};
use refit_analysis::registers::from_dwarf;

/// A function of a program, as unwinders and debuggers know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Procedures {
    /// Its name.
    pub name: String,
    /// The frame descriptions of its parts, at addresses of the program.
    pub parts: Vec<Procedure>,
}

impl Procedures {
    /// Returns the unwinding rules at an address.
    fn row(&self, address: u64) -> Option<&Row> {
        self.parts.iter().find_map(|part| part.row(address))
    }

    /// Returns where the frame is at an address: its canonical frame address (CFA), as a general
    /// register by its number and an offset in bytes. A function and those to which it jumps at its
    /// end have the same one. `None` if unwinders do not know it, or compute it from memory.
    pub fn frame(&self, address: u64) -> Option<(u8, i64)> {
        let Cfa::Register(register, offset) = self.row(address)?.cfa else { return None };
        Some((from_dwarf(register)?, offset))
    }

    /// Adds to the live set before an instruction what unwinders need there.
    ///
    /// The register of the frame address is one of them. Another is memory below the stack pointer:
    /// at the end of a function, descriptions still name the places of registers that have been
    /// popped. No signal handler overwrites them, since it leaves the red zone alone.
    pub(crate) fn with_unwinding(&self, address: u64, live: Live) -> Live {
        let Some(row) = self.row(address) else { return live };
        let Cfa::Register(register, offset) = row.cfa else {
            return Live { red_zone: true, ..live };
        };
        let above = |rule: &Rule| match rule {
            Rule::Offset(at) => register == STACK_POINTER && offset.saturating_add(*at) >= 0,
            _ => true,
        };
        let below = !row.rules.iter().all(|(_, rule)| above(rule));
        let base = from_dwarf(register);
        Live {
            general: live.general | base.map_or(0, |number| 1 << number),
            red_zone: live.red_zone || below,
            ..live
        }
    }
}
