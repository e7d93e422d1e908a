//! `refit mounts`, `refit umount`, `refit cache`.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use refit_instance::Client;
use refit_instance::wire::Mount;
use serde::Serialize;

use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::Output;
use crate::table::{Align, Table};

/// The cache modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheArg {
    /// The kernel caches files too, and asks refit only on a miss
    Kernel,
    /// Every read and write goes to refit
    Direct,
    /// refit chooses the mode for each file
    Auto,
    /// The kernel accesses the files of the source itself, and refit sees no read and no write
    Passthrough,
    /// The kernel caches files, and opens them without asking refit; nobody else may change the
    /// source
    Exclusive,
}

impl From<CacheArg> for refit_instance::wire::CacheMode {
    fn from(arg: CacheArg) -> Self {
        match arg {
            CacheArg::Kernel => Self::Kernel,
            CacheArg::Direct => Self::Direct,
            CacheArg::Auto => Self::Auto,
            CacheArg::Passthrough => Self::Passthrough,
            CacheArg::Exclusive => Self::Exclusive,
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    mount: &'a Mount,
}

#[derive(Serialize)]
struct Unmounted<'a> {
    #[serde(serialize_with = "refit_instance::path_text::serialize")]
    unmounted: &'a Path,
}

#[derive(Serialize)]
struct Cached<'a> {
    glob: &'a str,
    files: u64,
}

/// Lists what is mounted.
pub(crate) fn list(only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("INSTANCE", Align::Right),
        ("STATE", Align::Left),
        ("SOURCE", Align::Left),
        ("MOUNTPOINT", Align::Left),
    ]);
    for live in instances::live("list mounts", only)? {
        for mount in live.says(Client::mounts)?.unwrap_or_default() {
            if out.json() {
                out.object(&Line { instance: live.pid, mount: &mount })?;
                continue;
            }
            table.row(vec![
                live.pid.to_string(),
                state(&mount).to_owned(),
                mount.source.display().to_string(),
                mount.mountpoint.display().to_string(),
            ]);
        }
    }
    if out.json() {
        return Ok(());
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}

fn state(mount: &Mount) -> &'static str {
    match (mount.leaving, mount.read_only) {
        (true, _) => "unmounting",
        (false, true) => "read-only",
        (false, false) => "serving",
    }
}

/// Unmounts what is mounted there.
pub(crate) fn unmount(
    mountpoint: &Path,
    discard: bool,
    only: Option<u32>,
    out: &mut Output,
) -> Result<(), Failure> {
    let operation = format!("unmount {}", mountpoint.display());
    let wanted = absolute(mountpoint);
    for Live { client, .. } in instances::live(&operation, only)? {
        let Some(mount) = client.mounts()?.into_iter().find(|m| m.mountpoint == wanted) else {
            continue;
        };
        client.unmount(mount.id, discard)?;
        return if out.json() {
            out.object(&Unmounted { unmounted: &mount.mountpoint })
        } else {
            out.line(&format!("{} is unmounted", mount.mountpoint.display()))
        };
    }
    Err(Failure::new(operation, "no instance serves it", "list mounts with `refit mounts`"))
}

/// Changes who caches the files that match.
pub(crate) fn cache(
    glob: &str,
    mode: CacheArg,
    only: Option<u32>,
    out: &mut Output,
) -> Result<(), Failure> {
    let operation = format!("change the cache mode of {glob}");
    let mut files = 0;
    for Live { client, .. } in instances::live(&operation, only)? {
        files += client.set_cache_mode(glob, mode.into())?;
    }
    if out.json() {
        return out.object(&Cached { glob, files });
    }
    let text = format!(
        "{} in use changed; other files change when they are next opened",
        format::counted(files, "file")
    );
    out.line(&text)
}

/// The path as the instance knows it. The mount point itself is not accessed: if its server hangs,
/// so would this process.
pub(super) fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let named = path.parent().zip(path.file_name());
    let resolved = named.and_then(|(parent, name)| Some(parent.canonicalize().ok()?.join(name)));
    resolved.unwrap_or(path)
}
