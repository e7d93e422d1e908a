//! Language-specific data of generated code: the call sites of the originals, at their new places.
//! [`refit_analysis::image::landing`] names the source of the layout.

use refit_analysis::image::LanguageData;

use super::bytes::{encoding, unsigned};
use super::rules::Piece;

/// Encodes the data of a run of code that begins at `start`. Landing pads stay where they are.
pub(super) fn encode(data: &LanguageData, start: u64, pieces: &[Piece]) -> Vec<u8> {
    let pads = data.sites.iter().filter_map(|site| site.pad);
    // A distance of 0 stands for no landing pad.
    let base = pads.min().map(|first| first - 1);
    let sites = call_sites(data, start, base.unwrap_or(0), pieces);
    let mut bytes = Vec::new();
    match base {
        Some(base) => {
            bytes.push(encoding::ABSOLUTE);
            bytes.extend(base.to_le_bytes());
        }
        None => bytes.push(encoding::OMITTED),
    }
    let mut table = vec![encoding::UNSIGNED_LEB];
    unsigned(&mut table, sites.len() as u64);
    table.extend(sites);
    table.extend_from_slice(&data.actions);
    // The type with number 1 comes last.
    table.extend(data.types.iter().rev().flat_map(|address| address.to_le_bytes()));
    if data.types.is_empty() && data.specifications.is_empty() {
        bytes.push(encoding::OMITTED);
    } else {
        bytes.push(if data.stored { encoding::INDIRECT } else { encoding::ABSOLUTE });
        unsigned(&mut bytes, table.len() as u64);
    }
    bytes.extend(table);
    bytes.extend_from_slice(&data.specifications);
    bytes
}

fn call_sites(data: &LanguageData, start: u64, base: u64, pieces: &[Piece]) -> Vec<u8> {
    let mut sites: Vec<(u64, u64, u64, u64)> = Vec::new();
    for piece in pieces {
        let (pad, action) = match piece.original {
            // Exceptions pass through the first instruction of the called function.
            None => (0, 0),
            Some(original) => match data.site(original) {
                Some(site) => (site.pad.map_or(0, |pad| pad - base), site.action),
                // What has no call site must not throw.
                None => continue,
            },
        };
        let (begin, length) = (piece.range.start - start, piece.range.end - piece.range.start);
        match sites.last_mut() {
            Some(last) if last.0 + last.1 == begin && (last.2, last.3) == (pad, action) => {
                last.1 += length;
            }
            _ => sites.push((begin, length, pad, action)),
        }
    }
    let mut bytes = Vec::new();
    for (begin, length, pad, action) in sites {
        [begin, length, pad, action].into_iter().for_each(|number| unsigned(&mut bytes, number));
    }
    bytes
}
