//! Counts that follow from those of other blocks are those that counters of their own tell.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use refit_analysis::FunctionId;
use refit_analysis::flow::Marks;
use refit_probe::conservation::Conservation;
use refit_probe::cover::{self, Blocks, Watching};
use refit_probe::modules;
use refit_probe::sites::Place;
use refit_splice::process::Program;
use refit_splice::{AHEAD, Action, At, Installed, Plan, Site, remains};

use super::program::Routes;
use super::victim::{Victim, build};

/// A function, with the addresses of its blocks in the program.
struct Function {
    name: String,
    laws: Conservation,
    blocks: Vec<u64>,
}

/// A program of which every block has a counter of its own.
struct Counted {
    functions: Vec<Function>,
    installed: Installed,
    cells: BTreeMap<u64, u32>,
}

impl Counted {
    fn new(program: &Program) -> Self {
        let mut sites = BTreeMap::<u64, Site>::new();
        let mut functions = Vec::new();
        for mapped in modules::of(program).expect("its files") {
            let module = mapped.open().expect("an analysis");
            let bias = mapped.bias(module.image()).expect("the same file");
            for id in (0..module.functions().len() as u32).map(FunctionId) {
                let place = Place::new(&module, id, bias);
                let flow = place.flow();
                let mut blocks = Vec::new();
                for block in flow.blocks() {
                    // The mark of a target stays where it is, and control may pass a copy there.
                    let first = flow.instruction_at(block.start).expect("its first instruction");
                    let marks = first.marks.contains(Marks::LANDING);
                    let at = if marks { first.end() } else { block.start };
                    // What consists of a mark has no place of its own.
                    blocks.push(if at < block.end { at.wrapping_add(bias) } else { 0 });
                    if at < block.end {
                        let site = place.site(at, At::Before, Vec::new());
                        sites.extend(site.ok().map(|site| (site.address, site)));
                    }
                }
                let laws = Conservation::new(&module, place.flow());
                functions.push(Function { name: module.function(id).name(), laws, blocks });
            }
        }
        for (cell, site) in (0..).zip(sites.values_mut()) {
            site.actions = vec![Action::Count { cell }.into()];
        }
        let mut cells: BTreeMap<u64, u32> = sites.keys().copied().zip(0..).collect();
        let addresses: Vec<u64> = cells.keys().copied().collect();
        let (plan, refused) = Plan::new(sites.into_values().collect());
        for (index, _) in refused {
            cells.remove(&addresses[index]);
        }
        let installed = Installed::new(program, &plan, addresses.len() as u32, None);
        Self { functions, installed: installed.expect("installed"), cells }
    }

    /// Compares, and returns how many counts above 0 were derived, and how many counters there
    /// were for how many blocks.
    fn compare(&self) -> (usize, usize, usize) {
        let mut lanes = self.installed.lanes(AHEAD);
        let own: BTreeMap<u64, u64> = self
            .cells
            .iter()
            .map(|(&address, &cell)| (address, lanes.cell(cell).expect("read")))
            .collect();
        let (mut derived, mut counters, mut blocks) = (0, 0, 0);
        for Function { name, laws, blocks: all } in &self.functions {
            let own: Vec<_> = all.iter().map(|block| own.get(block).copied()).collect();
            let counted = laws.counted(|block| u32::from(own[block].is_none()));
            let mut counts: Vec<Option<u64>> =
                own.iter().zip(&counted).map(|(own, counted)| own.filter(|_| *counted)).collect();
            laws.derive(&mut counts);
            for ((block, own), count) in all.iter().zip(&own).zip(&counts) {
                let (Some(own), Some(count)) = (own, count) else { continue };
                assert_eq!(count, own, "{name}: {block:#x}");
            }
            let ran =
                counted.iter().zip(&counts).filter(|(own, count)| !**own && **count > Some(0));
            derived += ran.count();
            counters += counted.iter().filter(|counted| **counted).count();
            blocks += all.len();
        }
        (derived, counters, blocks)
    }
}

#[test]
fn counts_of_a_program_and_of_its_libraries_follow() {
    let mut routes = Routes::start();
    routes.waits();
    let program = routes.program();
    let counted = Counted::new(&program);
    for line in ["route 2", "route 3", "route 300", "constant 0", "locked 1", "route 7"] {
        routes.ask(line);
    }
    routes.waits();
    let (derived, counters, blocks) = counted.compare();
    assert!(derived > 50 && counters * 4 < blocks * 3, "{derived}; {counters} of {blocks}");
    remains::repair(&program).expect("taken out");
    routes.is_untouched();
}

#[test]
fn exceptions_make_no_count_wrong() {
    let built = build("c++", "probing/thrown.cc", &["-O2"]);
    let mut victim = Victim::of(built.path());
    assert_eq!(victim.ask("catches 2"), "1");
    let program = victim.program();
    let counted = Counted::new(&program);
    assert_eq!(victim.ask("catches 100"), "50");
    assert_eq!(victim.ask("again 100"), "50");
    counted.compare();
    remains::repair(&program).expect("taken out");
    assert_eq!(victim.ask("catches 100"), "50");
}

/// Perl's `die` is a `longjmp` past many functions.
#[test]
fn long_jumps_make_no_count_wrong() {
    const PROGRAM: &str =
        "$| = 1; print qq(ready\n); while (<STDIN>) { eval $_; print qq($@$x\n) }";
    let mut perl = Command::new("perl")
        .args(["-e", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("perl");
    let mut answers = BufReader::new(perl.stdout.take().expect("a pipe"));
    let mut answer = || {
        let mut line = String::new();
        answers.read_line(&mut line).expect("an answer");
        line
    };
    assert_eq!(answer(), "ready\n");
    let mut stdin = perl.stdin.take().expect("a pipe");
    let mut ask = |text: &str| {
        writeln!(stdin, "{text}").expect("it listens");
        answer()
    };
    assert_eq!(ask("$x = 1 + 1"), "2\n");
    let program = Program::open(perl.id()).expect("a child of ours");
    let counted = Counted::new(&program);
    let work = "for my $i (1 .. 100) { eval { die if $i % 2; $x += $i } }; $x .= sprintf '%.2f', 1";
    assert_eq!(ask(work), "25521.00\n");
    let (derived, ..) = counted.compare();
    assert!(derived > 500, "{derived}");
    remains::repair(&program).expect("taken out");
    assert_eq!(ask("$x = 3"), "3\n");
    perl.kill().expect("killed");
    perl.wait().expect("its end");
}

#[test]
fn blocks_are_counted_with_few_counters() {
    let mut routes = Routes::start();
    routes.waits();
    let program = routes.program();
    for which in [Blocks::Roomy, Blocks::All] {
        let prepared = cover::prepare(&program, &[], which, Watching::Counters).expect("prepared");
        let mut cover = prepared.install(&program).expect("installed");
        for _ in 0..3 {
            assert_eq!(routes.ask("route 3"), "19");
            assert_eq!(routes.ask("route 300"), "926");
        }
        cover.remove(&program).expect("taken out");
        let mut functions = cover.files.iter().flat_map(|file| &file.functions);
        let route = functions.find(|function| function.name == "route").expect("route");
        let tally = cover.tally(route);
        assert!(cover.left() < cover.files[0].functions.iter().map(|one| one.blocks.len()).sum());
        let runs: Vec<_> = route.blocks.iter().map(|block| cover.runs(block)).collect();
        assert_eq!(tally.runs, runs.iter().flatten().sum::<u64>(), "{runs:?}");
        assert_eq!(runs, [6, 3, 3, 6, 3, 6].map(Some), "{which:?}");
    }
    routes.is_untouched();
}
