//! `refit funcs`: the functions of a program or library.

use std::collections::BTreeSet;

use clap::Args;
use refit_analysis::FunctionId;
use refit_analysis::flow::Flow;
use refit_analysis::lines::Lines;
use serde::Serialize;

use super::listing::SourcePlace;
use super::subject::{Subject, SubjectArgs, no_such_function};
use crate::failure::Failure;
use crate::format;
use crate::output::Output;
use crate::table::{Align, Table};

/// Arguments of `refit funcs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit funcs -p /bin/bash 'execute_*'
  refit funcs -p 4711 'SSL_*' --module 'libssl*'
  refit funcs -p ./server 'handle_*' --lines

Addresses are those in the file. SOURCES lists where refit found a function: symbol, export (dynamic symbol), frame \
(.eh_frame), go (.gopclntab), stub (of the procedure linkage table), start (entry point, initialisers), call (target of a call), \
resolver (of an indirect function). A function without a name is called sub_ADDRESS. A ? after the number of blocks means that some \
jumps could not be resolved, so there may be more blocks. With --lines, the inlined functions follow the line in \
parentheses.")]
pub(crate) struct FuncsArgs {
    #[command(flatten)]
    subject: SubjectArgs,

    /// Pattern for names (`*` any characters, `?` one character), or an address (0x1234)
    #[arg(default_value = "*", hide_default_value = true)]
    glob: String,

    /// Show the source file and line of each function, from debug information, and the functions
    /// that are inlined into it
    #[arg(long)]
    lines: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    module: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_at: Option<u64>,
    name: String,
    other_names: &'a [Box<str>],
    address: u64,
    size: u64,
    parts: usize,
    blocks: usize,
    instructions: usize,
    targets_known: bool,
    returns: bool,
    sources: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourcePlace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inlined: Option<Vec<String>>,
}

/// Lists functions.
pub(crate) fn run(args: &FuncsArgs, out: &mut Output) -> Result<(), Failure> {
    let operation = format!("list functions {}", args.glob);
    let subjects = args.subject.open(&operation)?;
    let mut columns = vec![
        ("ADDRESS", Align::Right),
        ("SIZE", Align::Right),
        ("BLOCKS", Align::Right),
        ("SOURCES", Align::Left),
        ("NAME", Align::Left),
    ];
    columns.extend(args.lines.then_some(("LINE", Align::Left)));
    let mut table = Table::new(&columns);
    let mut found = 0usize;
    for subject in &subjects {
        let lines = args.lines.then(|| subject.lines()).flatten();
        for id in subject.module.find(&args.glob) {
            found += 1;
            let flow = subject.module.flow(id);
            if out.json() {
                print(subject, id, &flow, lines.as_ref(), out)?;
            } else {
                let mut row = row(subject, id, &flow, subjects.len() > 1);
                row.extend(lines.as_ref().map(|lines| line(lines, &flow, subject, id)));
                table.row(row);
            }
        }
    }
    if found == 0 {
        return Err(no_such_function(&operation, &args.glob, &subjects));
    }
    if out.json() {
        return Ok(());
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}

fn print(
    subject: &Subject,
    id: FunctionId,
    flow: &Flow,
    lines: Option<&Lines>,
    out: &mut Output,
) -> Result<(), Failure> {
    let function = subject.module.function(id);
    let source = lines.and_then(|lines| lines.at(function.entry).pop()).map(SourcePlace::of);
    out.object(&Line {
        module: &subject.path.to_string_lossy(),
        loaded_at: subject.loaded_at,
        name: function.name(),
        other_names: function.names.get(1..).unwrap_or_default(),
        address: function.entry,
        size: function.size(),
        parts: function.ranges.len(),
        blocks: flow.blocks().len(),
        instructions: flow.instructions().len(),
        targets_known: flow.targets_known(),
        returns: subject.module.returns(id),
        sources: function.sources.names(),
        source,
        inlined: lines.map(|lines| inlined(lines, flow)),
    })
}

/// Where it begins, and what was inlined into it.
fn line(lines: &Lines, flow: &Flow, subject: &Subject, id: FunctionId) -> String {
    let begins = lines.at(subject.module.function(id).entry).pop();
    let begins = begins.map_or_else(|| "-".to_owned(), |origin| origin.to_string());
    let inlined = inlined(lines, flow);
    if inlined.is_empty() { begins } else { format!("{begins} ({})", inlined.join(", ")) }
}

/// Names of the functions that were inlined into a function.
fn inlined(lines: &Lines, flow: &Flow) -> Vec<String> {
    let mut names = BTreeSet::new();
    for instruction in flow.instructions() {
        let mut origins = lines.at(instruction.address);
        origins.pop();
        names.extend(origins.into_iter().filter_map(|origin| origin.function));
    }
    names.into_iter().collect()
}

fn row(subject: &Subject, id: FunctionId, flow: &Flow, several: bool) -> Vec<String> {
    let function = subject.module.function(id);
    let more = if flow.targets_known() { "" } else { "?" };
    let name = function.name();
    vec![
        format!("{:x}", function.entry),
        format::count(function.size()),
        format!("{}{more}", format::count(flow.blocks().len() as u64)),
        function.sources.names().join(","),
        match subject.path.file_name().filter(|_| several) {
            Some(file) => format!("{}:{name}", file.to_string_lossy()),
            None => name,
        },
    ]
}
