//! Measures refit against its peers and writes `bench/RESULTS.md`: one table per published result.
//!
//! The measurements are never part of the tests, because these numbers depend on the machine.
//! Ratios count; medians with 10th and 90th percentiles.

mod area;
mod bolted;
mod calls;
mod classes;
mod counter;
mod domains;
mod faults;
mod files;
mod group;
mod handover;
mod instructions;
mod interposer;
mod layouts;
mod load;
mod memory;
mod messages;
mod metadata;
mod move_tables;
mod moved;
mod moves;
mod paging;
mod passthrough;
mod phases;
mod plot;
mod plugins;
mod prefetch;
mod prefetch_tables;
mod probes;
mod program_tables;
mod programs;
mod questions;
mod recording;
mod report;
mod runs;
mod sdet;
mod server;
mod servers;
mod spread;
mod stacks;
mod stats;
mod streams;
mod swapfile;
mod swaps;
mod tables;
mod top;
mod umap;
mod watched;
mod water;
mod worker;
mod workload;
mod workload_tables;
mod workloads;

use std::process::ExitCode;

const PARTS: [&str; 34] = [
    "calls",
    "instructions",
    "interposer",
    "plugins",
    "swaps",
    "phases",
    "classes",
    "memory",
    "load",
    "files",
    "passthrough",
    "metadata",
    "handover",
    "sdet",
    "recording",
    "stacks",
    "water",
    "top",
    "probes",
    "questions",
    "programs",
    "servers",
    "optimize",
    "group",
    "bolt",
    "faults",
    "paging",
    "runs",
    "domains",
    "streams",
    "workloads",
    "prefetch",
    "messages",
    "moves",
];

/// The option with which `workloads` takes the smallest sizes, once each.
const QUICK: &str = "--quick";

/// Returns the workload with this name, if it is this program itself, started once more.
fn workload(argument: &str) -> Option<fn(&[String])> {
    Some(match argument {
        instructions::ARGUMENT => |_| instructions::steps(),
        probes::ARGUMENT => |_| probes::serve(),
        questions::ARGUMENT => |_| questions::serve(),
        faults::ARGUMENT => faults::serve,
        faults::SERVER => |arguments| complain(faults::serve_parent(arguments)),
        paging::ARGUMENT => paging::serve,
        domains::ARGUMENT => |_| domains::serve(),
        messages::ARGUMENT => messages::serve,
        moved::ARGUMENT => moved::serve,
        stacks::ARGUMENT => |_| stacks::sleep_below_frames(),
        streams::ARGUMENT => |_| streams::serve(),
        streams::STREAM => |_| complain(streams::stream()),
        _ => return None,
    })
}

/// Prints the error of a workload that is asked nothing, because nobody reads its answers.
fn complain(ended: Result<(), String>) {
    if let Err(why) = ended {
        eprintln!("bench: {why}");
    }
}

fn main() -> ExitCode {
    let mut parts: Vec<String> = std::env::args().skip(1).collect();
    if let Some(workload) = parts.first().and_then(|first| workload(first)) {
        workload(&parts[1..]);
        return ExitCode::SUCCESS;
    }
    let quick = parts.iter().map(String::as_str).eq(["workloads", QUICK]);
    parts.truncate(if quick { 1 } else { parts.len() });
    if let Some(unknown) = parts.iter().find(|a| !PARTS.contains(&a.as_str())) {
        eprintln!("bench: there is no part {unknown:?}; there are: {}", PARTS.join(", "));
        return ExitCode::from(2);
    }
    let mut report = report::Report::new(&parts);
    for part in PARTS {
        if !parts.is_empty() && !parts.iter().any(|a| a == part) {
            continue;
        }
        eprintln!("measuring: {part}");
        match part {
            "calls" => report.calls(&calls::measure()),
            "instructions" => report.instructions(instructions::measure()),
            "interposer" => report.interposer(&interposer::measure()),
            "plugins" => report.plugins(plugins::measure()),
            "swaps" => report.swaps(),
            "phases" => report.phases(&phases::measure()),
            "classes" => report.classes(&classes::measure()),
            "memory" => report.memory(&memory::measure()),
            "load" => report.load(&load::measure(10)),
            "passthrough" => report.passthrough(passthrough::measure()),
            "metadata" => report.metadata(metadata::measure()),
            "handover" => report.handovers(handover::measure()),
            "sdet" => report.sdet(sdet::measure()),
            "recording" => report.recording(&recording::measure(20)),
            "stacks" => report.stacks(stacks::measure()),
            "top" => report.top(top::measure()),
            "probes" => report.probes(probes::measure()),
            "questions" => report.questions(questions::measure()),
            "programs" => report.programs(&programs::measure()),
            "servers" => report.servers(&servers::measure()),
            "optimize" => report.layouts(&layouts::measure()),
            "group" => report.group(&group::measure()),
            "bolt" => report.bolted(&bolted::measure()),
            "faults" => report.faults(faults::measure()),
            "paging" => report.paging(&paging::measure()),
            "runs" => report.runs(runs::measure()),
            "domains" => report.domains(domains::measure()),
            "streams" => report.streams(streams::measure()),
            "prefetch" => report.prefetch(prefetch::measure()),
            "workloads" => report.workloads(workloads::measure(quick)),
            "messages" => report.messages(messages::measure()),
            "moves" => report.moves(moves::measure()),
            "water" => report.water(&water::measure()),
            _ => [false, true].into_iter().for_each(|on| report.files(on, &files::measure(on, 5))),
        }
    }
    print!("{}", report.text());
    // A run of some parts is for inspection; only a whole run is a result.
    if parts.is_empty()
        && let Err(error) = std::fs::write("bench/RESULTS.md", report.text())
    {
        eprintln!("bench: cannot write bench/RESULTS.md: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
