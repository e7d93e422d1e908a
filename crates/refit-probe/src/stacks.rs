//! Stacks of a program: the table by which snippets walk them, and the names of their frames.

use std::fmt;

use parking_lot::Mutex;
use rayon::prelude::*;
use refit_analysis::image::Image;
use refit_analysis::lines::{Lines, Origin, demangle};
use refit_splice::process::{Program, Refusal};
use refit_splice::{Stacks, UNKNOWN_FRAME};
use refit_sys::mapped_file::KeptFile;

use crate::modules;

/// A frame of a stack. A function that the compiler has inlined has a frame of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StackFrame {
    /// Address of the instruction, or of the last byte of the call: in the file, if one is known.
    pub address: u64,
    /// Name of the file that holds the code; `None` if no file does that was mapped when the probes
    /// were installed.
    pub module: Option<String>,
    /// Name of the function, as in its source, or `sub_` and its address in the file.
    pub function: Option<String>,
    /// Bytes from the beginning of the function; 0 in an inlined one.
    pub offset: u64,
    /// Source file and line, from debug information.
    pub source: Option<String>,
    /// Whether it is inlined into the next frame.
    pub inlined: bool,
}

/// The files whose code a program has mapped.
#[derive(Debug)]
pub(crate) struct Images {
    all: Vec<Loaded>,
}

/// A file that is mapped at a distance from its addresses.
#[derive(Debug)]
struct Loaded {
    code: NamedCode,
    bias: u64,
}

/// A file, and what is needed to name addresses of its code.
#[derive(Debug)]
pub(crate) struct NamedCode {
    pub(crate) name: String,
    pub(crate) image: Image,
    /// For its debug information.
    _kept: Option<KeptFile>,
    /// Read when they are needed; then `None` inside if there are none.
    lines: Mutex<Option<Option<Lines>>>,
}

impl Images {
    /// Reads the files; those that cannot be read are left out.
    ///
    /// # Errors
    /// [`Refusal`]: the program has ended.
    pub(crate) fn of(program: &Program) -> Result<Self, Refusal> {
        let mapped = modules::of(program)?;
        let read = mapped.par_iter().filter_map(|file| {
            let image = Image::open(&file.file).ok()?;
            let bias = file.bias(&image)?;
            Some(Loaded { code: NamedCode::new(file.name(), image, file.kept()), bias })
        });
        Ok(Self { all: read.collect() })
    }

    /// Returns the table by which snippets walk stacks.
    pub(crate) fn table(&self) -> Stacks {
        let images: Vec<_> = self.all.iter().map(|one| (&one.code.image, one.bias)).collect();
        Stacks::new(images.into_par_iter().flat_map(|(image, bias)| {
            let go: Vec<_> = image.go_procedures().collect();
            image.procedures().flatten().chain(go).map(move |procedure| procedure.moved(bias))
        }))
    }

    /// Names the frames of a stack; those of inlined functions come before the frame that they are
    /// in.
    pub(crate) fn name(&self, frames: &[u64]) -> Vec<StackFrame> {
        frames.iter().flat_map(|&address| self.frames_at(address)).collect()
    }

    fn frames_at(&self, address: u64) -> Vec<StackFrame> {
        let inside = |one: &Loaded| address.wrapping_sub(one.bias);
        let code = |one: &&Loaded| one.code.image.code_at(inside(one)).is_some();
        let unnamed = StackFrame { address, ..StackFrame::default() };
        match self.all.iter().find(code) {
            Some(one) if address != UNKNOWN_FRAME => one.code.frames_at(inside(one)),
            _ => vec![unnamed],
        }
    }
}

impl NamedCode {
    pub(crate) fn new(name: String, image: Image, kept: Option<KeptFile>) -> Self {
        Self { name, image, _kept: kept, lines: Mutex::default() }
    }

    /// Names the functions at an address of the file; inlined ones come before the one that they
    /// are in.
    pub(crate) fn frames_at(&self, inside: u64) -> Vec<StackFrame> {
        let mut lines = self.lines.lock();
        let lines = lines.get_or_insert_with(|| Lines::of(&self.image));
        let origins = lines.as_ref().map_or_else(Vec::new, |lines| lines.at(inside));
        let (entry, name) = self.function(inside);
        let source = |origin: &Origin| origin.file.as_ref().map(|_| origin.to_string());
        let module = || Some(self.name.clone());
        let outermost = StackFrame {
            address: inside,
            module: module(),
            function: name,
            offset: entry.map_or(0, |entry| inside - entry),
            source: origins.last().and_then(source),
            inlined: false,
        };
        let inlined = origins.iter().rev().skip(1).rev().map(|origin| StackFrame {
            address: inside,
            module: module(),
            function: origin.function.as_deref().map(demangle),
            offset: 0,
            source: source(origin),
            inlined: true,
        });
        inlined.chain([outermost]).collect()
    }

    /// Returns the entry and the name of the function at an address of the file.
    fn function(&self, address: u64) -> (Option<u64>, Option<String>) {
        let symbols = self.image.symbols();
        let last = symbols[..symbols.partition_point(|one| one.address <= address)].last();
        let entry = last.filter(|one| one.size == 0 || address - one.address < one.size);
        let named = entry.and_then(|entry| {
            let first = symbols.partition_point(|one| one.address < entry.address);
            let same = symbols[first..].iter().take_while(|one| one.address == entry.address);
            same.min_by_key(|one| one.rank)
        });
        if let Some(symbol) = named {
            return (Some(symbol.address), Some(demangle(&symbol.name)));
        }
        let go = self.image.go_functions();
        if let Some((entry, name)) = go[..go.partition_point(|one| one.0 <= address)].last() {
            return (Some(*entry), Some(name.to_string()));
        }
        let entry = self.image.frame_at(address).map(|frame| frame.addresses.start);
        (entry, entry.map(|entry| format!("sub_{entry:x}")))
    }
}

impl fmt::Display for StackFrame {
    /// Writes `function+offset (module) file:line`, or as much of it as is known.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.address == UNKNOWN_FRAME {
            return to.write_str("[no frame description]");
        }
        match &self.function {
            Some(function) if self.inlined => write!(to, "{function} [inlined]")?,
            Some(function) => write!(to, "{function}+{}", self.offset)?,
            None => write!(to, "{:#x}", self.address)?,
        }
        if let Some(module) = &self.module {
            write!(to, " ({module})")?;
        }
        self.source.as_ref().map_or(Ok(()), |source| write!(to, " {source}"))
    }
}
