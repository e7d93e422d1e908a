//! `refit ps`.

use std::collections::BTreeMap;

use refit_instance::Client;
use refit_instance::wire::{PlaceInfo, ProcessInfo};
use serde::Serialize;

use crate::failure::Failure;
use crate::format;
use crate::instances;
use crate::output::Output;
use crate::table::{Align, Table};

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    process: &'a ProcessInfo,
}

/// Returns the number of threads at each other instance, e.g. `3 at 1`.
fn elsewhere(own: Option<u16>, places: &[PlaceInfo]) -> String {
    let mut all = BTreeMap::<u16, usize>::new();
    for place in places.iter().filter(|place| Some(place.at) != own) {
        *all.entry(place.at).or_default() += 1;
    }
    let texts: Vec<String> = all.iter().map(|(at, threads)| format!("{threads} at {at}")).collect();
    texts.join(", ")
}

/// Lists processes, instance by instance.
pub(crate) fn run(only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("INSTANCE", Align::Right),
        ("PID", Align::Right),
        ("PARENT", Align::Right),
        ("STATE", Align::Left),
        ("THREADS", Align::Right),
        ("CPU", Align::Right),
        ("RESIDENT", Align::Right),
        ("MOVABLE", Align::Left),
        ("ELSEWHERE", Align::Left),
        ("COMMAND", Align::Left),
    ]);
    for live in instances::live("list processes", only)? {
        let pid = live.pid;
        let query = |client: &Client| Ok((client.kernel()?, client.processes()?));
        let Some((kernel, processes)) = live.says(query)? else { continue };
        let number = kernel.map(|kernel| kernel.number);
        for process in processes {
            if out.json() {
                out.object(&Line { instance: pid, process: &process })?;
                continue;
            }
            table.row(vec![
                pid.to_string(),
                process.pid.to_string(),
                process.parent.to_string(),
                process.state.to_string(),
                process.threads.to_string(),
                format!("{:.2} s", process.cpu_ms as f64 / 1000.0),
                format::size(process.resident_bytes),
                format::yes_or_no(process.movable).to_owned(),
                elsewhere(number, &process.places),
                process.command,
            ]);
        }
    }
    if out.json() {
        return Ok(());
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}
