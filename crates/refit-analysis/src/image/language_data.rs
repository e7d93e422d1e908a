//! All that the personality routines of C, C++ and Rust read of a function: call sites, and what to
//! do with the exceptions that arrive there. [`super::landing`] names the source of the layout.

use std::collections::BTreeSet;

use super::Image;
use super::landing::{CallSite, INDIRECT, Reader, Tables, tables};

/// Language-specific data of a part of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanguageData {
    /// Call sites, in the order of the table.
    pub sites: Vec<CallSite>,
    /// The table of actions, whose records refer to each other by distance.
    pub actions: Vec<u8>,
    /// Addresses of type descriptions: the first is that with number 1; 0 catches all.
    pub types: Vec<u64>,
    /// Whether `types` are addresses of words that hold the addresses.
    pub stored: bool,
    /// Exception specifications: lists of types, each ended by 0.
    pub specifications: Vec<u8>,
}

impl LanguageData {
    /// Reads the data at `address`, of the part of a function that begins at `start` and has `most`
    /// bytes. `None` if it is not understood.
    pub fn read(image: &Image, address: u64, start: u64, most: u64) -> Option<Self> {
        let Tables { sites, actions_at, types } = tables(image, address, start, most)?;
        let records = image.bytes_from(actions_at)?;
        let (length, filters) = actions(records, sites.iter().map(|site| site.action))?;
        let found = Self {
            sites,
            actions: records.get(..length)?.to_vec(),
            types: Vec::new(),
            stored: false,
            specifications: Vec::new(),
        };
        let (Some((how, base)), Some(_)) = (types, filters.iter().find(|&&filter| filter != 0))
        else {
            // Cleanups need no types.
            return filters.iter().all(|&filter| filter == 0).then_some(found);
        };
        let lists = image.bytes_from(base).unwrap_or_default();
        let below = filters.iter().filter(|&&filter| filter < 0);
        let (length, named) = specifications(lists, below.map(|filter| filter.unsigned_abs()))?;
        let above = filters.iter().filter_map(|&filter| u64::try_from(filter).ok());
        let count = above.chain(named).max().unwrap_or(0);
        let types = (1..=count).map(|number| type_at(image, how, base, number));
        Some(Self {
            types: types.collect::<Option<_>>()?,
            stored: how & INDIRECT != 0,
            specifications: lists.get(..length)?.to_vec(),
            ..found
        })
    }

    /// Returns the data for a program in which the file is mapped `bias` bytes from its addresses.
    #[must_use]
    pub fn moved(self, bias: u64) -> Self {
        let to = |address: u64| address.wrapping_add(bias);
        let sites = self.sites.into_iter().map(|site| CallSite {
            addresses: to(site.addresses.start)..to(site.addresses.end),
            pad: site.pad.map(to),
            ..site
        });
        let types = self.types.into_iter().map(|one| if one == 0 { 0 } else { to(one) });
        Self { sites: sites.collect(), types: types.collect(), ..self }
    }

    /// Returns the call site that covers an address.
    pub fn site(&self, address: u64) -> Option<&CallSite> {
        self.sites.iter().find(|site| site.addresses.contains(&address))
    }
}

/// Follows the chains of actions; returns the bytes that they take, and the filters that they name.
fn actions(records: &[u8], begins: impl Iterator<Item = u64>) -> Option<(usize, BTreeSet<i64>)> {
    let (mut length, mut filters, mut seen) = (0, BTreeSet::new(), BTreeSet::new());
    for begin in begins {
        let mut at = begin.checked_sub(1);
        while let Some(record) = at.filter(|&at| seen.insert(at)) {
            let mut reader =
                Reader { bytes: records.get(usize::try_from(record).ok()?..)?, address: record };
            filters.insert(reader.signed()?);
            let from = reader.address;
            let next = reader.signed()?;
            length = length.max(usize::try_from(reader.address).ok()?);
            at = if next == 0 { None } else { Some(from.checked_add_signed(next)?) };
        }
    }
    Some((length, filters))
}

/// Reads the specifications with these numbers; returns the bytes that they take, and the types
/// that they name.
fn specifications(
    lists: &[u8],
    numbers: impl Iterator<Item = u64>,
) -> Option<(usize, BTreeSet<u64>)> {
    let (mut length, mut types) = (0, BTreeSet::new());
    for number in numbers {
        let begin = number.checked_sub(1)?;
        let mut reader =
            Reader { bytes: lists.get(usize::try_from(begin).ok()?..)?, address: begin };
        loop {
            let one = reader.unsigned()?;
            if one == 0 {
                break;
            }
            types.insert(one);
        }
        length = length.max(usize::try_from(reader.address).ok()?);
    }
    Some((length, types))
}

fn type_at(image: &Image, how: u8, base: u64, number: u64) -> Option<u64> {
    let size = match how & 0x0f {
        0x00 | 0x04 | 0x0c => 8,
        0x02 | 0x0a => 2,
        0x03 | 0x0b => 4,
        _ => return None,
    };
    let address = base.checked_sub(number.checked_mul(size)?)?;
    let bytes = image.bytes(address, usize::try_from(size).ok()?)?;
    let plain = Reader { bytes, address }.encoded(how & 0x0f)?;
    match plain {
        0 => Some(0),
        _ => Reader { bytes, address }.encoded(how & !INDIRECT),
    }
}
