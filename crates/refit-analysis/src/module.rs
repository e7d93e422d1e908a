//! A module: one file with its analysis.

use std::path::Path;

use iced_x86::InstructionInfoFactory;
use rayon::prelude::*;
use refit_sys::glob;

use crate::beginning::{Beginning, beginning};
use crate::flow::build::{self, Shape};
use crate::flow::text::text;
use crate::flow::traverse::traverse;
use crate::flow::walk::{Resolved, Walk};
use crate::flow::world::World;
use crate::flow::{EdgeKind, Flow, Instruction, Target};
use crate::functions::map::Map;
use crate::functions::{Function, FunctionId};
use crate::image::{Image, OpenError};
use crate::live::Live;
use crate::live::outline::outline;
use crate::survey::{Knowledge, survey};
use crate::{cache, live};

/// One ELF file and the analysis of its code.
#[derive(Debug)]
pub struct Module {
    image: Image,
    map: Map,
    knowledge: Knowledge,
}

impl Module {
    /// Reads and analyses the file at `path`, or takes the analysis from this user's cache.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not for x86-64.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let image = Image::open(path.as_ref())?;
        let key = cache::Key::of(&image);
        let directory = cache::directory();
        if let Some(known) = directory.as_deref().and_then(|d| cache::load(d, &key, &image)) {
            return Ok(Self::with(image, known));
        }
        let mut module = Self::analyse(image);
        if let Some(directory) = directory {
            module.find_beginnings();
            // An analysis that cannot be stored is repeated next time; opening the file does not
            // fail because of it.
            let _ = cache::store(&directory, &key, &module.knowledge);
        }
        Ok(module)
    }

    /// Analyses `image` without using the cache.
    pub fn analyse(image: Image) -> Self {
        let knowledge = survey(&image);
        Self::with(image, knowledge)
    }

    /// Takes the analysis from the part of a cache file after its header, without checking the
    /// header; `None` if it is not sound.
    #[doc(hidden)]
    pub fn remembered(image: Image, kept: &[u8]) -> Option<Self> {
        let knowledge = cache::understood(kept, &image)?;
        Some(Self::with(image, knowledge))
    }

    /// Returns the analysis as the part of a cache file after its header.
    #[doc(hidden)]
    pub fn kept(&self) -> Option<Vec<u8>> {
        cache::written(&self.knowledge)
    }

    fn with(image: Image, knowledge: Knowledge) -> Self {
        Self { map: Map::new(knowledge.functions.iter()), image, knowledge }
    }

    /// Returns the file.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Returns all functions by ascending entry; a [`FunctionId`] is an index into them.
    pub fn functions(&self) -> &[Function] {
        &self.knowledge.functions
    }

    /// Returns the function with this id.
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.knowledge.functions[id.0 as usize]
    }

    /// Returns the lowest address in `within` that code elsewhere jumps, calls or falls to although
    /// no function is entered there.
    pub fn entered_inside(&self, within: std::ops::Range<u64>) -> Option<u64> {
        let inner = &self.knowledge.inner;
        let first = inner.partition_point(|address| *address < within.start);
        inner.get(first).copied().filter(|address| within.contains(address))
    }

    /// Whether a call of this function may return.
    pub fn returns(&self, id: FunctionId) -> bool {
        self.knowledge.returns[id.0 as usize]
    }

    /// Returns the functions that match `wanted`: a pattern over names (`*` and `?`), or an address
    /// (`0x1234`) within a function.
    pub fn find(&self, wanted: &str) -> Vec<FunctionId> {
        if let Some(digits) = wanted.strip_prefix("0x")
            && let Ok(address) = u64::from_str_radix(digits, 16)
        {
            return self.function_at(address).into_iter().collect();
        }
        let matches = |function: &Function| {
            function.names.iter().any(|name| glob::matches(wanted.as_bytes(), name.as_bytes()))
                || (function.names.is_empty()
                    && glob::matches(wanted.as_bytes(), function.name().as_bytes()))
        };
        let all = self.functions().iter().enumerate();
        all.filter(|(_, f)| matches(f)).map(|(i, _)| FunctionId(i as u32)).collect()
    }

    /// Returns the function that the byte at `address` belongs to.
    pub fn function_at(&self, address: u64) -> Option<FunctionId> {
        self.map.at(address)
    }

    /// Returns the function whose entry is `address`.
    pub fn entered_at(&self, address: u64) -> Option<&Function> {
        self.function_at(address).map(|id| self.function(id)).filter(|f| f.entry == address)
    }

    /// Returns up to `most` names of functions that resemble `name`, the most similar first.
    pub fn near(&self, name: &str, most: usize) -> Vec<String> {
        let names = self.functions().iter().flat_map(|f| f.names.iter());
        crate::nearest::nearest(name, names.map(|n| &**n), most)
    }

    /// Computes control flow and live registers of a function.
    pub fn flow(&self, id: FunctionId) -> Flow {
        let (walk, shape, live) = self.examine(id);
        let unknown = |e: &crate::flow::Edge| e.to == Target::Unknown && e.kind != EdgeKind::Unwind;
        let mut numbers = vec![0; walk.code.len()];
        for (i, at) in shape.sorted.iter().enumerate() {
            numbers[*at as usize] = i as u32;
        }
        let tables = walk.jumps.values().filter_map(|resolved| match resolved {
            Resolved::Table { table, .. } => table.clone(),
            _ => None,
        });
        Flow {
            function: id,
            tables: tables.collect(),
            instructions: build::instructions(&walk, &shape),
            order: shape.order.iter().map(|i| numbers[*i as usize]).collect(),
            targets_known: !shape.edges.iter().any(unknown),
            blocks: shape.blocks,
            edges: shape.edges,
            live,
        }
    }

    /// Returns the instructions of a function, its blocks, and the live set before each
    /// instruction, by ascending address.
    fn examine(&self, id: FunctionId) -> (Walk, Shape, Vec<Live>) {
        let world = self.world();
        let walk = traverse(&world, id);
        let shape = build::shape(&world, id, &walk);
        let mut info = InstructionInfoFactory::new();
        let outline = outline(&mut info, &world, id, &walk, &shape);
        let summary = |id: FunctionId| self.knowledge.summaries[id.0 as usize];
        let exit = self.knowledge.exits[id.0 as usize];
        let live = live::before_each(&mut info, &walk, &shape, &outline, exit, &summary);
        (walk, shape, live)
    }

    /// Finds the beginnings of all functions, which are then stored with the analysis.
    fn find_beginnings(&mut self) {
        let ids = (0..self.functions().len() as u32).into_par_iter().map(FunctionId);
        let beginnings = ids.map(|id| {
            let (walk, shape, live) = self.examine(id);
            beginning(&self.world(), id, (&walk, &shape, &live))
        });
        self.knowledge.beginnings = beginnings.collect();
    }

    /// Returns the beginning of a function, if it is known without analysing the function again.
    pub fn beginning(&self, id: FunctionId) -> Option<Beginning> {
        self.knowledge.beginnings.get(id.0 as usize).copied().flatten()
    }

    /// Whether all jumps of a function were understood; see [`Flow::targets_known`].
    pub fn jump_targets_known(&self, id: FunctionId) -> bool {
        self.flow(id).targets_known()
    }

    /// Returns `length` bytes at `address`, as they are in the file; `None` if the file does not
    /// have all of them.
    pub fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.image.bytes(address, length)
    }

    /// Formats an instruction in Intel's notation; entries of this module's functions appear by
    /// name.
    pub fn text(&self, instruction: &Instruction) -> String {
        let bytes = self.bytes(instruction.address, usize::from(instruction.length));
        let name_of = |address| self.entered_at(address).map(Function::name);
        bytes.map_or_else(String::new, |bytes| text(bytes, instruction.address, name_of))
    }

    fn world(&self) -> World<'_> {
        World {
            image: &self.image,
            functions: &self.knowledge.functions,
            map: &self.map,
            returns: &self.knowledge.returns,
            inner: &self.knowledge.inner,
        }
    }
}
