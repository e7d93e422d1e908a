//! `refit load`, `refit plugins` and `refit unload`.

use std::path::{Path, PathBuf};

use refit_instance::wire::PluginInfo;
use refit_instance::{Kind, Refusal};
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
    plugin: &'a PluginInfo,
}

/// Loads a plugin into every instance that has its interfaces.
pub(crate) fn load(path: &Path, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let operation = format!("load {}", path.display());
    // The instance has another working directory.
    let path = std::path::absolute(path)?;
    let (mut loaded, mut refusals) = (Vec::new(), Vec::<Refusal>::new());
    for Live { pid, client } in instances::live(&operation, only)? {
        match client.load(&path) {
            Ok(plugin) => loaded.push((pid, plugin)),
            Err(refusal) if refusal.kind == Kind::Unknown => refusals.push(refusal),
            Err(refusal) => return Err(refusal.into()),
        }
    }
    match refusals.into_iter().next() {
        Some(refusal) if loaded.is_empty() => return Err(refusal.into()),
        _ => {}
    }
    show(&loaded, out)
}

/// Lists what is loaded.
pub(crate) fn list(only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let mut found = Vec::new();
    for Live { pid, client } in instances::live("list plugins", only)? {
        found.extend(client.plugins()?.into_iter().map(|plugin| (pid, plugin)));
    }
    show(&found, out)
}

/// Asks for a plugin to be unloaded, which is refused with the reason.
pub(crate) fn unload(plugin: &Path, only: Option<u32>) -> Result<(), Failure> {
    let operation = format!("unload {}", plugin.display());
    let path = if plugin.exists() { std::path::absolute(plugin)? } else { PathBuf::from(plugin) };
    let mut refused = None;
    for Live { client, .. } in instances::live(&operation, only)? {
        if let Err(refusal) = client.unload(&path) {
            // One that has it says more than one that does not.
            let says_more = refused.is_none() || refusal.kind != Kind::Unknown;
            refused = if says_more { Some(refusal) } else { refused };
        }
    }
    refused.map_or(Ok(()), |refusal| Err(refusal.into()))
}

fn show(plugins: &[(u32, PluginInfo)], out: &mut Output) -> Result<(), Failure> {
    if out.json() {
        let mut print = |instance, plugin| out.object(&Line { instance, plugin });
        return plugins.iter().try_for_each(|(pid, plugin)| print(*pid, plugin));
    }
    let mut table = Table::new(&[
        ("IMPLEMENTATION", Align::Left),
        ("OF", Align::Left),
        ("OBJECTS", Align::Right),
        ("PANICS", Align::Right),
        ("MAPPED", Align::Right),
        ("FROM", Align::Left),
    ]);
    for (_, plugin) in plugins {
        for one in &plugin.implementations {
            let name = if one.latest { "" } else { " (replaced)" };
            table.row(vec![
                format!("{}{name}", one.precise),
                format!("{} {}", one.interface, one.version),
                format::count(one.objects),
                format::count(one.panics),
                format::size(plugin.mapped_bytes),
                plugin.path.display().to_string(),
            ]);
        }
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}
