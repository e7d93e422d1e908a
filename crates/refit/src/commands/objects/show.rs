//! `refit ls` and `refit show`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use refit_instance::wire::ObjectInfo;
use serde::Serialize;

use super::hierarchy::Hierarchy;
use super::wrappers;
use crate::commands::files::file;
use crate::commands::interruption::{interruption, sleep};
use crate::commands::programs::process;
use crate::failure::Failure;
use crate::format;
use crate::instances;
use crate::output::{self, Output};
use crate::table::{Align, Table};

/// Arguments of `refit ls`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit ls 'fcm:/logs/*'
  refit ls --class fcm --implementation shared --on pm:/mnt/data")]
pub(crate) struct LsArgs {
    /// Pattern for names
    #[arg(default_value = "*", hide_default_value = true)]
    glob: String,

    /// List only objects of this class (the part of the name before the colon)
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,

    /// List only objects with this implementation
    #[arg(long, value_name = "NAME")]
    implementation: Option<String>,

    /// List only objects that use this one, directly or indirectly
    #[arg(long, value_name = "OBJECT")]
    on: Option<String>,

    /// List only objects that this one uses, directly or indirectly
    #[arg(long, value_name = "OBJECT")]
    under: Option<String>,

    /// Select only objects of the mount at this mountpoint
    #[arg(long, value_name = "MOUNTPOINT")]
    mount: Option<String>,
}

/// Arguments of `refit show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit show fcm:/logs/a
  refit show -f 'fcm:/logs/*' --every 200ms
  refit show 4711
  refit show /mnt/data/logs/a

A number is the ID of a process that runs under an instance; show prints its memory, region by region, and totals of its moves between instances. \
For a file of a mount, show prints the processes that have it open, whether one uses it (an exclusive session) or several do (a shared one), how the kernel accesses it, and the caches that hold it. \
For an object, the tree at the end shows the objects that it uses, and those that use it.")]
pub(crate) struct ShowArgs {
    /// Name of an object, a pattern, a process ID, or the path of a file of a mount
    #[arg(value_name = "OBJECT|GLOB|PID|FILE")]
    object: String,

    /// Repeat at each interval, until Ctrl-C
    #[arg(short, long)]
    follow: bool,

    /// Interval between updates
    #[arg(long, default_value = "1s", requires = "follow", value_parser = format::parse_duration)]
    #[arg(value_name = "TIME")]
    every: Duration,

    /// Select only objects of the mount at this mountpoint
    #[arg(long, value_name = "MOUNTPOINT")]
    mount: Option<String>,
}

/// Statistics that are counted in bytes rather than in things.
const BYTES: [&str; 1] = ["size"];

/// The counters of implementations that `refit ls` shows; `refit show` shows the others after them.
const COLUMNS: [&str; 5] = ["size", "resident", "dirty", "calls", "faults"];

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    object: &'a ObjectInfo,
}

/// Lists the objects that match.
pub(crate) fn list(args: &LsArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let LsArgs { glob, class, implementation, on, under, mount } = args;
    let operation = format!("list {glob}");
    let mut found = matching(&operation, glob, mount.as_deref(), only)?;
    found.retain(|(_, object)| {
        class.as_ref().is_none_or(|class| object.interface == *class)
            && implementation.as_ref().is_none_or(|name| object.implementation == *name)
    });
    if on.is_some() || under.is_some() {
        let kin = kin(&operation, on.as_deref(), under.as_deref(), only)?;
        found.retain(|(pid, object)| kin.contains(&(*pid, object.id)));
    }
    // A pattern may match nothing; no objects at all are no failure either.
    let all = glob == "*" && mount.is_none() && class.is_none() && implementation.is_none();
    if found.is_empty() && !(all && on.is_none() && under.is_none()) {
        return Err(nothing(&operation));
    }
    if out.json() {
        return print_json(&found, out);
    }
    // Implementations have different counters. A column is shown for the most important ones that
    // any of them has; the others are left to `refit show`.
    let counted: Vec<&str> = COLUMNS
        .into_iter()
        .filter(|key| found.iter().any(|(_, o)| o.stats.contains_key(*key)))
        .collect();
    let titles: Vec<String> = counted.iter().map(|key| key.to_uppercase()).collect();
    let mut columns = vec![("IMPLEMENTATION", Align::Left), ("REPS", Align::Right)];
    columns.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    // With one mount, it is the same for all.
    let mounts: BTreeSet<_> =
        found.iter().filter_map(|(pid, o)| Some((pid, o.mount.as_ref()?))).collect();
    let several = mounts.len() > 1;
    if several {
        columns.push(("MOUNT", Align::Left));
    }
    columns.push(("NAME", Align::Left));
    let mut table = Table::new(&columns);
    for (_, object) in &found {
        let mut row = vec![object.composed(), object.reps.to_string()];
        row.extend(
            counted.iter().map(|key| object.stats.get(*key).map_or("-".into(), |n| stat(key, *n))),
        );
        if several {
            row.push(object.mount.clone().unwrap_or_else(|| "-".into()));
        }
        row.push(object.name.clone());
        table.row(row);
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}

/// Shows everything about the objects that match, once or repeatedly.
pub(crate) fn show(args: &ShowArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    if !args.follow {
        return show_once(args, only, out);
    }
    let interrupted = interruption()?;
    let screen = !out.json() && output::can_draw();
    while !interrupted.load(Ordering::Relaxed) {
        if screen {
            out.raw(b"\x1b[H\x1b[2J")?; // from the top of an empty screen
        }
        show_once(args, only, out)?;
        if !screen && !out.json() {
            out.line("")?;
        }
        out.flush()?;
        sleep(args.every, &interrupted);
    }
    Ok(())
}

fn show_once(args: &ShowArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let name = &args.object;
    // No object has a number as its name.
    if let Ok(pid) = name.parse() {
        return process::show(pid, only, out);
    }
    if file::is_path(name) {
        let Some(cache) = file::show(Path::new(name), only, out)? else { return Ok(()) };
        out.line("")?;
        return print(&[cache], only, out);
    }
    let operation = format!("show {name}");
    let found = matching(&operation, name, args.mount.as_deref(), only)?;
    if found.is_empty() {
        return Err(nothing(&operation));
    }
    if out.json() { print_json(&found, out) } else { print(&found, only, out) }
}

/// Prints all about objects, each with its instance.
fn print(found: &[(u32, ObjectInfo)], only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let mut all = Vec::new();
    for live in instances::live("list objects", only)? {
        all.push((live.pid, live.says(|client| client.objects("*"))?.unwrap_or_default()));
    }
    for (i, (pid, object)) in found.iter().enumerate() {
        if i > 0 {
            out.line("")?;
        }
        out.line(&object.name)?;
        let mut fact = |what: &str, value: &str| out.line(&format!("  {what:<16}{value}"));
        fact("instance", &pid.to_string())?;
        fact("object", &object.id.to_string())?;
        fact("interface", &object.interface)?;
        if let Some(mount) = &object.mount {
            fact("mount", mount)?;
        }
        fact("implementation", &object.implementation)?;
        fact("can become", &object.implementations.join(", "))?;
        fact("reps", &format!("{}, {}", format::count(object.reps), object.clustering))?;
        fact("misses", &format::count(object.misses))?;
        let mut stats: Vec<_> = object.stats.iter().collect();
        stats.sort_by_key(|(key, _)| rank(key));
        for (key, n) in stats {
            fact(key, &stat(key, *n))?;
        }
        wrappers::lines(object).iter().try_for_each(|line| out.line(line))?;
        let objects = all.iter().find(|(instance, _)| instance == pid);
        let hierarchy = Hierarchy::new(objects.map_or(&[], |(_, objects)| objects));
        let drawing = hierarchy.draw(object.id);
        if drawing.len() > 1 {
            out.line("")?;
            drawing.iter().try_for_each(|line| out.line(&format!("  {line}")))?;
        }
    }
    Ok(())
}

/// Returns the objects that stand on one and under another, by instance.
fn kin(
    operation: &str,
    on: Option<&str>,
    under: Option<&str>,
    only: Option<u32>,
) -> Result<BTreeSet<(u32, u64)>, Failure> {
    let mut kin = BTreeSet::new();
    for live in instances::live(operation, only)? {
        let objects = live.says(|client| client.objects("*"))?.unwrap_or_default();
        let hierarchy = Hierarchy::new(&objects);
        let named = |name: &str| objects.iter().find(|o| o.name == name).map(|o| o.id);
        let reached = |name: Option<&str>, way: &dyn Fn(u64) -> BTreeSet<u64>| match name {
            Some(name) => named(name).map(way).unwrap_or_default(),
            None => objects.iter().map(|o| o.id).collect(),
        };
        let on = reached(on, &|id| hierarchy.on(id));
        let under = reached(under, &|id| hierarchy.under(id));
        kin.extend(on.intersection(&under).map(|id| (live.pid, *id)));
    }
    Ok(kin)
}

fn matching(
    operation: &str,
    glob: &str,
    mount: Option<&str>,
    only: Option<u32>,
) -> Result<Vec<(u32, ObjectInfo)>, Failure> {
    let mut found = Vec::new();
    for live in instances::live(operation, only)? {
        let objects = live.says(|client| client.objects_of(glob, mount))?.unwrap_or_default();
        found.extend(objects.into_iter().map(|object| (live.pid, object)));
    }
    Ok(found)
}

fn print_json(found: &[(u32, ObjectInfo)], out: &mut Output) -> Result<(), Failure> {
    found
        .iter()
        .try_for_each(|(instance, object)| out.object(&Line { instance: *instance, object }))
}

/// Returns a sort key that puts the most important counters first.
fn rank(key: &str) -> (usize, String) {
    (COLUMNS.iter().position(|k| *k == key).unwrap_or(COLUMNS.len()), key.to_owned())
}

fn stat(key: &str, n: u64) -> String {
    let bytes = BYTES.contains(&key) || key.ends_with("_bytes");
    if bytes { format::size(n) } else { format::count(n) }
}

fn nothing(operation: &str) -> Failure {
    Failure::new(operation, "no such object", "list objects with `refit ls`")
}
