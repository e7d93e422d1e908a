//! Stacks of threads that are switched out, for recordings: from their registers and a copy of
//! their stacks, by the frame descriptions of the code that their processes have mapped.
//!
//! Which code that is comes from `/proc` for processes that were there before, and from the
//! kernel's events since then. So a process may end before its stacks are looked at. Its files are
//! opened when their code is found on a stack for the first time, under the name by which the
//! process has mapped them; a name that leads to another file by then is not followed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use refit_analysis::image::{Image, Procedure};
use refit_instruments::block::{Frame, Function, Stack};
use refit_instruments::write::{SourceBatch, Unwind};
use refit_splice::{Position, Row, Walked, walk, word_of};
use refit_sys::mapped_file::KeptFile;
use refit_sys::maps::{self, Mapping};
use refit_sys::perf::{EventKind, SchedulerEvent, UserStack};

use crate::stacks::NamedCode;

/// The most frames of a stack.
const DEPTH: usize = 256;

/// Finds the stacks of all processes that a recording sees.
#[derive(Debug, Default)]
pub struct Unwinder {
    /// By device and inode; `None` if a file cannot be read or is no program.
    files: HashMap<(u64, u64), Option<Arc<Code>>>,
    processes: HashMap<u32, Process>,
    frames: FrameNumbers,
    /// The numbers of stacks, by the numbers of their frames.
    stacks: HashMap<Vec<u32>, u32>,
}

/// The numbers of frames, by file and address in it.
type FrameNumbers = HashMap<(Option<(u64, u64)>, u64), u32>;

/// The code of a process.
#[derive(Clone, Debug, Default)]
struct Process {
    mapped: Vec<Mapped>,
}

#[derive(Clone, Debug)]
struct Mapped {
    mapping: Mapping,
    /// The file and its bias, once they have been looked for.
    code: Option<Option<(Arc<Code>, u64)>>,
}

/// A file, with what has been found out about its code.
struct Code {
    file: (u64, u64),
    named: NamedCode,
    /// The rules at addresses that have been on a stack.
    rows: parking_lot::Mutex<HashMap<u64, Row>>,
    /// The rules of Go's functions, by address; read when they are needed.
    go: std::sync::OnceLock<Vec<Procedure>>,
}

impl fmt::Debug for Code {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Code").field("file", &self.named.name).finish_non_exhaustive()
    }
}

impl Code {
    /// Opens the file of a mapping, if it is still the one that was mapped.
    fn open(process: u32, mapping: &Mapping) -> Option<Arc<Self>> {
        let kept = KeptFile::of(process, mapping)?;
        let image = Image::open(&kept.path).ok()?;
        let name = mapping.name.file_name().unwrap_or(mapping.name.as_os_str());
        let named = NamedCode::new(name.to_string_lossy().into_owned(), image, Some(kept));
        let (rows, go) = Default::default();
        Some(Arc::new(Self { file: mapping.file, named, rows, go }))
    }

    /// Returns the rules at an address of the file.
    fn row(&self, address: u64) -> Row {
        *self.rows.lock().entry(address).or_insert_with(|| self.find_row(address))
    }

    fn find_row(&self, address: u64) -> Row {
        let image = &self.named.image;
        if let Some(row) = Row::at(image, address) {
            return row;
        }
        let go = self.go.get_or_init(|| {
            let mut all: Vec<_> = image.go_procedures().collect();
            all.sort_by_key(|one| one.addresses.start);
            all
        });
        let before = go.partition_point(|one| one.addresses.start <= address);
        let found = go[..before].last().and_then(|one| Some(Row::new(one, one.row(address)?)));
        found.unwrap_or(Row::UNKNOWN)
    }
}

impl Process {
    /// Reads what a process has mapped by now.
    fn of(process: u32) -> Self {
        let mut code = Self::default();
        // A process that has ended has nothing mapped.
        let mappings = maps::of(process).unwrap_or_default();
        mappings.into_iter().filter(|one| one.executable).for_each(|one| code.map(one));
        code
    }

    fn map(&mut self, mapping: Mapping) {
        let Range { start, end } = mapping.range;
        self.mapped.retain(|old| old.mapping.range.end <= start || end <= old.mapping.range.start);
        self.mapped.push(Mapped { mapping, code: None });
    }

    /// Returns the file that is mapped at an address, and its bias.
    fn code_at(
        &mut self,
        process: u32,
        address: u64,
        files: &mut HashMap<(u64, u64), Option<Arc<Code>>>,
    ) -> Option<(Arc<Code>, u64)> {
        let found = self.mapped.iter_mut().find(|one| one.mapping.range.contains(&address))?;
        let mapping = &found.mapping;
        let code = found.code.get_or_insert_with(|| {
            if mapping.file.1 == 0 || !mapping.name.is_absolute() {
                return None;
            }
            let file = files.entry(mapping.file).or_insert_with(|| Code::open(process, mapping));
            let code = file.clone()?;
            let begins = code.named.image.address_of_offset(mapping.offset)?;
            Some((code, mapping.range.start.wrapping_sub(begins)))
        });
        code.clone()
    }
}

impl Unwind for Unwinder {
    fn see(&mut self, event: &SchedulerEvent) {
        let process = event.process;
        match &event.kind {
            EventKind::Mapped(mapping) => {
                // What was mapped before is read when it is needed, and has this mapping, too.
                if let Some(known) = self.processes.get_mut(&process) {
                    known.map(mapping.clone());
                }
            }
            EventKind::Named { executes: true, .. } => {
                self.processes.insert(process, Process::default());
            }
            // A child of an unknown process is looked at in /proc when it stands somewhere.
            EventKind::Began { creator, .. } if *creator != process => {
                if let Some(copy) = self.processes.get(creator).cloned() {
                    self.processes.insert(process, copy);
                }
            }
            EventKind::Ended if event.thread == process => {
                self.processes.remove(&process);
            }
            _ => {}
        }
    }

    fn stack(&mut self, process: u32, stands: &UserStack, found: &mut SourceBatch) -> u32 {
        // A thread of the kernel, or one that has ended and has no memory any more; or the
        // recorder's own, whose waits are those of the recording.
        if stands.bytes.is_empty() || process == std::process::id() {
            return 0;
        }
        let Self { files, processes, frames: known, .. } = self;
        let code = processes.entry(process).or_insert_with(|| Process::of(process));
        let UserStack { counter, pointer, frame, .. } = *stands;
        let mut frames: Vec<u32> = Vec::new();
        // Called once for each frame.
        let row = |address: u64| {
            let code = code.code_at(process, address, files);
            let inside = code.as_ref().map_or(address, |(_, bias)| address.wrapping_sub(*bias));
            let code = code.as_ref().map(|(code, _)| &**code);
            frames.push(number_of(known, code, inside, found));
            code.map_or(Row::UNKNOWN, |code| code.row(inside))
        };
        let at = Position { counter, pointer, frame };
        let word = |address: u64| word_of(&stands.bytes, pointer, address);
        let end = walk(at, word, DEPTH, row, |_| ());
        if let Some(why) = reason(end) {
            frames.push(self.end(why, found));
        }
        let next = self.stacks.len() as u32 + 1;
        match self.stacks.entry(frames) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                found.stacks.push(Stack { id: next, frames: new.key().clone() });
                *new.insert(next)
            }
        }
    }

    fn name(&mut self, found: &mut SourceBatch) {
        for (&(file, address), &id) in &self.frames {
            let Some(code) = file.and_then(|file| self.files.get(&file)?.as_ref()) else {
                continue;
            };
            let functions =
                code.named.frames_at(address).into_iter().filter_map(|frame| {
                    Some(Function { name: frame.function?, source: frame.source })
                });
            let (module, functions) = (Some(code.named.name.clone()), functions.collect());
            found.frames.push(Frame { id, module, address, functions });
        }
    }
}

impl Unwinder {
    /// Returns the number of the frame that says why a stack has no more.
    fn end(&mut self, why: &str, found: &mut SourceBatch) -> u32 {
        // No code is at these addresses.
        let address = u64::MAX - why.len() as u64;
        let next = self.frames.len() as u32 + 1;
        *self.frames.entry((None, address)).or_insert_with(|| {
            let functions = vec![Function { name: why.to_owned(), source: None }];
            found.frames.push(Frame { id: next, module: None, address, functions });
            next
        })
    }
}

/// Returns the number of the frame at an address: of a file, if one is known; adds it if it is new.
fn number_of(
    known: &mut FrameNumbers,
    code: Option<&Code>,
    address: u64,
    found: &mut SourceBatch,
) -> u32 {
    let next = known.len() as u32 + 1;
    *known.entry((code.map(|code| code.file), address)).or_insert_with(|| {
        let module = code.map(|code| code.named.name.clone());
        found.frames.push(Frame { id: next, module, address, functions: Vec::new() });
        next
    })
}

/// Returns why a stack has no more frames, unless it is whole.
fn reason(end: Walked) -> Option<&'static str> {
    match end {
        Walked::Whole => None,
        Walked::Deep => Some("[more frames]"),
        Walked::Cut => Some("[deeper than was recorded]"),
        Walked::Unknown => Some("[no frame description]"),
    }
}
