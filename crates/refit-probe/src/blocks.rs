//! Blocks of functions, and the flags or counters that tell whether they were reached, or how
//! often.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rayon::prelude::*;
use refit_analysis::flow::{Flow, Target};
use refit_analysis::functions::Sources;
use refit_analysis::{FunctionId, Module};
use refit_splice::{Action, At, Plan, Site, Why};
use refit_sys::memory::PAGE_SIZE_U64;

use crate::code::behind_mark;
use crate::conservation::Conservation;
use crate::error::Error;
use crate::implied::{Implied, implied};
use crate::modules::Mapped;
use crate::sites::{NoSite, Place};

/// A file whose blocks are watched.
#[derive(Clone, Debug)]
pub struct File {
    /// File name.
    pub name: String,
    /// Path, as the program sees it.
    pub path: PathBuf,
    pub(crate) mapped: Mapped,
    /// Distance of addresses in the program from those in the file.
    pub bias: u64,
    /// Its lowest address and the one after its highest, in the file.
    pub span: (u64, u64),
    /// Functions by address, without stubs of the procedure linkage table.
    pub functions: Vec<Function>,
}

/// A function whose blocks are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name of the function.
    pub name: String,
    /// Its entry, in the file.
    pub address: u64,
    /// Its blocks by address.
    pub blocks: Vec<Block>,
}

/// A basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its address in the file.
    pub address: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Index of its flag or count, own or derived; `None` if it is not watched.
    pub(crate) value: Option<u32>,
}

/// Which blocks are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Blocks with room for a jump; their flags are removed once set.
    Roomy,
    /// All blocks, except in functions that cannot be copied. Where a block has no room, its
    /// function runs in a copy until the end; flags in copies are removed once set, too.
    All,
}

/// Whether blocks are flagged or counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watching {
    /// A flag tells whether a block was reached; it is removed once set.
    Flags,
    /// A counter tells how often a block ran; it stays until the end.
    Counters,
}

/// A function, with sites for its blocks.
struct FunctionSites {
    function: Function,
    /// A site for each block whose value is not derived.
    sites: Vec<Option<Result<Site, NoSite>>>,
    derivation: Derivation,
}

/// The way in which values of blocks of a function follow from those of others.
enum Derivation {
    Implied(Vec<Implied>),
    /// Of the blocks that have no counter of their own.
    Conserved(Conservation, Vec<bool>),
}

impl FunctionSites {
    /// Returns a function, unless it is a stub, which only jumps to another function.
    fn new(
        module: &Module,
        id: FunctionId,
        bias: u64,
        which: Blocks,
        watching: Watching,
    ) -> Option<Self> {
        let known = module.function(id);
        if known.sources.contains(Sources::STUB) {
            return None;
        }
        let place = match which {
            Blocks::Roomy => Place::in_place(module, id, bias),
            Blocks::All => Place::new(module, id, bias),
        };
        let (own, derivation) = match watching {
            Watching::Flags => flagged(module, &place),
            Watching::Counters => counted(module, &place),
        };
        let (mut blocks, mut sites) = (Vec::new(), Vec::new());
        for (block, own) in place.flow().blocks().iter().zip(own) {
            let size = block.end.saturating_sub(block.start);
            blocks.push(Block { address: block.start, size, value: None });
            let at = behind_mark(module, block.start);
            sites.push(own.then(|| place.site(at, At::Before, Vec::new())));
        }
        let function = Function { name: known.name(), address: known.entry, blocks };
        Some(Self { function, sites, derivation })
    }
}

/// Returns which blocks get a flag, and how the others are implied.
fn flagged(module: &Module, place: &Place<'_>) -> (Vec<bool>, Derivation) {
    let blocks = place.flow().blocks();
    let at = |block: u32| behind_mark(module, blocks[block as usize].start);
    let mut implied = implied(module, place.flow());
    let mut left_out = BTreeSet::new();
    // A block is not implied by one that cannot be watched.
    implied.retain(|one| {
        let watched = |to: &u32| left_out.contains(to) || place.has_room(at(*to));
        let all = one.by.iter().all(watched);
        all && left_out.insert(one.block)
    });
    let own = (0..blocks.len() as u32).map(|block| !left_out.contains(&block)).collect();
    (own, Derivation::Implied(implied))
}

/// Returns which blocks get a counter, and how the other counts follow.
fn counted(module: &Module, place: &Place<'_>) -> (Vec<bool>, Derivation) {
    let laws = Conservation::new(module, place.flow());
    let depths = depths(place.flow());
    let blocks = place.flow().blocks();
    // A block that consists of an `endbr64` has no place of its own.
    let apart = |block: usize| behind_mark(module, blocks[block].start) < blocks[block].end;
    let mut own = laws.counted(|block| {
        let at = behind_mark(module, blocks[block].start);
        match apart(block) && place.has_room(at) {
            // A copy is better avoided, but not at the price of a counter in a loop.
            true => depths[block] * 2 + u32::from(!place.fits_a_jump(at)),
            false => u32::MAX,
        }
    });
    own.iter_mut().enumerate().for_each(|(block, own)| *own &= apart(block));
    let others = own.iter().map(|own| !own).collect();
    (own, Derivation::Conserved(laws, others))
}

/// Returns in how many loops each block is, as far as their addresses tell.
fn depths(flow: &Flow) -> Vec<u32> {
    let mut ends = BTreeMap::<u32, u32>::new();
    for edge in flow.edges() {
        // Blocks are in the order of their addresses.
        if let Target::Block(to) = edge.to
            && to <= edge.from
        {
            let end = ends.entry(to).or_default();
            *end = edge.from.max(*end);
        }
    }
    let mut changes = vec![0_i32; flow.blocks().len() + 1];
    for (begin, end) in ends {
        changes[begin as usize] += 1;
        changes[end as usize + 1] -= 1;
    }
    let mut depth = 0;
    let depths = changes.iter().map(|change| {
        depth += change;
        depth.cast_unsigned()
    });
    depths.take(flow.blocks().len()).collect()
}

/// Blocks that are to be watched, before it is decided which of them can be.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) files: Vec<File>,
    sites: Vec<Site>,
    /// By function.
    derivations: Vec<Derivation>,
    refused: BTreeMap<&'static str, u64>,
}

/// Blocks that can be watched.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) files: Vec<File>,
    /// Number of blocks that are not watched, by the reason.
    pub refused: BTreeMap<&'static str, u64>,
    pub(crate) plan: Plan,
    /// Addresses of the sites in the program, by the indices of their values.
    pub(crate) addresses: Vec<u64>,
    pub(crate) derived: Derived,
    pub(crate) watching: Watching,
    pub(crate) watched: usize,
}

/// Values that follow from others.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    /// Number of values that are read from the program; those that are derived come after them.
    read: u32,
    /// For each derived flag, the indices of what the block is implied by, which are less.
    implied: Vec<Vec<u32>>,
    /// The functions with derived counts, and the indices of the values of their blocks.
    conserved: Vec<(Conservation, Vec<Option<u32>>)>,
    /// Number of derived values.
    derived: u32,
}

impl Derived {
    /// Returns the number of all values.
    pub(crate) fn values(&self) -> usize {
        self.read as usize + self.derived as usize
    }

    /// Derives values, after the others have been read.
    pub(crate) fn derive(&self, values: &mut [u64]) {
        for (number, by) in (self.read as usize..).zip(&self.implied) {
            let reached = by.iter().any(|&other| values[other as usize] > 0);
            values[number] |= u64::from(reached);
        }
        for (laws, numbers) in &self.conserved {
            let read = |number: u32| (number < self.read).then(|| values[number as usize]);
            let mut counts: Vec<_> = numbers.iter().map(|number| number.and_then(read)).collect();
            laws.derive(&mut counts);
            for (number, count) in numbers.iter().zip(counts) {
                if let (Some(number), Some(count)) = (number, count) {
                    values[*number as usize] = count;
                }
            }
        }
    }
}

impl Wanted {
    /// Adds the sites of functions of a file, mapped `bias` bytes from its addresses, and returns
    /// the file.
    pub(crate) fn file(
        &mut self,
        mapped: Mapped,
        (module, bias): (&Module, u64),
        functions: &[FunctionId],
        which: Blocks,
        watching: Watching,
    ) -> File {
        let found: Vec<_> = functions
            .par_iter()
            .filter_map(|&id| FunctionSites::new(module, id, bias, which, watching))
            .collect();
        let functions = found.into_iter().map(|function| self.add(function)).collect();
        let (name, path, span) = (mapped.name(), mapped.path.clone(), span(module));
        File { name, path, mapped, bias, span, functions }
    }

    /// Adds the sites of a function, and returns the function.
    fn add(&mut self, with_sites: FunctionSites) -> Function {
        let FunctionSites { mut function, sites, derivation } = with_sites;
        for (block, site) in function.blocks.iter_mut().zip(sites) {
            match site {
                Some(Ok(mut site)) => {
                    let cell = self.sites.len() as u32;
                    block.value = Some(cell);
                    let action = match derivation {
                        Derivation::Implied(_) => Action::Flag { cell },
                        Derivation::Conserved(..) => Action::Count { cell },
                    };
                    site.actions = vec![action.into()];
                    self.sites.push(site);
                }
                Some(Err(_)) => *self.refused.entry("its code cannot be read").or_default() += 1,
                None => {}
            }
        }
        self.derivations.push(derivation);
        function
    }

    /// Decides which blocks are watched.
    ///
    /// # Errors
    /// [`Error::Nothing`]: none can be.
    pub(crate) fn decide(self, watching: Watching) -> Result<Prepared, Error> {
        let Self { mut files, mut sites, derivations, mut refused } = self;
        let addresses: Vec<u64> = sites.iter().map(|site| site.address).collect();
        // A block that consists of an `endbr64` shares its site with the next one.
        let mut first: BTreeMap<u64, u32> = BTreeMap::new();
        let mut shared: BTreeMap<u32, u32> = BTreeMap::new();
        for (cell, &address) in (0..).zip(&addresses) {
            match first.get(&address) {
                Some(&other) => drop(shared.insert(cell, other)),
                None => drop(first.insert(address, cell)),
            }
        }
        let mut cells: Vec<u32> = (0..).take(sites.len()).collect();
        cells.retain(|cell| !shared.contains_key(cell));
        let mut numbers = 0..;
        sites.retain(|_| numbers.next().is_some_and(|cell| !shared.contains_key(&cell)));
        let (plan, lost) = Plan::new(sites);
        let mut why_first = None;
        let mut removed = BTreeSet::new();
        for (index, why) in lost {
            *refused.entry(reason(&why)).or_default() += 1;
            removed.insert(cells[index]);
            why_first.get_or_insert(why);
        }
        for block in
            files.iter_mut().flat_map(|file| &mut file.functions).flat_map(|f| &mut f.blocks)
        {
            block.value = block.value.map(|cell| shared.get(&cell).copied().unwrap_or(cell));
            block.value = block.value.filter(|cell| !removed.contains(cell));
        }
        if plan.is_empty() {
            let first = why_first.map_or("there is no code".to_owned(), |why| why.to_string());
            return Err(Error::Nothing { first });
        }
        let mut derived = Derived { read: addresses.len() as u32, ..Derived::default() };
        let functions = files.iter_mut().flat_map(|file| &mut file.functions);
        for (function, derivation) in functions.zip(derivations) {
            let missed = derived.add(function, derivation);
            if missed > 0 {
                *refused.entry("followed by a block that cannot be watched").or_default() += missed;
            }
        }
        let watched = plan.len();
        Ok(Prepared { files, refused, plan, addresses, derived, watching, watched })
    }
}

impl Derived {
    /// Adds the values of a function that follow from others; returns the number of those that
    /// would follow if more blocks could be watched.
    fn add(&mut self, function: &mut Function, derivation: Derivation) -> u64 {
        let mut missed = 0;
        match derivation {
            Derivation::Implied(implied) => {
                for Implied { block, by } in implied {
                    let by = by.iter().map(|&to| function.blocks[to as usize].value);
                    match by.collect::<Option<Vec<u32>>>() {
                        Some(by) => {
                            function.blocks[block as usize].value = Some(self.next());
                            self.implied.push(by);
                        }
                        None => missed += 1,
                    }
                }
            }
            Derivation::Conserved(laws, others) => {
                let mut known: Vec<_> =
                    function.blocks.iter().map(|block| block.value.map(|_| 0)).collect();
                laws.derive(&mut known);
                for (number, known) in known.into_iter().enumerate() {
                    let value = &mut function.blocks[number].value;
                    match known {
                        Some(_) => *value = value.or_else(|| Some(self.next())),
                        None => missed += u64::from(others[number]),
                    }
                }
                let numbers = function.blocks.iter().map(|block| block.value).collect();
                self.conserved.push((laws, numbers));
            }
        }
        missed
    }

    fn next(&mut self) -> u32 {
        self.derived += 1;
        self.read + self.derived - 1
    }
}

fn span(module: &Module) -> (u64, u64) {
    let segments = module.image().segments();
    let lowest = segments.iter().map(|segment| segment.addresses.start).min().unwrap_or(0);
    let highest = segments.iter().map(|segment| segment.addresses.end).max().unwrap_or(0);
    (lowest / PAGE_SIZE_U64 * PAGE_SIZE_U64, highest.next_multiple_of(PAGE_SIZE_U64))
}

fn reason(why: &Why) -> &'static str {
    match why {
        Why::Short { .. } => "too short for a jump, without an unused place nearby",
        Why::Alone { .. } => "too short for a jump, in a function with unresolved jumps",
        Why::Fixed { .. } => "an instruction that cannot run elsewhere",
        Why::Uncopied { .. } => "in a function with unresolved jumps, which cannot be copied",
        Why::Torn { .. } => "in a function whose copy would have to change several pages at once",
        _ => "no instructions",
    }
}
