//! Loading a plugin: read, check, try in another process, pass to the dynamic linker, compare, add
//! to the ledger.
//!
//! The file is read once, into anonymous memory: the code that is loaded is the code that was
//! checked, even if the file changes in the meantime. It also allows another build to be loaded
//! from the same path: the dynamic linker identifies a library by its name and inode, and would
//! return the old code for the same file. Loads queue; objects are called and swapped in the
//! meantime.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use refit_sys::library;

use super::check::{Checked, check};
use super::compare::compare;
use super::error::{LoadError, Obstacle};
use super::foreign::{FORMAT, PluginTable, RawImplementation, TABLE_MAGIC};
use super::ledger::{Accepted, Entry, PluginInfo, accepted, enter, loaded_from};
use super::note::ManifestEntry;
use crate::registry;

/// The maximum size of the file.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The time that constructors may take; generous, since the machine may be busy.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Loads a plugin. Objects can be swapped to its implementations as soon as this returns.
///
/// The file is checked before any of its code runs. Then its constructors run twice: first in a
/// separate process, so that one which crashes or never returns does so there, and then here, with
/// all rights of this process.
///
/// # Errors
/// The obstacle. If it was found before the dynamic linker saw the file, the attempt leaves no
/// trace.
pub fn load(path: &Path) -> Result<PluginInfo, LoadError> {
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOADING.lock();
    let refused = |obstacle| LoadError { path: path.into(), obstacle };
    let bytes = read(path).map_err(refused)?;
    let (checked, targets) = examine(&bytes).map_err(refused)?;
    if let Some(from) = loaded_from(&checked.build_id) {
        let build_id = checked.build_id;
        return Err(refused(Obstacle::AlreadyLoaded { build_id, from }));
    }
    library::try_out(&bytes, &file_name(path), TRIAL_TIMEOUT)
        .map_err(Obstacle::Trial)
        .map_err(refused)?;
    let raw = open(path, &bytes, &checked).map_err(refused)?;
    let entries = checked.manifest.implementations.into_iter();
    let implementations = targets.into_iter().zip(entries).zip(raw);
    Ok(enter(Entry {
        path: path.to_owned(),
        build_id: checked.build_id,
        package: checked.manifest.package,
        rustc: checked.manifest.rustc,
        mapped: checked.mapped,
        implementations: implementations
            .map(|((accepted, entry), raw)| (accepted, entry.version, entry.name, raw))
            .collect(),
    }))
}

/// Makes all checks of a file that precede its loading.
///
/// # Errors
/// The obstacle to loading it here.
pub fn inspect(bytes: &[u8]) -> Result<Checked, Obstacle> {
    examine(bytes).map(|(checked, _)| checked)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(path: &Path) -> Result<Vec<u8>, Obstacle> {
    let failed = |error: std::io::Error| Obstacle::Unreadable(error.to_string());
    // Opening a pipe without a writer would block forever.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Obstacle::Unreadable("it is not a regular file".into()));
    }
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(failed)?.take(MAX_FILE_BYTES + 1);
    file.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let (what, bytes) = ("the file", metadata.len());
        return Err(Obstacle::TooLarge { what, bytes, limit: MAX_FILE_BYTES });
    }
    Ok(bytes)
}

/// Checks the file against the interfaces of this process.
fn examine(bytes: &[u8]) -> Result<(Checked, Vec<Accepted>), Obstacle> {
    let checked = check(bytes)?;
    let known = accepted();
    let targets = checked.manifest.implementations.iter().map(|entry| target(entry, &known));
    let targets = targets.collect::<Result<_, _>>()?;
    Ok((checked, targets))
}

fn target(entry: &ManifestEntry, known: &[Accepted]) -> Result<Accepted, Obstacle> {
    let named = |accepted: &&Accepted| accepted.description.interface == entry.interface;
    let mut candidates = known.iter().filter(named).peekable();
    if candidates.peek().is_none() {
        let known: Vec<_> = known.iter().map(|accepted| accepted.description.interface).collect();
        return Err(Obstacle::UnknownInterface {
            implementation: entry.name.clone(),
            interface: entry.interface.clone(),
            known: if known.is_empty() { "none".into() } else { known.join(", ") },
        });
    }
    if entry.name.contains(['@', '=', ',', ' ', '→']) {
        return Err(Obstacle::BadName(entry.name.clone()));
    }
    // Two interfaces with the same name are two versions of it, one of which must fit.
    let mut first = None;
    for accepted in candidates {
        match compare(entry, accepted.description) {
            Ok(()) => {
                free(entry)?;
                return Ok(*accepted);
            }
            Err(obstacle) => _ = first.get_or_insert(obstacle),
        }
    }
    Err(first.unwrap_or(Obstacle::NotLoaded))
}

/// Checks that no object has an implementation of this name, which would take precedence over the
/// loaded one.
fn free(entry: &ManifestEntry) -> Result<(), Obstacle> {
    let own = |slot: &std::sync::Arc<crate::slot::Slot>| {
        slot.interface.name == entry.interface && slot.swapper.own(&entry.name)
    };
    if registry::all().iter().any(own) {
        let (interface, name) = (entry.interface.clone(), entry.name.clone());
        return Err(Obstacle::Taken { interface, name });
    }
    Ok(())
}

/// Maps the plugin and returns the implementations in its table, which must agree with the note.
fn open(path: &Path, bytes: &[u8], checked: &Checked) -> Result<Vec<RawImplementation>, Obstacle> {
    let library = library::open(bytes, &file_name(path)).map_err(Obstacle::Linker)?;
    let differs = |what: &str| Err(Obstacle::Differs(what.into()));
    let Some(entry) = library.symbol(c"refit_plugin") else {
        return differs("it has no function refit_plugin");
    };
    // SAFETY: the note of this file says that it was created by `plugin!`, which exports this
    // function under this name.
    let entry: unsafe extern "C" fn() -> *const PluginTable =
        unsafe { std::mem::transmute(entry.as_ptr()) };
    // SAFETY: it takes nothing and returns the address of a constant.
    let table = unsafe { entry() };
    // SAFETY: a constant of a library that is never unmapped; both words are at its beginning in
    // every format.
    let head = unsafe { table.as_ref() }.map(|table| (table.magic, table.format));
    if head != Some((TABLE_MAGIC, FORMAT)) {
        return differs("its table is another one");
    }
    // SAFETY: the format is known, so all fields exist.
    let table = unsafe { &*table };
    // SAFETY: by the format, these are the bytes of the note in memory.
    let note = unsafe { std::slice::from_raw_parts(table.note, table.note_len) };
    if note != checked.note || table.count as usize != checked.manifest.implementations.len() {
        return differs("the note in memory is another one");
    }
    // SAFETY: by the format, there are that many.
    let all = unsafe { std::slice::from_raw_parts(table.implementations, table.count as usize) };
    Ok(all.to_vec())
}
