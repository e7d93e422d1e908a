//! Writes coverage as drcov, version 2, the format of DynamoRIO's coverage tool. Lighthouse (IDA,
//! Binary Ninja), Ghidra's Lightkeeper and Cartographer, and lcov by `drcov2lcov` read it.
//!
//! Lines of text, one per file, then eight bytes for each block that was reached: `u32` offset from
//! the lowest address of its file, `u16` length, `u16` index of the file; little-endian.

use std::io::{self, Write};

use crate::cover::Cover;

/// Writes the blocks that were reached.
///
/// # Errors
/// The error of writing.
pub fn write(cover: &Cover, to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "DRCOV VERSION: 2\nDRCOV FLAVOR: drcov-64")?;
    writeln!(to, "Module Table: version 2, count {}", cover.files.len())?;
    writeln!(to, "Columns: id, base, end, entry, path")?;
    for (number, file) in cover.files.iter().enumerate() {
        let (base, end) =
            (file.bias.wrapping_add(file.span.0), file.bias.wrapping_add(file.span.1));
        let path = file.path.to_string_lossy().replace(char::is_control, " ");
        writeln!(to, "{number:3}, {base:#018x}, {end:#018x}, {:#018x}, {path}", 0)?;
    }
    let mut entries = Vec::new();
    for (number, file) in (0_u16..).zip(&cover.files) {
        let blocks = file.functions.iter().flat_map(|function| &function.blocks);
        for block in blocks.filter(|block| cover.is_reached(block)) {
            let end = block.address + block.size;
            // A block too long for the format becomes several.
            for begin in (block.address..end).step_by(usize::from(u16::MAX)) {
                let start = u32::try_from(begin - file.span.0).map_err(io::Error::other)?;
                let size = (end - begin).min(u64::from(u16::MAX)) as u16;
                entries.extend(start.to_le_bytes());
                entries.extend(size.to_le_bytes());
                entries.extend(number.to_le_bytes());
            }
        }
    }
    writeln!(to, "BB Table: {} bbs", entries.len() / 8)?;
    to.write_all(&entries)
}
