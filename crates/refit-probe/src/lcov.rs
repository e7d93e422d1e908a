//! Writes coverage by lines of source as a tracefile of LCOV (geninfo(1)), which `genhtml`, editors
//! and services for coverage read.
//!
//! A line was run as often as that one of its blocks that ran most often: an optimising compiler
//! moves and duplicates parts of lines, so their sum would count some runs twice. With flags, that
//! is 1 or 0.

use std::collections::BTreeMap;
use std::io::{self, Write};

use refit_analysis::lines::Lines;

use crate::cover::{Cover, Function};

/// A source file.
#[derive(Default)]
struct Source {
    /// Runs by line.
    lines: BTreeMap<u32, u64>,
    /// First line and runs by function.
    functions: BTreeMap<String, (u32, u64)>,
}

/// Writes the lines of the blocks that are watched. Returns the names of files without debug
/// information, of which nothing is written.
///
/// # Errors
/// The error of writing.
pub fn write(cover: &Cover, to: &mut dyn Write) -> io::Result<Vec<String>> {
    let mut sources = BTreeMap::<String, Source>::new();
    let mut without = Vec::new();
    for file in &cover.files {
        let Some(lines) = Lines::open(&file.mapped.file).ok().flatten() else {
            without.push(file.name.clone());
            continue;
        };
        for function in &file.functions {
            add(&mut sources, cover, &lines, function);
        }
    }
    for (path, Source { lines, functions }) in sources {
        writeln!(to, "TN:\nSF:{path}")?;
        for (name, (line, _)) in &functions {
            writeln!(to, "FN:{line},{name}")?;
        }
        for (name, (_, runs)) in &functions {
            writeln!(to, "FNDA:{runs},{name}")?;
        }
        let reached = functions.values().filter(|(_, runs)| *runs > 0).count();
        writeln!(to, "FNF:{}\nFNH:{reached}", functions.len())?;
        for (line, runs) in &lines {
            writeln!(to, "DA:{line},{runs}")?;
        }
        let reached = lines.values().filter(|runs| **runs > 0).count();
        writeln!(to, "LF:{}\nLH:{reached}\nend_of_record", lines.len())?;
    }
    Ok(without)
}

fn add(sources: &mut BTreeMap<String, Source>, cover: &Cover, lines: &Lines, function: &Function) {
    for block in &function.blocks {
        let Some(runs) = cover.runs(block) else { continue };
        for (path, line) in lines.within(block.address..block.address + block.size) {
            let most = sources.entry(path).or_default().lines.entry(line).or_default();
            *most = runs.max(*most);
        }
    }
    let entry = function.blocks.iter().find(|block| block.address == function.address);
    let begin = lines.at(function.address).pop();
    if let Some(runs) = entry.and_then(|entry| cover.runs(entry))
        && let Some((path, line)) = begin.and_then(|begin| begin.file.zip(begin.line))
    {
        let functions = &mut sources.entry(path).or_default().functions;
        let (_, all) = functions.entry(function.name.clone()).or_insert((line, 0));
        *all += runs;
    }
}
