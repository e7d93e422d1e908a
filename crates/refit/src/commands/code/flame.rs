//! Flame graphs of stacks, in files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use refit_instruments::export;

use crate::failure::Failure;

/// Draws stacks to a file; each line is a stack, the outermost frame first, and its size in `unit`.
pub(super) fn draw(title: &str, unit: &str, lines: &[String], file: &Path) -> Result<(), Failure> {
    let drawn = File::create(file).map(BufWriter::new).and_then(|mut to| {
        export::draw_stacks(title, unit, lines, &mut to)?;
        to.flush()
    });
    drawn.map_err(|e| {
        let remedy = "make room, or name a file that you may write to";
        Failure::new(format!("draw {}", file.display()), e.to_string(), remedy)
    })
}
