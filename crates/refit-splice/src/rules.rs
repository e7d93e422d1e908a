//! The unwinding rules of all code that a program has mapped, and the return addresses that its
//! threads have on their stacks by these rules.
//!
//! A word that looks like a return address need not be one. It may be left over from an earlier
//! call, with some of its bytes overwritten by a variable that is in use. So only a walk from frame
//! to frame tells which words the program returns to.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::path::Path;

use parking_lot::Mutex;
use rayon::prelude::*;
use refit_analysis::image::Image;
use refit_sys::mapped_file::KeptFile;
use refit_sys::maps::Mapping;
use refit_sys::patch_area::is_area;

use crate::process::contexts::RED_ZONE;
use crate::process::{Program, Refusal, Still};
use crate::stacks::{Position, Row, Walked, WalkedFrame, walk};

/// The most frames of a stack.
const DEPTH: usize = 10_000;
/// The largest code outside of files that is looked at, in bytes.
const MOST: u64 = 256 << 20;

/// Functions by which programs unwind their stacks: those of the C++ ABI and of libunwind.
const UNWINDERS: [&str; 4] =
    ["_Unwind_RaiseException", "unw_step", "_Ux86_64_step", "_ULx86_64_step"];

/// The rules, read before the program is stopped.
#[derive(Debug)]
pub(crate) struct Rules {
    all: Vec<Code>,
}

/// Code that is mapped, and the rules at those of its addresses that have been looked up.
struct Code {
    mapping: Mapping,
    /// Distance of the mapped code from its addresses in the file.
    bias: u64,
    image: Image,
    /// Whether it has an unwinder.
    unwinds: bool,
    rows: Mutex<HashMap<u64, Row>>,
}

impl fmt::Debug for Code {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Code").field("mapping", &self.mapping).finish_non_exhaustive()
    }
}

/// Where the return addresses of all threads are.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    /// The addresses of these words.
    pub(crate) slots: BTreeSet<u64>,
    /// The memory that the walks have gone through: from the innermost frame of a stack on.
    pub(crate) walked: Vec<Range<u64>>,
    /// Whether these are all: each walk has reached the outermost frame.
    pub(crate) all: bool,
    /// Whether a thread is unwinding its stack: it has return addresses elsewhere, too.
    pub(crate) unwinds: bool,
}

impl Rules {
    /// Reads the frame descriptions of all code, as far as there are some.
    pub(crate) fn of(program: &Program) -> Self {
        let mappings = program.mappings().unwrap_or_default();
        let code = mappings.into_iter().filter(|one| one.executable);
        let code: Vec<Mapping> = code.collect();
        Self { all: code.into_par_iter().filter_map(|one| Code::of(program, one)).collect() }
    }

    /// Walks the stacks of all threads of a stopped program.
    ///
    /// # Errors
    /// [`Refusal`]: a thread was killed.
    pub(crate) fn returns(&self, still: &Still<'_>) -> Result<Returns, Refusal> {
        let program = still.program();
        let mappings = still.mappings()?;
        let there: Vec<&Code> = self.all.iter().filter(|code| code.is_among(mappings)).collect();
        let code_at =
            |address: u64| there.iter().find(|code| code.mapping.range.contains(&address));
        let row = |address: u64| code_at(address).map_or(Row::UNKNOWN, |code| code.row(address));
        // The registers of those that wait for a page, or for a child, are not known.
        let mut returns = Returns { all: still.asleep().next().is_none(), ..Returns::default() };
        for thread in still.threads() {
            let registers = still.registers(thread)?;
            let at =
                Position { counter: registers.rip, pointer: registers.rsp, frame: registers.rbp };
            let word = |address| program.word(address).ok();
            let end = walk(at, word, DEPTH, row, |frame| {
                returns.add(frame);
                returns.unwinds |= code_at(frame.address).is_some_and(|code| code.unwinds);
            });
            returns.all &= end == Walked::Whole;
        }
        Ok(returns)
    }
}

impl Returns {
    fn add(&mut self, frame: WalkedFrame) {
        self.slots.extend(frame.slot);
        match self.walked.last_mut() {
            Some(walked) if frame.slot.is_some() => walked.end = frame.pointer,
            // The innermost frame of a thread, or one that a signal has interrupted, maybe on
            // another stack.
            _ => self.walked.push(frame.pointer.saturating_sub(RED_ZONE)..frame.pointer),
        }
    }

    /// Whether a walk has gone through this word.
    pub(crate) fn has_walked(&self, at: u64) -> bool {
        self.walked.iter().any(|walked| walked.contains(&at))
    }
}

impl Code {
    fn of(program: &Program, mapping: Mapping) -> Option<Self> {
        let is_file = mapping.file.1 != 0 && mapping.name.is_absolute() && !is_area(&mapping);
        let image = match is_file {
            true => Image::open(&KeptFile::of(program.face(), &mapping)?.path).ok()?,
            false => in_memory(program, &mapping)?,
        };
        let begins = image.address_of_offset(mapping.offset)?;
        let bias = mapping.range.start.wrapping_sub(begins);
        // Patch areas name what they have copied of unwinders, which call it.
        let unwinds =
            is_file && image.symbols().iter().any(|symbol| UNWINDERS.contains(&&*symbol.name));
        Some(Self { mapping, bias, image, unwinds, rows: Mutex::default() })
    }

    /// Whether it is still mapped there.
    fn is_among(&self, mappings: &[Mapping]) -> bool {
        let own = &self.mapping;
        let same = |one: &Mapping| {
            (&one.range, one.file, one.offset) == (&own.range, own.file, own.offset)
        };
        mappings.iter().any(|one| one.executable && same(one))
    }

    /// Returns the rules at an address of the program.
    fn row(&self, address: u64) -> Row {
        let find = || Row::at(&self.image, address.wrapping_sub(self.bias));
        *self.rows.lock().entry(address).or_insert_with(|| find().unwrap_or(Row::UNKNOWN))
    }
}

/// Reads an image from the memory of a program: a patch area, or what the kernel has mapped.
fn in_memory(program: &Program, mapping: &Mapping) -> Option<Image> {
    // Its header and its tables are before its code.
    let begin = mapping.range.start.checked_sub(mapping.offset)?;
    let length = mapping.range.end - begin;
    if length > MOST {
        return None;
    }
    let mut bytes = vec![0; length as usize];
    program.read(begin, &mut bytes).ok()?;
    Image::parse(Path::new(&mapping.name), bytes).ok()
}
