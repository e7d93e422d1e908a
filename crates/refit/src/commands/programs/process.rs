//! `refit show PID`: a process of a program that runs under an instance, its memory, and the totals
//! of its moves.

use std::collections::BTreeMap;
use std::path::Path;

use refit_instance::Client;
use refit_instance::wire::{
    MemoryInfo, MovesInfo, PlaceInfo, ProcessMemory, RegionInfo, StoreInfo,
};
use refit_sys::memory::PAGE_SIZE_U64;
use serde::Serialize;

use crate::commands::moves::totals;
use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::Output;
use crate::table::{Align, Table};

/// A process, and the instance under which it runs.
pub(crate) struct RunningProcess {
    pub(crate) instance: u32,
    pub(crate) client: Client,
    pub(crate) process: ProcessMemory,
}

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    process: &'a ProcessMemory,
    /// The memory of all processes of the instance.
    memory: Option<&'a MemoryInfo>,
    /// The totals of its moves.
    moves: Option<&'a MovesInfo>,
}

/// A program that has ended.
#[derive(Serialize)]
struct Former<'a> {
    instance: u32,
    pid: u32,
    moves: &'a MovesInfo,
}

/// Finds the instance under which a process runs.
///
/// # Errors
///
/// There is no such process, or it runs under none.
pub(crate) fn find(
    operation: &str,
    pid: u32,
    only: Option<u32>,
) -> Result<RunningProcess, Failure> {
    let all = match only {
        Some(_) => instances::live(operation, only)?,
        None => instances::answering(None)?,
    };
    among(all, pid)?.ok_or_else(|| nobody(operation, pid))
}

/// Finds the instance of this user under which a process runs; `None` if it runs under none.
///
/// # Errors
///
/// An instance does not answer.
pub(crate) fn search(pid: u32) -> Result<Option<RunningProcess>, Failure> {
    among(instances::answering(None)?, pid)
}

fn among(all: Vec<Live>, pid: u32) -> Result<Option<RunningProcess>, Failure> {
    for live in all {
        if let Some(Some(process)) = live.says(|client| client.process(pid))? {
            let found = RunningProcess { instance: live.pid, client: live.client, process };
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn nobody(operation: &str, pid: u32) -> Failure {
    if Path::new(&format!("/proc/{pid}")).exists() {
        let remedy =
            "list those that do with `refit ps`, or start a program with `refit run -- COMMAND`";
        return Failure::new(operation, "the process does not run under refit", remedy);
    }
    Failure::new(operation, "no such process", "list processes under refit with `refit ps`")
}

/// Shows the totals of the moves of a program that has ended. Returns whether there was one.
fn show_former(pid: u32, only: Option<u32>, out: &mut Output) -> Result<bool, Failure> {
    for live in instances::answering(only)? {
        let Some(Some(moves)) = live.says(|client| client.moves(pid))? else { continue };
        if out.json() {
            out.object(&Former { instance: live.pid, pid, moves: &moves })?;
            return Ok(true);
        }
        out.line(&format!("{pid}, which has ended"))?;
        out.line(&format!("  {:<16}{}", "instance", live.pid))?;
        show_moves(&moves, out)?;
        return Ok(true);
    }
    Ok(false)
}

fn show_moves(moves: &MovesInfo, out: &mut Output) -> Result<(), Failure> {
    for (what, value) in totals::facts(moves) {
        out.line(&format!("  {what:<16}{value}"))?;
    }
    let lines = totals::table(&moves.destinations).lines();
    if lines.len() == 1 {
        return Ok(());
    }
    out.line("")?;
    lines.iter().try_for_each(|line| out.line(&format!("  {line}")))
}

/// Returns the number of threads, and their places: `4; 2 at 1`.
fn threads(all: u64, places: &[PlaceInfo]) -> String {
    let mut at = BTreeMap::<u16, u64>::new();
    places.iter().for_each(|place| *at.entry(place.at).or_default() += 1);
    let texts: Vec<String> = at.iter().map(|(at, threads)| format!("{threads} at {at}")).collect();
    let texts = texts.join(", ");
    if texts.is_empty() { format::count(all) } else { format!("{}: {texts}", format::count(all)) }
}

/// Shows a process.
pub(crate) fn show(pid: u32, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let operation = format!("show {pid}");
    let found = match find(&operation, pid, only) {
        Err(_) if show_former(pid, only, out)? => return Ok(()),
        found => found?,
    };
    // Without a swap file there is no memory to report; the rest is still shown.
    let memory = found.client.memory().ok();
    let moves = found.client.moves(pid)?;
    let RunningProcess { instance, process, .. } = &found;
    if out.json() {
        let (memory, moves) = (memory.as_ref(), moves.as_ref());
        return out.object(&Line { instance: *instance, process, memory, moves });
    }
    let of = &process.process;
    out.line(&of.command)?;
    let mut fact = |what: &str, value: &str| out.line(&format!("  {what:<16}{value}"));
    fact("instance", &instance.to_string())?;
    fact("process", &format!("{}, child of {}, {}", of.pid, of.parent, of.state))?;
    fact("threads", &threads(of.threads, &of.places))?;
    fact("cpu", &format!("{:.2} s", of.cpu_ms as f64 / 1000.0))?;
    fact("resident", &format::size(of.resident_bytes))?;
    fact("movable", format::yes_or_no(of.movable))?;
    if let Some(memory) = &memory {
        facts(memory).iter().try_for_each(|(what, value)| fact(what, value))?;
    }
    if let Some(why) = &process.refused {
        fact("not served", why)?;
    }
    if let Some(moves) = &moves {
        show_moves(moves, out)?;
    }
    if process.regions.is_empty() {
        return Ok(());
    }
    out.line("")?;
    let table = regions(&process.regions);
    table.lines().iter().try_for_each(|line| out.line(&format!("  {line}")))
}

/// Returns the facts about the memory of a program and of all that it has started.
fn facts(memory: &MemoryInfo) -> Vec<(&'static str, String)> {
    let mut facts = vec![("limit", limit(memory.limit_bytes) + ", for the whole program")];
    if memory.limit_bytes.is_none() {
        return facts;
    }
    let (resident, served) = (memory.resident_bytes, memory.served_bytes);
    let (resident, served) = (format::size(resident), format::size(served));
    facts.push(("in memory", format!("{resident}, of which {served} is served")));
    facts.push(("out", out_of_memory(&memory.store)));
    if memory.lost > 0 {
        let pages = format::counted(memory.lost, "page");
        facts.push(("lost", format!("{pages}: they could not be read back from the swap file")));
    }
    if memory.full {
        let full = "pages cannot be written to the swap file, so the program exceeds its limit";
        facts.push(("full", full.to_owned()));
    }
    if memory.failures > 0 {
        let times = format::counted(memory.failures, "fault");
        facts.push(("faults", format!("{times} inside refit; see the instance's log")));
    }
    facts
}

/// Returns a limit in words.
pub(crate) fn limit(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "none".to_owned(), format::size)
}

/// Returns the evicted pages in words.
pub(crate) fn out_of_memory(store: &StoreInfo) -> String {
    let bytes = |pages: u64| format::size(pages * PAGE_SIZE_U64);
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
            format::size(region.resident * PAGE_SIZE_U64),
            format::size(region.stored * PAGE_SIZE_U64),
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

/// Returns the region's implementation and its cache's, in a word.
fn served_by(region: &RegionInfo) -> String {
    match (region.native, &region.region, &region.cache) {
        (true, ..) => "the kernel".to_owned(),
        (false, Some(region), Some(cache)) => format!("{region}, {cache}"),
        _ => "-".to_owned(),
    }
}
