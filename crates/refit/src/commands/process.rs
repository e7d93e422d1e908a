//! `refit show PID`: a process of a program that runs under an instance, and its memory.

use std::path::Path;

use refit_instance::Client;
use refit_instance::wire::{MemoryInfo, ProcessMemory, RegionInfo, StoreInfo};
use serde::Serialize;

use crate::failure::Failure;
use crate::format;
use crate::instances;
use crate::output::Output;
use crate::table::{Align, Table};

/// The size of a page, in which the control API tells what regions hold.
const PAGE: u64 = 4096;

/// A process, and whose it is.
pub(crate) struct Found {
    pub(crate) instance: u32,
    pub(crate) client: Client,
    pub(crate) process: ProcessMemory,
}

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    process: &'a ProcessMemory,
    /// That of all processes of the instance.
    memory: Option<&'a MemoryInfo>,
}

/// Finds the instance under which a process runs.
///
/// # Errors
/// There is no such process, or it runs under none.
pub(crate) fn find(asked: &str, pid: u32, only: Option<u32>) -> Result<Found, Failure> {
    let all = match only {
        Some(_) => instances::live(asked, only)?,
        None => instances::answering(None)?,
    };
    for instances::Live { pid: instance, client } in all {
        if let Some(process) = client.process(pid)? {
            return Ok(Found { instance, client, process });
        }
    }
    if Path::new(&format!("/proc/{pid}")).exists() {
        let remedy = "see `refit ps` for those that do; start programs with `refit run -- COMMAND`";
        return Err(Failure::new(asked, "it is no process that runs under refit", remedy));
    }
    Err(Failure::new(asked, "no such process", "see `refit ps` for those that run under refit"))
}

/// Shows a process.
pub(crate) fn show(pid: u32, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let found = find(&format!("show {pid}"), pid, only)?;
    // Without a swap file there is nothing to tell; that is no reason not to tell the rest.
    let memory = found.client.memory().ok();
    let Found { instance, process, .. } = &found;
    if out.json() {
        return out.object(&Line { instance: *instance, process, memory: memory.as_ref() });
    }
    let of = &process.process;
    out.line(&of.command)?;
    let mut fact = |what: &str, value: &str| out.line(&format!("  {what:<16}{value}"));
    fact("instance", &instance.to_string())?;
    fact("process", &format!("{}, child of {}, {}", of.pid, of.parent, of.state))?;
    fact("threads", &format::count(of.threads))?;
    fact("cpu", &format!("{:.2} s", of.cpu_ms as f64 / 1000.0))?;
    fact("resident", &format::size(of.resident_bytes))?;
    fact("movable", format::yes_or_no(of.movable))?;
    if let Some(memory) = &memory {
        facts(memory).iter().try_for_each(|(what, value)| fact(what, value))?;
    }
    if let Some(why) = &process.refused {
        fact("not served", why)?;
    }
    if process.regions.is_empty() {
        return Ok(());
    }
    out.line("")?;
    let table = regions(&process.regions);
    table.lines().iter().try_for_each(|line| out.line(&format!("  {line}")))
}

/// What is told of the memory of a program and all that it has started.
fn facts(memory: &MemoryInfo) -> Vec<(&'static str, String)> {
    let mut facts = vec![("limit", limit(memory.limit_bytes) + ", for all of its program")];
    if memory.limit_bytes.is_none() {
        return facts;
    }
    let (resident, served) = (memory.resident_bytes, memory.served_bytes);
    let (resident, served) = (format::size(resident), format::size(served));
    facts.push(("in memory", format!("{resident}, of which {served} is served")));
    facts.push(("out", out_of_memory(&memory.store)));
    if memory.lost > 0 {
        let pages = format::counted(memory.lost, "page");
        facts.push(("lost", format!("{pages}: the disk of the swap file did not give them back")));
    }
    if memory.full {
        let full = "the swap file takes nothing more, so more is in memory than may be";
        facts.push(("full", full.to_owned()));
    }
    if memory.failures > 0 {
        let times = format::counted(memory.failures, "fault");
        facts.push(("faults", format!("{times} of refit's own; the instance's log tells of them")));
    }
    facts
}

/// A limit in words.
pub(crate) fn limit(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "none".to_owned(), format::size)
}

/// Pages that are out, in words.
pub(crate) fn out_of_memory(store: &StoreInfo) -> String {
    let bytes = |pages: u64| format::size(pages * PAGE);
    let StoreInfo { zeros, compressed, compressed_bytes, in_file } = *store;
    format!(
        "{} of zeros, {} compressed in {}, {} in the swap file",
        bytes(zeros),
        bytes(compressed),
        format::size(compressed_bytes),
        bytes(in_file)
    )
}

fn regions(regions: &[RegionInfo]) -> Table {
    let mut table = Table::new(&[
        ("START", Align::Right),
        ("SIZE", Align::Right),
        ("RESIDENT", Align::Right),
        ("STORED", Align::Right),
        ("FAULTS", Align::Right),
        ("AROUND", Align::Right),
        ("EVICTIONS", Align::Right),
        ("RETURNS", Align::Right),
        ("SERVED BY", Align::Left),
        ("NAME", Align::Left),
    ]);
    for region in regions {
        table.row(vec![
            format!("{:x}", region.start),
            format::size(region.end.saturating_sub(region.start)),
            format::size(region.resident * PAGE),
            format::size(region.stored * PAGE),
            format::count(region.faults),
            format::count(region.around),
            format::count(region.evictions),
            format::count(region.returns),
            served_by(region),
            region.name.clone(),
        ]);
    }
    table
}

/// The region's implementation and its cache's, in a word.
fn served_by(region: &RegionInfo) -> String {
    match (region.native, &region.region, &region.cache) {
        (true, ..) => "the kernel".to_owned(),
        (false, Some(region), Some(cache)) => format!("{region}, {cache}"),
        _ => "-".to_owned(),
    }
}
