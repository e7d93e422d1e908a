//! Memory that does not change.

use std::fmt::Debug;
use std::ops::Range;

use refit_analysis::image::Image;
use refit_splice::process::{Program, Refusal};

/// Memory of a program that does not change while a version is in use.
pub trait Constants: Debug {
    /// Returns the number of 1, 2, 4 or 8 bytes at an address, if all of it is constant.
    fn read(&self, address: u64, bytes: u64) -> Option<u64>;
}

/// The constants of a file that a program has mapped: what the file says is read-only once it is
/// loaded, as long as it is mapped read-only. A program that makes such memory writable and changes
/// it changes its own code as well as its constants.
#[derive(Debug)]
pub struct Loaded<'p> {
    program: &'p Program,
    image: &'p Image,
    bias: u64,
    /// Addresses that are mapped read-only.
    mapped: Vec<Range<u64>>,
}

impl<'p> Loaded<'p> {
    /// Returns the constants of a file that is mapped `bias` bytes from its addresses.
    ///
    /// # Errors
    /// [`Refusal`]: the program has ended.
    pub fn new(program: &'p Program, image: &'p Image, bias: u64) -> Result<Self, Refusal> {
        let all = program.mappings()?.into_iter();
        let mapped = all.filter(|one| one.readable && !one.writable && !one.shared);
        Ok(Self { program, image, bias, mapped: mapped.map(|one| one.range).collect() })
    }
}

impl Constants for Loaded<'_> {
    fn read(&self, address: u64, bytes: u64) -> Option<u64> {
        let end = address.checked_add(bytes)?;
        let within = |range: &Range<u64>| range.start <= address && end <= range.end;
        let mapped = self.mapped.iter().any(within);
        if !mapped || !self.image.is_constant(address.wrapping_sub(self.bias), bytes) {
            return None;
        }
        let mut number = [0; 8];
        let part = number.get_mut(..usize::try_from(bytes).ok()?)?;
        self.program.read(address, part).ok()?;
        Some(u64::from_le_bytes(number))
    }
}

/// No memory is constant.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConstants;

impl Constants for NoConstants {
    fn read(&self, _: u64, _: u64) -> Option<u64> {
        None
    }
}
