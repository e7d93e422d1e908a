//! `refit funcs`: the functions of a program or library.

use clap::Args;
use refit_code::FunctionId;
use refit_code::flow::Flow;
use serde::Serialize;

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

Addresses are those of the file. SOURCES says who knows of a function: symbol, export (dynamic symbol), frame \
(.eh_frame), go (.gopclntab), stub (of the procedure linkage table), start (entry point, initialisers), call (others call it), \
resolver (picks an implementation). Functions without a name are called sub_ and their address. A ? stands behind the blocks of \
functions with jumps that were not understood: there may be more.")]
pub(crate) struct FuncsArgs {
    #[command(flatten)]
    subject: SubjectArgs,

    /// Pattern over names (`*` any characters, `?` one), or an address (0x1234)
    #[arg(default_value = "*", hide_default_value = true)]
    glob: String,
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
}

/// Lists functions.
pub(crate) fn run(args: &FuncsArgs, out: &mut Output) -> Result<(), Failure> {
    let asked = format!("list functions {}", args.glob);
    let subjects = args.subject.open(&asked)?;
    let mut table = Table::new(&[
        ("ADDRESS", Align::Right),
        ("SIZE", Align::Right),
        ("BLOCKS", Align::Right),
        ("SOURCES", Align::Left),
        ("NAME", Align::Left),
    ]);
    let mut found = 0usize;
    for subject in &subjects {
        for id in subject.module.find(&args.glob) {
            found += 1;
            let flow = subject.module.flow(id);
            if out.json() {
                print(subject, id, &flow, out)?;
            } else {
                table.row(row(subject, id, &flow, subjects.len() > 1));
            }
        }
    }
    if found == 0 {
        return Err(no_such_function(&asked, &args.glob, &subjects));
    }
    if out.json() {
        return Ok(());
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}

fn print(subject: &Subject, id: FunctionId, flow: &Flow, out: &mut Output) -> Result<(), Failure> {
    let function = subject.module.function(id);
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
    })
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
