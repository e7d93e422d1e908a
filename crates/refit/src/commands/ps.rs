//! `refit ps`.

use refit_instance::wire::ProcessInfo;
use serde::Serialize;

use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::Output;
use crate::table::{Align, Table};

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    process: &'a ProcessInfo,
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
        ("COMMAND", Align::Left),
    ]);
    for Live { pid, client } in instances::live("list processes", only)? {
        for process in client.processes()? {
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
                process.command,
            ]);
        }
    }
    if out.json() {
        return Ok(());
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}
