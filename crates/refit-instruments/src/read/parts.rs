//! The files of a trace: those that are named, or one and its neighbours.
//!
//! A trace that is written in parts consists of `name`, `name.1`, `name.2` and so on. The name of
//! the first part stands for all of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::about::About;
use super::blocks::{Ending, Part};
use super::error::Error;
use super::index::Index;
use crate::block::{FileHead, Head};

/// A part with its head.
pub(super) type Headed = (Head, Part);

/// Opens the parts of a trace and sorts them. Returns at least one.
pub(super) fn open(paths: &[impl AsRef<Path>]) -> Result<Vec<Headed>, Error> {
    let mut parts = match paths {
        [] => return Err(Error::Nothing),
        [one] => with_neighbours(one.as_ref())?,
        several => several.iter().map(|path| headed(path.as_ref())).collect::<Result<_, _>>()?,
    };
    parts.sort_by_key(|(head, _)| head.part);
    for two in parts.windows(2) {
        let [(first, one), (second, other)] = two else { continue };
        if !of_one_trace(first, second) {
            return Err(Error::Mixed { first: one.path.clone(), other: other.path.clone() });
        }
    }
    Ok(parts)
}

/// Returns a file and the parts beside it that belong to it. If the first part is missing, since a
/// flight recorder removes old parts, the others are the trace.
fn with_neighbours(path: &Path) -> Result<Vec<Headed>, Error> {
    let named = headed(path);
    let mut parts: Vec<Headed> = Vec::new();
    let missing = matches!(named, Err(Error::NotThere(_)));
    if !missing {
        parts.push(named?);
    } else if neighbours(path).is_empty() {
        named?;
    }
    for neighbour in neighbours(path) {
        // A file that is not a trace, or not a part of this one, only has a similar name.
        let Ok(part) = headed(&neighbour) else { continue };
        if parts.iter().all(|(head, _)| of_one_trace(head, &part.0)) {
            parts.push(part);
        }
    }
    if parts.is_empty() { Err(Error::NotThere(path.to_owned())) } else { Ok(parts) }
}

/// Returns the files whose names are those of later parts, in the order of their numbers.
fn neighbours(path: &Path) -> Vec<PathBuf> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let entries = fs::read_dir(directory.unwrap_or(Path::new(".")));
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let number = |entry: &fs::DirEntry| {
        let other = entry.file_name();
        other.to_str()?.strip_prefix(name)?.strip_prefix('.')?.parse::<u32>().ok()
    };
    let entries = entries.into_iter().flatten().flatten();
    let mut found: Vec<_> =
        entries.filter_map(|entry| Some((number(&entry)?, entry.path()))).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Opens a part and reads its head, which is the first block.
fn headed(path: &Path) -> Result<Headed, Error> {
    let part = Part::open(path)?;
    let (mut about, mut index) = (About::default(), Index::default());
    let ending = part.walk(|block| {
        about.take(0, &block, &mut index);
        false
    })?;
    match (about.head, ending) {
        (Some(head), _) => Ok((head, part)),
        (None, Ending::Cut { at }) => Err(Error::Truncated { path: part.path, at }),
        // There is nothing after the file head.
        (None, Ending::Whole) if part.length() <= size_of::<FileHead>() as u64 => {
            Err(Error::Truncated { at: part.length(), path: part.path })
        }
        (None, _) => Err(Error::NoTrace(part.path)),
    }
}

fn of_one_trace(a: &Head, b: &Head) -> bool {
    let of = |head: &Head| Head { part: 0, ..head.clone() };
    of(a) == of(b) && a.part != b.part
}
