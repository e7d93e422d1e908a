//! `refit show FILE`: a file of a mount, the processes that use it, and where it is cached.

use std::fs::File;
use std::path::Path;

use refit_instance::Client;
use refit_instance::wire::{CacheMode, FileInfo, Mount, ObjectInfo};
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::page_cache::{self, CachedPages};
use serde::Serialize;

use super::mounts::absolute;
use super::openers::{self, Opener};
use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::Output;

/// Whether the processes that use a file share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Session {
    /// One process uses it.
    Exclusive,
    /// Several do.
    Shared,
}

/// Pages of a file in a cache of the kernel, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct KernelPages {
    cached: u64,
    dirty: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(serialize_with = "refit_instance::path_text::serialize")]
    mountpoint: &'a Path,
    #[serde(flatten)]
    file: &'a FileInfo,
    /// Missing if no program uses the file.
    session: Option<Session>,
    processes: &'a [Opener],
    /// The file's pages as a file of the mount.
    kernel: Option<KernelPages>,
    /// The file's pages as a file of the source.
    source: Option<KernelPages>,
}

/// A file of a mount.
struct ServedFile {
    live: Live,
    mount: Mount,
    file: FileInfo,
    processes: Vec<Opener>,
    kernel: Option<KernelPages>,
    source: Option<KernelPages>,
}

/// Returns whether an argument is the path of a file rather than the name of an object, which has
/// a colon.
pub(crate) fn is_path(argument: &str) -> bool {
    let begins = ["/", "./", "../"].iter().any(|start| argument.starts_with(start));
    begins || !argument.contains(':') && Path::new(argument).exists()
}

/// Shows a file. Returns its cache with the number of its instance, if it has one.
///
/// # Errors
///
/// No instance serves it, or it is no regular file.
pub(crate) fn show(
    path: &Path,
    only: Option<u32>,
    out: &mut Output,
) -> Result<Option<(u32, ObjectInfo)>, Failure> {
    let found = find(path, only)?;
    let ServedFile { live, mount, file, processes, kernel, source } = &found;
    let session = session(file, processes);
    if out.json() {
        let (instance, mountpoint) = (live.pid, mount.mountpoint.as_path());
        let (kernel, source) = (*kernel, *source);
        let line = Line { instance, mountpoint, file, session, processes, kernel, source };
        return out.object(&line).map(|()| None);
    }
    out.line(&path.display().to_string())?;
    let mut fact = |what: &str, value: &str| out.line(&format!("  {what:<16}{value}"));
    fact("instance", &live.pid.to_string())?;
    fact("mount", &format!("{} at {}", mount.source.display(), mount.mountpoint.display()))?;
    fact("session", &session_text(session, file, processes))?;
    fact("access", access(file))?;
    fact("cache mode", cache_mode(file.cache))?;
    for (what, pages) in [("kernel caches", kernel), ("source caches", source)] {
        if let Some(pages) = pages {
            let (cached, dirty) = (format::size(pages.cached), format::size(pages.dirty));
            fact(what, &format!("{cached}, {dirty} of it dirty"))?;
        }
    }
    let Some(id) = file.object else { return fact("refit caches", "nothing").map(|()| None) };
    let objects = live.says(|client| client.objects("fcm:*"))?.unwrap_or_default();
    Ok(objects.into_iter().find(|object| object.id == id).map(|object| (live.pid, object)))
}

fn find(path: &Path, only: Option<u32>) -> Result<ServedFile, Failure> {
    let operation = format!("show {}", path.display());
    let (live, mount) = mount_of(&operation, &absolute(path), only)?;
    let id = openers::id(path).map_err(|error| {
        Failure::new(&operation, error.to_string(), "give the path of a file of a mount")
    })?;
    let Some(file) = live.client.file(mount.id, id.1)? else {
        let obstacle = "it is no regular file of that mount";
        return Err(Failure::new(&operation, obstacle, "give the path of a regular file"));
    };
    let processes = openers::of(id);
    // To open the file, which counting its pages needs, must not change how it is served.
    let changes = file.opens == 0 && file.cache == CacheMode::Passthrough;
    let kernel = if changes { None } else { pages(path) };
    let in_source = file.path.strip_prefix("/").map(|path| mount.source.join(path));
    let source = in_source.ok().and_then(|path| pages(&path));
    Ok(ServedFile { live, mount, file, processes, kernel, source })
}

/// Returns the mount that the path leads into.
fn mount_of(operation: &str, path: &Path, only: Option<u32>) -> Result<(Live, Mount), Failure> {
    // A link may lead from elsewhere into a mount.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut found: Option<(Live, Mount)> = None;
    for live in instances::live(operation, only)? {
        let mounts = live.says(Client::mounts)?.unwrap_or_default();
        let into = mounts.into_iter().filter(|mount| path.starts_with(&mount.mountpoint));
        let Some(mount) = into.max_by_key(depth) else { continue };
        if found.as_ref().is_none_or(|(_, other)| depth(other) < depth(&mount)) {
            found = Some((live, mount));
        }
    }
    found.ok_or_else(|| {
        Failure::new(operation, "no instance serves it", "list mounts with `refit mounts`")
    })
}

fn depth(mount: &Mount) -> usize {
    mount.mountpoint.components().count()
}

fn pages(path: &Path) -> Option<KernelPages> {
    let CachedPages { cached, dirty, .. } = page_cache::cached(File::open(path).ok()?).ok()?;
    Some(KernelPages { cached: cached * PAGE_SIZE_U64, dirty: dirty * PAGE_SIZE_U64 })
}

fn session(file: &FileInfo, processes: &[Opener]) -> Option<Session> {
    // Processes of other PID namespaces are not seen, but their opens are counted.
    match (file.opens, processes.len()) {
        (0, _) if file.cache != CacheMode::Exclusive => None,
        (0, 0) => None,
        (0 | 1, 0 | 1) | (_, 1) => Some(Session::Exclusive),
        _ => Some(Session::Shared),
    }
}

fn session_text(session: Option<Session>, file: &FileInfo, processes: &[Opener]) -> String {
    let Some(session) = session else { return "none; no program has it open".to_owned() };
    let kind = match session {
        Session::Exclusive => "exclusive",
        Session::Shared => "shared",
    };
    let by: Vec<String> =
        processes.iter().map(|it| format!("{} ({})", it.command, it.pid)).collect();
    let by =
        if by.is_empty() { "processes that /proc does not show".into() } else { by.join(", ") };
    if file.cache == CacheMode::Exclusive {
        return format!("{kind}: by {by}");
    }
    let opens = format::counted(file.opens, "open");
    format!("{kind}: {opens}, {} for writing, by {by}", format::count(file.writers))
}

fn access(file: &FileInfo) -> &'static str {
    match (file.opens, file.passed_through, file.cache) {
        (.., CacheMode::Exclusive) => "served through the kernel's cache; opens are not seen",
        (0, ..) => "not open",
        (_, true, _) => "passed through: the kernel accesses the file of the source",
        (_, false, CacheMode::Direct) => "served; each read and write is a request",
        (_, false, _) => "served through the kernel's cache",
    }
}

fn cache_mode(mode: CacheMode) -> &'static str {
    match mode {
        CacheMode::Kernel => "kernel",
        CacheMode::Direct => "direct",
        CacheMode::Auto => "auto",
        CacheMode::Passthrough => "passthrough",
        CacheMode::Exclusive => "exclusive",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(opens: u64) -> FileInfo {
        let cache = CacheMode::Auto;
        let path = "/a".into();
        FileInfo { path, opens, writers: 1, passed_through: false, cache, object: None }
    }

    fn process(pid: u32) -> Opener {
        Opener { pid, command: "cat".into(), descriptors: 1, mapped: false }
    }

    #[test]
    fn a_session_is_shared_if_several_processes_use_the_file() {
        assert_eq!(session(&file(0), &[]), None);
        assert_eq!(session(&file(2), &[process(1)]), Some(Session::Exclusive));
        assert_eq!(session(&file(1), &[process(1), process(2)]), Some(Session::Shared));
        // Seen from outside of a container.
        assert_eq!(session(&file(1), &[]), Some(Session::Exclusive));
        assert_eq!(session(&file(2), &[]), Some(Session::Shared));
        let text = session_text(Some(Session::Exclusive), &file(2), &[process(7)]);
        assert_eq!(text, "exclusive: 2 opens, 1 for writing, by cat (7)");
    }
}
