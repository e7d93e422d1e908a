//! Blocks of functions, and the flags that tell whether they were reached.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use refit_analysis::functions::Sources;
use refit_analysis::{FunctionId, Module};
use refit_splice::{Action, At, Plan, Site, Why};

use crate::code::behind_mark;
use crate::error::Error;
use crate::implied::{Implied, implied};
use crate::sites::{NoSite, Place};

/// A file whose blocks are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// File name.
    pub name: String,
    /// Path, as the program sees it.
    pub path: PathBuf,
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
    /// Index of its flag, or of what other flags say of it; `None` if it is not watched.
    pub(crate) flag: Option<u32>,
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

/// A function, with sites for its blocks.
pub(crate) struct FunctionSites {
    function: Function,
    /// A site for each block that is not implied.
    sites: Vec<Option<Result<Site, NoSite>>>,
    implied: Vec<Implied>,
}

impl FunctionSites {
    /// Returns a function, unless it is a stub, which only jumps to another function.
    pub(crate) fn new(module: &Module, id: FunctionId, bias: u64, which: Blocks) -> Option<Self> {
        let known = module.function(id);
        if known.sources.contains(Sources::STUB) {
            return None;
        }
        let place = match which {
            Blocks::Roomy => Place::in_place(module, id, bias),
            Blocks::All => Place::new(module, id, bias),
        };
        let all = place.flow().blocks();
        let at = |block: u32| behind_mark(module, all[block as usize].start);
        let mut implied = implied(module, place.flow());
        let mut left_out = BTreeSet::new();
        // A block is not implied by one that cannot be watched.
        implied.retain(|one| {
            let watched = |to: &u32| left_out.contains(to) || place.has_room(at(*to));
            let all = one.by.iter().all(watched);
            all && left_out.insert(one.block)
        });
        let (mut blocks, mut sites) = (Vec::new(), Vec::new());
        for (index, block) in (0_u32..).zip(all) {
            let size = block.end.saturating_sub(block.start);
            blocks.push(Block { address: block.start, size, flag: None });
            let site = || place.site(at(index), At::Before, Vec::new());
            sites.push((!left_out.contains(&index)).then(site));
        }
        let function = Function { name: known.name(), address: known.entry, blocks };
        Some(Self { function, sites, implied })
    }
}

/// Blocks that are to be watched, before it is decided which of them can be.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) files: Vec<File>,
    sites: Vec<Site>,
    /// Implied blocks, function by function.
    implied: Vec<Vec<Implied>>,
    refused: BTreeMap<&'static str, u64>,
}

/// Blocks that can be watched.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) files: Vec<File>,
    /// Number of blocks that are not watched, by the reason.
    pub refused: BTreeMap<&'static str, u64>,
    pub(crate) plan: Plan,
    /// Addresses of the sites in the program, by the indices of their flags.
    pub(crate) addresses: Vec<u64>,
    /// For each index beyond those of flags, the indices of what the block is implied by, which are
    /// less.
    pub(crate) implied: Vec<Vec<u32>>,
    pub(crate) watched: usize,
}

impl Wanted {
    /// Adds the sites of a function, and returns the function.
    pub(crate) fn add(&mut self, with_sites: FunctionSites) -> Function {
        let FunctionSites { mut function, sites, implied } = with_sites;
        for (block, site) in function.blocks.iter_mut().zip(sites) {
            match site {
                Some(Ok(mut site)) => {
                    let cell = self.sites.len() as u32;
                    block.flag = Some(cell);
                    site.actions = vec![Action::Flag { cell }.into()];
                    self.sites.push(site);
                }
                Some(Err(_)) => *self.refused.entry("its code cannot be read").or_default() += 1,
                None => {}
            }
        }
        self.implied.push(implied);
        function
    }

    /// Decides which blocks are watched.
    ///
    /// # Errors
    /// [`Error::Nothing`]: none can be.
    pub(crate) fn decide(self) -> Result<Prepared, Error> {
        let Self { mut files, mut sites, implied, mut refused } = self;
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
            block.flag = block.flag.map(|cell| shared.get(&cell).copied().unwrap_or(cell));
            block.flag = block.flag.filter(|cell| !removed.contains(cell));
        }
        if plan.is_empty() {
            let first = why_first.map_or("there is no code".to_owned(), |why| why.to_string());
            return Err(Error::Nothing { first });
        }
        let implied = number(&mut files, &implied, addresses.len() as u32, &mut refused);
        let watched = plan.len();
        Ok(Prepared { files, refused, plan, addresses, implied, watched })
    }
}

/// Numbers the implied blocks from `first` on; returns the numbers of what each is implied by.
fn number(
    files: &mut [File],
    implied: &[Vec<Implied>],
    first: u32,
    refused: &mut BTreeMap<&'static str, u64>,
) -> Vec<Vec<u32>> {
    let mut found = Vec::new();
    let functions = files.iter_mut().flat_map(|file| &mut file.functions);
    for (function, implied) in functions.zip(implied) {
        for Implied { block, by } in implied {
            let by = by.iter().map(|&to| function.blocks[to as usize].flag);
            match by.collect::<Option<Vec<u32>>>() {
                Some(by) => {
                    function.blocks[*block as usize].flag = Some(first + found.len() as u32);
                    found.push(by);
                }
                None => {
                    *refused.entry("followed by a block that cannot be watched").or_default() += 1
                }
            }
        }
    }
    found
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
