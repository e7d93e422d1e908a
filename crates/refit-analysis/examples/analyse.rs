//! Analyses files and prints how much was found, how much was understood, and how long it took.
//!
//! `cargo run --release -p refit-analysis --example analyse -- /bin/bash
//! /usr/lib/x86_64-linux-gnu/libc.so.6`

use std::path::Path;
use std::time::Instant;

use refit_analysis::flow::Target;
use refit_analysis::functions::FunctionId;
use refit_analysis::{Module, OpenError, image::Image};

fn main() -> Result<(), OpenError> {
    for path in std::env::args().skip(1) {
        let begin = Instant::now();
        let image = Image::open(Path::new(&path))?;
        let read = begin.elapsed();
        let module = Module::analyse(image);
        let analysed = begin.elapsed();
        let mut counts = Counts::default();
        for i in 0..module.functions().len() as u32 {
            counts.add(&module, FunctionId(i));
        }
        println!("{path}: read in {read:.2?}, analysed in {analysed:.2?}");
        println!("  {counts:?}");
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Counts {
    functions: usize,
    no_return: usize,
    parts: usize,
    blocks: usize,
    instructions: usize,
    tables: usize,
    unknown: usize,
    elsewhere: usize,
    outside: usize,
    live_at_entry: u32,
    dead_flags: usize,
    red_zone: usize,
}

impl Counts {
    fn add(&mut self, module: &Module, id: FunctionId) {
        let function = module.function(id);
        let flow = module.flow(id);
        self.functions += 1;
        self.no_return += usize::from(!module.returns(id));
        self.parts += function.ranges.len() - 1;
        self.blocks += flow.blocks().len();
        self.instructions += flow.instructions().len();
        let table =
            |e: &&refit_analysis::flow::Edge| e.kind == refit_analysis::flow::EdgeKind::Table;
        let mut from: Vec<u32> = flow.edges().iter().filter(table).map(|e| e.from).collect();
        from.dedup();
        self.tables += from.len();
        let is = |e: &refit_analysis::flow::Edge, t| e.to == t;
        let unknown = flow.edges().iter().filter(|e| is(e, Target::Unknown)).count();
        if unknown > 0 && std::env::var_os("UNKNOWN").is_some() {
            for edge in flow.edges().iter().filter(|e| is(e, Target::Unknown)) {
                let block = flow.blocks()[edge.from as usize];
                let last = flow.block_instructions(&block).last().map_or(0, |i| i.address);
                println!(
                    "  unknown in {} {:#x} at {last:#x} {:?}",
                    function.name(),
                    function.entry,
                    edge.kind
                );
            }
        }
        self.unknown += unknown;
        self.elsewhere += flow.edges().iter().filter(|e| is(e, Target::Elsewhere)).count();
        let outside = |e: &&refit_analysis::flow::Edge| matches!(e.to, Target::Outside(_));
        let count = flow.edges().iter().filter(outside).count();
        if count > 0 && std::env::var_os("UNKNOWN").is_some() {
            println!("  outside of {} {:#x}", function.name(), function.entry);
        }
        self.outside += count;
        let live = flow.live_before(function.entry);
        self.live_at_entry += live.general.count_ones();
        self.dead_flags += usize::from(live.flags & 0x3f == 0);
        self.red_zone += usize::from(live.red_zone);
    }
}
