//! From a profile to an arrangement of copies.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use iced_x86::OpKind;
use rayon::prelude::*;
use refit_analysis::flow::{EdgeKind, Flow, Target};
use refit_analysis::{FunctionId, Module};
use refit_probe::code::decode;
use refit_probe::sites::Place;
use refit_splice::{Alignment, ArrangedBlock, ArrangedCall, ArrangedTable, Arrangement, Body};
use tracing::debug;

use crate::align;
use crate::calls::{self, Targets};
use crate::clusters::{self, Calls, Node};
use crate::eligible::calls_can_move;
use crate::ext_tsp::{self, Jump};
use crate::profile::{Profile, Profiled};
use crate::{tables, weights};

/// Blocks are copied, the hottest first, up to all but this part of the bytes that run.
const REST: f64 = 0.0005;
/// Bytes of a cache line, and of a page.
pub(crate) const LINE: u64 = 64;
pub(crate) const PAGE: u64 = 4096;

/// The hot functions of a file, and how their blocks are connected.
#[derive(Debug, Default)]
pub struct Hot {
    functions: Vec<HotFunction>,
    calls: Vec<Calls>,
}

#[derive(Debug)]
struct HotFunction {
    id: FunctionId,
    body: Arc<Body>,
    /// Its hot blocks by address, the entry first if it is hot.
    blocks: Vec<HotBlock>,
    /// The addresses of its other blocks.
    cold: Vec<Range<u64>>,
    jumps: Vec<Jump>,
    tables: Vec<ArrangedTable>,
    /// The calls that copies make in other ways.
    ways: Vec<ArrangedCall>,
}

#[derive(Clone, Debug)]
struct HotBlock {
    addresses: Range<u64>,
    count: u64,
    enters: bool,
}

/// Figures of the code that runs, in some order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Jumps that are taken for 1,000 blocks that run.
    pub taken: f64,
    /// Cache lines and pages of the code that runs.
    pub lines: u64,
    /// The same in pages of 4 KiB.
    pub pages: u64,
    /// Bytes of the code that runs.
    pub bytes: u64,
}

/// An order of the hot functions and of their blocks.
#[derive(Clone, Debug)]
pub struct Order {
    functions: Vec<(usize, Vec<usize>)>,
}

/// A block at its place in some order.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) addresses: Range<u64>,
    pub(crate) count: u64,
    pub(crate) function: FunctionId,
}

impl Hot {
    /// Chooses what is copied, of a file that is mapped `bias` bytes from its addresses.
    pub fn new(
        module: &Module,
        bias: u64,
        (profile, targets): (&Profile, &Targets),
        stay: &BTreeSet<FunctionId>,
    ) -> Self {
        let counted = profile.functions.par_iter();
        let places: Vec<(Place<'_>, &Profiled)> =
            counted.map(|one| (Place::new(module, one.id, bias), one)).collect();
        let least = least(&places);
        let found: Vec<_> = places
            .par_iter()
            .map(|(place, one)| {
                if stay.contains(&one.id) {
                    Err("measures progress")
                } else {
                    function(module, bias, (place, one, targets), least)
                }
            })
            .collect();
        let mut hot = Self::default();
        let (mut called, mut left) = (Vec::new(), BTreeMap::<&str, usize>::new());
        for one in found {
            match one {
                Ok(Some((function, calls))) => {
                    called.push(calls);
                    hot.functions.push(function);
                }
                Ok(None) => {}
                Err(why) => *left.entry(why).or_default() += 1,
            }
        }
        debug!(functions = hot.functions.len(), ?left, "hot functions are copied, others left");
        let index: BTreeMap<FunctionId, usize> =
            hot.functions.iter().enumerate().map(|(index, one)| (one.id, index)).collect();
        for (from, calls) in called.into_iter().enumerate() {
            let known = calls.into_iter().filter_map(|(id, count)| Some((*index.get(&id)?, count)));
            hot.calls.extend(known.map(|(to, count)| Calls { from, to, count }));
        }
        hot
    }

    /// Keeps only what these functions call, and themselves.
    pub fn restrict(&mut self, roots: &BTreeSet<FunctionId>) {
        let is_root = |index: &usize| roots.contains(&self.functions[*index].id);
        let mut open: Vec<usize> = (0..self.functions.len()).filter(is_root).collect();
        let mut kept: BTreeSet<usize> = open.iter().copied().collect();
        while let Some(from) = open.pop() {
            let called = self.calls.iter().filter(|calls| calls.from == from && calls.count > 0);
            open.extend(called.map(|calls| calls.to).filter(|to| kept.insert(*to)));
        }
        self.keep(&kept);
    }

    /// Leaves out these functions.
    pub fn leave_out(&mut self, functions: &BTreeSet<FunctionId>) {
        let all = self.functions.iter().enumerate();
        let kept = all.filter(|(_, one)| !functions.contains(&one.id)).map(|(index, _)| index);
        self.keep(&kept.collect());
    }

    /// Keeps only the functions with these indices.
    fn keep(&mut self, kept: &BTreeSet<usize>) {
        let new: BTreeMap<usize, usize> =
            kept.iter().enumerate().map(|(new, &old)| (old, new)).collect();
        let calls = self.calls.iter().filter_map(|calls| {
            let (from, to) = (*new.get(&calls.from)?, *new.get(&calls.to)?);
            Some(Calls { from, to, ..*calls })
        });
        self.calls = calls.collect();
        let mut at = 0..;
        self.functions.retain(|_| at.next().is_some_and(|index| kept.contains(&index)));
    }

    /// Returns the number of functions, and of blocks.
    pub fn len(&self) -> (usize, usize) {
        (self.functions.len(), self.functions.iter().map(|one| one.blocks.len()).sum())
    }

    /// Whether nothing is hot, or can be copied.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the order in which what runs together is together.
    pub fn new_order(&self) -> Order {
        let blocks: Vec<Vec<usize>> = self.functions.par_iter().map(HotFunction::order).collect();
        let nodes: Vec<Node> = self.functions.iter().map(HotFunction::node).collect();
        let functions = clusters::order(&nodes, &self.calls);
        Order { functions: functions.into_iter().map(|one| (one, blocks[one].clone())).collect() }
    }

    /// Returns an order by chance. For tests.
    #[doc(hidden)]
    pub fn any_order(&self, seed: u64) -> Order {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut shuffled = |count: usize| {
            let mut keyed: Vec<(u64, usize)> = (0..count).map(|one| (next(), one)).collect();
            keyed.sort_unstable();
            keyed.into_iter().map(|(_, one)| one).collect::<Vec<_>>()
        };
        let functions = shuffled(self.functions.len()).into_iter();
        let functions = functions.map(|one| (one, shuffled(self.functions[one].blocks.len())));
        Order { functions: functions.collect() }
    }

    /// Returns the arrangement of copies in an order.
    pub fn arrangement(&self, order: &Order) -> Arrangement {
        let all = order.functions.iter();
        let blocks = all.flat_map(|&(function, ref blocks)| {
            let one = &self.functions[function];
            let aligned = align::of(blocks, &one.counts(), &one.jumps).into_iter();
            let each = blocks.iter().zip(aligned);
            each.map(move |(&block, alignment)| one.blocks[block].arranged(function, alignment))
        });
        self.arranged(blocks.collect())
    }

    /// Returns an arrangement of whole functions in the order that the linker has chosen: what it
    /// gains is due to copying, and not to the order.
    pub fn placebo(&self) -> Arrangement {
        let blocks = self.functions.iter().enumerate().flat_map(|(function, one)| {
            let hot = one.blocks.iter().map(|block| (block.addresses.clone(), block.enters));
            let cold = one.cold.iter().map(|addresses| (addresses.clone(), false));
            let mut all: Vec<_> = hot
                .chain(cold)
                .map(|(addresses, enters)| {
                    let alignment = Some(align::as_original(addresses.start));
                    ArrangedBlock { function, addresses, enters, alignment }
                })
                .collect();
            all.sort_by_key(|block| block.addresses.start);
            all
        });
        self.arranged(blocks.collect())
    }

    /// Returns the arrangement that has these blocks of the functions.
    fn arranged(&self, blocks: Vec<ArrangedBlock>) -> Arrangement {
        let all = &self.functions;
        Arrangement {
            functions: all.iter().map(|one| Arc::clone(&one.body)).collect(),
            blocks,
            tables: all.iter().flat_map(|one| &one.tables).cloned().collect(),
            calls: all.iter().flat_map(|one| &one.ways).cloned().collect(),
        }
    }

    /// Returns the blocks where the linker has put them.
    pub(crate) fn placed_before(&self) -> Vec<Placed> {
        let placed = |function: &HotFunction, block: &HotBlock| Placed {
            addresses: block.addresses.clone(),
            count: block.count,
            function: function.id,
        };
        let all = self.functions.iter();
        all.flat_map(|one| one.blocks.iter().map(move |block| placed(one, block))).collect()
    }

    /// Returns the blocks one after the other in another order, from address 0 on.
    pub(crate) fn placed_after(&self, order: &Order) -> Vec<Placed> {
        let (mut placed, mut begin) = (Vec::new(), 0);
        for (function, blocks) in &order.functions {
            let function = &self.functions[*function];
            for block in blocks.iter().map(|&block| &function.blocks[block]) {
                let addresses = begin..begin + block.size();
                begin = addresses.end;
                placed.push(Placed { addresses, count: block.count, function: function.id });
            }
        }
        placed
    }

    /// Returns what the order of the linker makes of the code.
    pub fn figures_before(&self) -> Figures {
        self.figures(&self.placed_before(), |function, jump| {
            let blocks = &self.functions[function].blocks;
            blocks[jump.from].addresses.end == blocks[jump.to].addresses.start
        })
    }

    /// Returns what another order makes of it.
    pub fn figures_after(&self, order: &Order) -> Figures {
        let mut next = BTreeMap::new();
        for (function, blocks) in &order.functions {
            for pair in blocks.windows(2) {
                next.insert((*function, pair[0]), pair[1]);
            }
        }
        self.figures(&self.placed_after(order), |function, jump| {
            next.get(&(function, jump.from)) == Some(&jump.to)
        })
    }

    fn figures(&self, at: &[Placed], follows: impl Fn(usize, &Jump) -> bool) -> Figures {
        let touched = |unit: u64| {
            let all = at.iter().map(|block| &block.addresses);
            let all = all.flat_map(|range| range.start / unit..range.end.div_ceil(unit));
            all.collect::<BTreeSet<u64>>().len() as u64
        };
        let (mut runs, mut taken) = (0, 0);
        for (index, function) in self.functions.iter().enumerate() {
            runs += function.blocks.iter().map(|block| block.count).sum::<u64>();
            let jumps = function.jumps.iter().filter(|jump| !follows(index, jump));
            taken += jumps.map(|jump| jump.count).sum::<u64>();
        }
        Figures {
            taken: taken as f64 * 1000.0 / runs.max(1) as f64,
            lines: touched(LINE),
            pages: touched(PAGE),
            bytes: at.iter().map(|block| block.addresses.end - block.addresses.start).sum(),
        }
    }
}

impl HotFunction {
    fn order(&self) -> Vec<usize> {
        let sizes: Vec<u64> = self.blocks.iter().map(HotBlock::size).collect();
        ext_tsp::order(&sizes, &self.counts(), &self.jumps)
    }

    fn counts(&self) -> Vec<u64> {
        self.blocks.iter().map(|block| block.count).collect()
    }

    fn node(&self) -> Node {
        Node {
            size: self.blocks.iter().map(HotBlock::size).sum(),
            runs: self.blocks.iter().map(|block| block.size() * block.count).sum(),
        }
    }
}

impl HotBlock {
    fn arranged(&self, function: usize, alignment: Option<Alignment>) -> ArrangedBlock {
        let (addresses, enters) = (self.addresses.clone(), self.enters);
        ArrangedBlock { function, addresses, enters, alignment }
    }

    fn size(&self) -> u64 {
        self.addresses.end - self.addresses.start
    }
}

/// Returns the count from which on a block is hot.
fn least(places: &[(Place<'_>, &Profiled)]) -> u64 {
    let counted = places.par_iter().flat_map_iter(|(place, one)| {
        let sizes = place.flow().blocks().iter().map(|block| block.end - block.start);
        one.blocks.iter().zip(sizes).filter_map(|(&count, size)| Some((count?, size)))
    });
    let mut all: Vec<(u64, u64)> = counted.collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    let sum: f64 = all.iter().map(|&(count, size)| count as f64 * size as f64).sum();
    let mut left = sum;
    for (count, size) in all {
        left -= count as f64 * size as f64;
        if left <= sum * REST {
            return count.max(1);
        }
    }
    1
}

/// A function, and how often it calls others.
type WithCalls = (HotFunction, Vec<(FunctionId, u64)>);

/// Returns the hot part of a function; `None` if it has none.
fn function(
    module: &Module,
    bias: u64,
    (place, profiled, targets): (&Place<'_>, &Profiled, &Targets),
    least: u64,
) -> Result<Option<WithCalls>, &'static str> {
    let flow = place.flow();
    let mut counts = profiled.blocks.clone();
    if counts.len() != flow.blocks().len() {
        return Err("was analysed otherwise");
    }
    let jumps = weights::jumps(flow, &mut counts);
    let counts: Vec<u64> = counts.into_iter().map(|count| count.unwrap_or(0)).collect();
    let entry = module.function(profiled.id).entry;
    let mut hot: Vec<usize> = (0..counts.len()).filter(|&one| counts[one] >= least).collect();
    if hot.is_empty() {
        return Ok(None);
    }
    let body = place.body().cloned().ok_or("cannot be copied: not all its jumps are understood")?;
    if !calls_can_move(module, flow) {
        return Err("calls a function to which the address of its caller matters");
    }
    hot.sort_by_key(|&block| flow.blocks()[block].start != entry);
    let tables: BTreeMap<usize, ArrangedTable> = hot
        .iter()
        .filter_map(|&block| {
            Some((block, tables::of_block(module, flow, &flow.blocks()[block], bias)?))
        })
        .collect();
    let heads = heads(flow, |block| tables.contains_key(&block));
    let addresses = |block: usize| {
        let known = &flow.blocks()[block];
        known.start.wrapping_add(bias)..known.end.wrapping_add(bias)
    };
    let block = |&block: &usize| HotBlock {
        addresses: addresses(block),
        count: counts[block],
        enters: heads.contains(&(block as u32)),
    };
    let index: BTreeMap<usize, usize> =
        hot.iter().enumerate().map(|(at, &one)| (one, at)).collect();
    let within = |jump: &Jump| {
        let (&from, &to) = (index.get(&jump.from)?, index.get(&jump.to)?);
        Some(Jump { from, to, count: jump.count })
    };
    let function = HotFunction {
        id: profiled.id,
        body,
        blocks: hot.iter().map(block).collect(),
        cold: (0..counts.len()).filter(|one| !index.contains_key(one)).map(addresses).collect(),
        jumps: jumps.iter().filter_map(within).collect(),
        tables: tables.into_values().collect(),
        ways: hot
            .iter()
            .filter_map(|&block| {
                calls::of_block(module, flow, &flow.blocks()[block], targets, bias)
            })
            .collect(),
    };
    let calls = called(module, flow, &hot, (&counts, targets));
    Ok(Some((function, calls)))
}

/// Returns the blocks at which control enters the copy: heads of loops, and those to which a jump
/// leads by a table, unless the block with the jump has a table of its own in the copy.
fn heads(flow: &Flow, has_table: impl Fn(usize) -> bool) -> BTreeSet<u32> {
    let edges = flow.edges().iter().filter_map(|edge| {
        let Target::Block(to) = edge.to else { return None };
        let by_table = edge.kind == EdgeKind::Table && !has_table(edge.from as usize);
        (to <= edge.from || by_table).then_some(to)
    });
    edges.collect()
}

/// Returns which functions these blocks call, and how often.
fn called(
    module: &Module,
    flow: &Flow,
    hot: &[usize],
    (counts, targets): (&[u64], &Targets),
) -> Vec<(FunctionId, u64)> {
    let mut all = Vec::new();
    for &block in hot {
        let last = flow.block_instructions(&flow.blocks()[block]).last();
        let Some(call) = last.and_then(|last| decode(module, last.address)) else { continue };
        if call.op0_kind() == OpKind::NearBranch64 && call.is_call_near() {
            let to = module.function_at(call.near_branch_target());
            all.extend(to.map(|to| (to, counts[block])));
        }
        for &(target, part) in targets.get(&call.ip()).into_iter().flatten() {
            let count = (counts[block] as f64 * part) as u64;
            all.extend(module.function_at(target).map(|to| (to, count)));
        }
    }
    all
}
