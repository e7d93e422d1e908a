//! The survey of a module: which functions exist, which of them return, and which pieces of code
//! are parts of others.
//!
//! The three questions depend on each other. Code after a call that does not return is not
//! reached; code that is reached calls functions that no other source lists; and a piece that only
//! one function jumps to is part of that function. So the survey examines functions again until
//! nothing changes. Initially all calls return, since that is safe to assume of code that was not
//! examined: a function does not return only if all its paths were followed and end elsewhere.

mod obscure;
mod pieces;

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::InstructionInfoFactory;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::beginning::Beginning;
use crate::flow::build::{self, Shape};
use crate::flow::exits::{self, Exit, exit_of};
use crate::flow::traverse::traverse;
use crate::flow::walk::Walk;
use crate::flow::world::World;
use crate::flow::{EdgeKind, Target};
use crate::functions::map::Map;
use crate::functions::{Function, FunctionId, Sources};
use crate::image::Image;
use crate::live::outline::{Outline, Summary, outline};
use crate::live::set::Set;
use crate::live::summary::summarise;
use pieces::{Part, Piece, called, pieces};

/// The facts about all functions of a module; enough to analyse one of them by itself.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Knowledge {
    /// Functions by ascending entry.
    pub(crate) functions: Vec<Function>,
    pub(crate) returns: Vec<bool>,
    /// Addresses within functions that other functions jump or call to, and addresses between
    /// functions that control falls to; ascending.
    pub(crate) inner: Vec<u64>,
    pub(crate) summaries: Vec<Summary>,
    /// Sets that callers may need when each function returns.
    pub(crate) exits: Vec<Set>,
    /// The beginnings of the functions that have one ([`Beginning`]); empty until they are looked
    /// for.
    pub(crate) beginnings: Vec<Option<Beginning>>,
}

/// Maximum number of rounds in which functions are searched. A target called only by functions of
/// the last round gets no function of its own.
const TURNS: usize = 200;

/// The consequences of one function's code for others.
#[derive(Debug, Default, Clone)]
struct Digest {
    /// Whether a way out of the function may lead back to its caller.
    returns: bool,
    /// Call targets outside of the function.
    calls: Vec<u64>,
    /// Jump targets outside of the function, and the kind of each edge.
    jumps: Vec<(u64, EdgeKind)>,
}

struct Survey<'a> {
    image: &'a Image,
    functions: Vec<Function>,
    /// Whether a source gives the end of each function; otherwise it ends where the next one
    /// begins.
    sized: Vec<bool>,
    parts: Vec<Part>,
    returns: Vec<bool>,
    digests: Vec<Digest>,
    inner: Vec<u64>,
}

/// Surveys all code of `image`.
pub(crate) fn survey(image: &Image) -> Knowledge {
    let mut survey = Survey::new(image);
    let mut again: BTreeSet<u64> = survey.functions.iter().map(|f| f.entry).collect();
    let mut merged = false;
    for _ in 0..TURNS {
        survey.look_at(&again);
        again = survey.find_who_returns();
        if again.is_empty() {
            again = survey.find_called();
        }
        if again.is_empty() && !merged {
            again = survey.join_parts();
            merged = true;
        }
        if again.is_empty() {
            again = survey.find_inner();
        }
        if again.is_empty() {
            break;
        }
    }
    survey.finish()
}

fn is_stub_of_no_return(function: &Function) -> bool {
    function.sources.contains(Sources::STUB)
        && function.names.iter().any(|n| exits::never_returns(n))
}

impl<'a> Survey<'a> {
    fn new(image: &'a Image) -> Self {
        let mut survey = Survey {
            image,
            functions: Vec::new(),
            sized: Vec::new(),
            parts: Vec::new(),
            returns: Vec::new(),
            digests: Vec::new(),
            inner: Vec::new(),
        };
        for (i, piece) in pieces(image).into_iter().enumerate() {
            survey.insert(i, piece);
        }
        survey
    }

    fn insert(&mut self, at: usize, piece: Piece) {
        self.returns.insert(at, !is_stub_of_no_return(&piece.function));
        self.functions.insert(at, piece.function);
        self.sized.insert(at, piece.sized);
        self.parts.insert(at, piece.part);
        self.digests.insert(at, Digest::default());
    }

    fn map(&self) -> Map {
        Map::new(self.functions.iter())
    }

    /// Digests the functions again that are entered at `entries`.
    fn look_at(&mut self, entries: &BTreeSet<u64>) {
        let (map, functions) = (self.map(), &self.functions);
        let (image, returns, inner) = (self.image, &self.returns, &self.inner);
        let world = World { image, functions, map: &map, returns, inner };
        let ids: Vec<u32> = (0..functions.len() as u32)
            .filter(|i| entries.contains(&functions[*i as usize].entry))
            .collect();
        let digests: Vec<(u32, Digest)> = ids
            .into_par_iter()
            .map(|i| {
                let walk = traverse(&world, FunctionId(i));
                let shape = build::shape(&world, FunctionId(i), &walk);
                (i, digest(&world, FunctionId(i), &walk, &shape))
            })
            .collect();
        for (i, digest) in digests {
            self.digests[i as usize] = digest;
        }
    }

    /// Finds functions that do not return; returns the entries of their callers, whose flow
    /// changes.
    fn find_who_returns(&mut self) -> BTreeSet<u64> {
        let index: BTreeMap<u64, usize> =
            self.functions.iter().enumerate().map(|(i, f)| (f.entry, i)).collect();
        let mut jumpers: Vec<Vec<usize>> = vec![Vec::new(); self.functions.len()];
        let mut may: Vec<bool> = self.digests.iter().map(|d| d.returns).collect();
        for (i, digest) in self.digests.iter().enumerate() {
            for (target, _) in &digest.jumps {
                match index.get(target) {
                    Some(&other) => jumpers[other].push(i),
                    None => may[i] = true,
                }
            }
        }
        for (i, function) in self.functions.iter().enumerate() {
            may[i] &= !is_stub_of_no_return(function);
        }
        let mut work: Vec<usize> = (0..may.len()).filter(|i| may[*i]).collect();
        while let Some(i) = work.pop() {
            for &jumper in &jumpers[i] {
                if !std::mem::replace(&mut may[jumper], true) {
                    work.push(jumper);
                }
            }
        }
        let mut ended = BTreeSet::new();
        for (i, function) in self.functions.iter().enumerate() {
            if self.returns[i] && !may[i] {
                self.returns[i] = false;
                ended.insert(function.entry);
            }
        }
        let callers = self.digests.iter().zip(&self.functions);
        callers
            .filter(|(digest, _)| digest.calls.iter().any(|c| ended.contains(c)))
            .map(|(_, function)| function.entry)
            .collect()
    }

    /// Makes a function of each call target that belongs to none. Returns the entries of the new
    /// functions and of the functions that they cut off, which have to be examined again.
    fn find_called(&mut self) -> BTreeSet<u64> {
        let map = self.map();
        let mut new = BTreeSet::new();
        for target in self.digests.iter().flat_map(|d| &d.calls) {
            let free = match map.at(*target) {
                None => true,
                // An end that no source gives moves to the new entry.
                Some(id) => {
                    let i = id.0 as usize;
                    !self.sized[i] && self.functions[i].entry != *target
                }
            };
            let within = self.image.code_at(*target);
            if free && within.is_some_and(|code| code.stub.is_none()) {
                new.insert(*target);
            }
        }
        let mut again = new.clone();
        for &entry in &new {
            let Some(code) = self.image.code_at(entry) else { continue };
            let next = self.functions.partition_point(|f| f.entry <= entry);
            let mut end = code.addresses.end;
            if let Some(function) = self.functions.get(next) {
                end = end.min(function.entry);
            }
            if let Some(before) = next.checked_sub(1).map(|i| &mut self.functions[i]) {
                for range in &mut before.ranges {
                    if range.contains(&entry) && range.start < entry {
                        end = end.min(range.end);
                        range.end = entry;
                        again.insert(before.entry);
                    }
                }
            }
            self.insert(next, called(entry, end));
        }
        again
    }

    /// Finds functions that others enter past their entry; returns the entries of those to look at
    /// again.
    fn find_inner(&mut self) -> BTreeSet<u64> {
        let map = self.map();
        let mut inner = BTreeSet::new();
        let mut again = BTreeSet::new();
        let targets = self
            .digests
            .iter()
            .flat_map(|d| d.calls.iter().chain(d.jumps.iter().map(|(target, _)| target)));
        for &target in targets {
            let Some(id) = map.at(target) else {
                // Padding through which control falls from one function to the next.
                inner.insert(target);
                continue;
            };
            let entry = self.functions[id.0 as usize].entry;
            let new = entry != target && inner.insert(target);
            if new && self.inner.binary_search(&target).is_err() {
                again.insert(entry);
            }
        }
        self.inner = inner.into_iter().collect();
        again
    }

    /// Joins pieces to the functions that they are parts of; returns the entries of the latter.
    fn join_parts(&mut self) -> BTreeSet<u64> {
        let parents = self.parents();
        let mut again = BTreeSet::new();
        let mut owners: Vec<usize> = (0..self.functions.len()).collect();
        for &part in parents.keys() {
            let mut at = part;
            // Follows parts of parts for at most as many steps as parts exist, in case they form a
            // cycle.
            for _ in 0..parents.len() {
                match parents.get(&at) {
                    Some(&parent) if parent != part => at = parent,
                    _ => break,
                }
            }
            owners[part] = if parents.contains_key(&at) { part } else { at };
        }
        for (part, &owner) in owners.iter().enumerate() {
            if owner == part {
                continue;
            }
            let ranges = std::mem::take(&mut self.functions[part].ranges);
            let function = &mut self.functions[owner];
            function.ranges.extend(ranges);
            again.insert(function.entry);
        }
        let keep: Vec<bool> = owners.iter().enumerate().map(|(i, owner)| i == *owner).collect();
        retain(&mut self.functions, &keep);
        retain(&mut self.sized, &keep);
        retain(&mut self.parts, &keep);
        retain(&mut self.returns, &keep);
        retain(&mut self.digests, &keep);
        for function in &mut self.functions {
            // The range of the entry comes first, whatever its address.
            function.ranges[1..].sort_by_key(|r| r.start);
        }
        again
    }

    /// Returns pieces that are parts, with the pieces that they belong to.
    fn parents(&self) -> BTreeMap<usize, usize> {
        let map = self.map();
        let mut jumped: BTreeMap<usize, BTreeMap<usize, bool>> = BTreeMap::new();
        let mut called = BTreeSet::new();
        for (from, digest) in self.digests.iter().enumerate() {
            called.extend(digest.calls.iter().filter_map(|c| map.at(*c)).map(|id| id.0 as usize));
            for &(target, kind) in &digest.jumps {
                let Some(to) = map.at(target).map(|id| id.0 as usize) else { continue };
                if kind == EdgeKind::Fall {
                    continue;
                }
                let entered = self.functions[to].entry == target;
                let torn = kind != EdgeKind::Jump || !entered;
                *jumped.entry(to).or_default().entry(from).or_default() |= torn;
            }
        }
        let mut parents = BTreeMap::new();
        for (&part, from) in &jumped {
            let others: Vec<(&usize, &bool)> = from.iter().filter(|(f, _)| **f != part).collect();
            let [(&parent, &torn)] = others[..] else { continue };
            let entry = self.functions[part].entry;
            let joins = match self.parts[part] {
                Part::No => false,
                Part::Likely => !called.contains(&part),
                Part::Perhaps => {
                    // A piece that jumps back into the middle of another one, or that the other one
                    // only enters conditionally, is no function by itself.
                    let back = jumped.get(&parent).and_then(|f| f.get(&part)) == Some(&true);
                    !called.contains(&part)
                        && self.parts[parent] != Part::Likely
                        && (torn || back)
                        && !self.image.points_within(entry..entry.saturating_add(1), u64::MAX)
                }
            };
            let convention = |i: usize| self.functions[i].convention;
            if joins && convention(part) == convention(parent) {
                parents.insert(part, parent);
            }
        }
        parents
    }

    fn finish(self) -> Knowledge {
        let (map, functions) = (self.map(), self.functions);
        let (image, returns, inner) = (self.image, self.returns, self.inner);
        let world =
            World { image, functions: &functions, map: &map, returns: &returns, inner: &inner };
        let looked: Vec<(Outline, Vec<FunctionId>)> = (0..functions.len() as u32)
            .into_par_iter()
            .map_init(InstructionInfoFactory::new, |info, i| {
                let id = FunctionId(i);
                let walk = traverse(&world, id);
                let shape = build::shape(&world, id, &walk);
                let outline = outline(info, &world, id, &walk, &shape);
                let called = if outline.unknown {
                    obscure::called_from_gaps(&world, world.function(id), &walk)
                } else {
                    Vec::new()
                };
                (outline, called)
            })
            .collect();
        let (outlines, mut obscure): (Vec<Outline>, Vec<Vec<FunctionId>>) =
            looked.into_iter().unzip();
        obscure.push(obscure::called_from_nowhere(&world));
        let summaries = summarise(&outlines, &obscure.concat());
        Knowledge {
            returns,
            inner,
            summaries: summaries.summaries,
            exits: summaries.exits,
            beginnings: Vec::new(),
            functions,
        }
    }
}

fn retain<T>(list: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    list.retain(|_| *keep.next().unwrap_or(&true));
}

fn digest(world: &World, id: FunctionId, walk: &Walk, shape: &Shape) -> Digest {
    let function = world.function(id);
    // Bytes that cannot be decoded may do anything.
    let mut digest = Digest { returns: shape.blocks.is_empty(), ..Digest::default() };
    for edge in &shape.edges {
        match edge.to {
            Target::Block(_) => {}
            Target::Function(other) => {
                digest.jumps.push((world.function(other).entry, edge.kind));
            }
            Target::Outside(address) => digest.jumps.push((address, edge.kind)),
            Target::Caller | Target::Unknown | Target::Elsewhere => digest.returns = true,
        }
    }
    for instruction in &walk.code {
        if let Exit::Call(target) = exit_of(instruction)
            && !function.contains(target)
        {
            digest.calls.push(target);
        }
        digest.returns |= instruction.is_invalid();
    }
    digest.calls.sort_unstable();
    digest.calls.dedup();
    digest.jumps.sort_unstable();
    digest.jumps.dedup();
    digest
}
