//! `refit cfg`: the control-flow graph of a function, as text, as a picture, for programs.

use std::path::PathBuf;

use clap::Args;
use clap::builder::ValueHint;
use refit_analysis::FunctionId;
use refit_analysis::flow::{Flow, Target};
use refit_analysis::lines::Lines;
use serde::Serialize;

use super::edge::{target, why};
use super::listing::{self, SourcePlace};
use super::picture;
use super::subject::{Subject, SubjectArgs, no_such_function};
use crate::failure::Failure;
use crate::output::Output;

/// Arguments of `refit cfg`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit cfg -p /bin/bash execute_command_internal
  refit cfg -p 4711 malloc --module 'libc.so*' --live
  refit cfg -p ./server handle_request --lines
  refit cfg -p /bin/bash 0x30210 --svg main.svg

Blocks are numbered by address; the edges that leave a block are below it. With --live, each instruction is followed by what is dead \
before it: registers, flags, and the red zone below the stack pointer.")]
pub(crate) struct CfgArgs {
    #[command(flatten)]
    subject: SubjectArgs,

    /// Name of a function, a pattern that matches exactly one, or an address (0x1234) in it
    #[arg(value_name = "FUNC")]
    function: String,

    /// Draw the graph to this file (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<PathBuf>,

    /// Show which registers and flags are dead before each instruction
    #[arg(long)]
    live: bool,

    /// Show the source files and lines of each block, and the functions that are inlined in it
    #[arg(long)]
    lines: bool,
}

/// Prints or draws a graph.
pub(crate) fn run(args: &CfgArgs, out: &mut Output) -> Result<(), Failure> {
    let operation = format!("show the control flow of {}", args.function);
    let subjects = args.subject.open(&operation)?;
    let (subject, id) = the_one(&subjects, &args.function, &operation)?;
    let flow = subject.module.flow(id);
    if let Some(path) = &args.svg {
        let svg = picture::svg(&subject.module, &flow, args.live);
        std::fs::write(path, svg).map_err(|e| {
            let why = format!("{} cannot be written: {e}", path.display());
            Failure::new(&*operation, why, "name a file in a directory that you may write to")
        })?;
    }
    let lines = args.lines.then(|| subject.lines()).flatten();
    if out.json() {
        return out.object(&graph(subject, &flow, args.live, lines.as_ref()));
    }
    if args.svg.is_some() {
        return Ok(());
    }
    let listed = listing::lines(&subject.module, &flow, args.live, lines.as_ref());
    listed.iter().try_for_each(|line| out.line(line))
}

/// The one function that is meant: one that has exactly this name, or the only one that matches.
fn the_one<'a>(
    subjects: &'a [Subject],
    wanted: &str,
    operation: &str,
) -> Result<(&'a Subject, FunctionId), Failure> {
    let mut found: Vec<(&Subject, FunctionId)> = Vec::new();
    for subject in subjects {
        found.extend(subject.module.find(wanted).into_iter().map(|id| (subject, id)));
    }
    match found[..] {
        [] => Err(no_such_function(operation, wanted, subjects)),
        [one] => Ok(one),
        _ => {
            let some = found.iter().take(5).map(|(subject, id)| {
                let function = subject.module.function(*id);
                format!("{} (0x{:x})", function.name(), function.entry)
            });
            let (some, more) = (some.collect::<Vec<_>>(), if found.len() > 5 { ", …" } else { "" });
            let count = found.len();
            let why = format!("{count} functions match {wanted}: {}{more}", some.join(", "));
            Err(Failure::new(operation, why, "give the name or address of one"))
        }
    }
}

#[derive(Serialize)]
struct Graph {
    module: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_at: Option<u64>,
    name: String,
    address: u64,
    targets_known: bool,
    blocks: Vec<BlockLine>,
    edges: Vec<EdgeLine>,
}

#[derive(Serialize)]
struct BlockLine {
    address: u64,
    end: u64,
    instructions: Vec<InstructionLine>,
}

#[derive(Serialize)]
struct InstructionLine {
    address: u64,
    length: u8,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead: Option<Vec<String>>,
    /// The innermost function first.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Vec<SourcePlace>>,
}

#[derive(Serialize)]
struct EdgeLine {
    from: u32,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leads_to: Option<String>,
}

fn graph(subject: &Subject, flow: &Flow, live: bool, lines: Option<&Lines>) -> Graph {
    let module = &subject.module;
    let function = module.function(flow.function());
    let instruction = |i: &refit_analysis::flow::Instruction| InstructionLine {
        address: i.address,
        length: i.length,
        text: module.text(i),
        dead: live.then(|| listing::dead(&flow.live_before(i.address))),
        source: lines.map(|lines| lines.at(i.address).into_iter().map(SourcePlace::of).collect()),
    };
    let blocks = flow.blocks().iter().map(|block| BlockLine {
        address: block.start,
        end: block.end,
        instructions: flow.block_instructions(block).map(instruction).collect(),
    });
    let edges = flow.edges().iter().map(|edge| {
        let block = match edge.to {
            Target::Block(block) => Some(block),
            _ => None,
        };
        let leads_to = block.is_none().then(|| target(module, edge.to));
        EdgeLine { from: edge.from, kind: why(edge.kind), block, leads_to }
    });
    Graph {
        module: subject.path.display().to_string(),
        loaded_at: subject.loaded_at,
        name: function.name(),
        address: function.entry,
        targets_known: flow.targets_known(),
        blocks: blocks.collect(),
        edges: edges.collect(),
    }
}
