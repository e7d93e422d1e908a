//! Resolves indirect jumps: jump tables, and tail calls.
//!
//! Compilers write two kinds of tables: 8-byte addresses (`jmp *table(,%rax,8)`), and in
//! position-independent code 4-byte distances from the table (`movslq (%rdx,%rax,4),%rax; add
//! %rdx,%rax; jmp *%rax`). The address of a table is a constant that was loaded into a register
//! before; the length of a table is stored nowhere and follows from the range of the index
//! ([`super::value_range`]). A table in writable memory is not accepted.
//!
//! # Tables without a bound
//!
//! Compilers leave out the comparison if they know all values, such as those of an enumeration in
//! Rust. Then a table of distances is read up to the first entry that cannot be its own: one at
//! which another table begins, or that leads to no code, into another function that is called or
//! has a name, or to where frame descriptions have another frame. This finds every entry, since
//! those of a switch lead to instructions of its function. It may find some of the next table as
//! well; an address to which control never jumps only costs room for sites. If an entry leads into
//! the middle of an instruction, or to code of no known function, the table is not accepted.
//!
//! # Tail calls
//!
//! An indirect jump that uses no table may leave the function as a tail call. This is assumed if
//! the stack is as at the entry, the target is loaded rather than computed as a sum, and no address
//! within the function is stored or taken that could be the target.

use std::collections::BTreeSet;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use super::exits::{self, Exit, exit_of};
use super::graph::{JumpTable, LONGEST};
use super::trace::{Trace, is_call, is_immediate, writes};
use super::value_range::{Bound, bound};
use super::walk::{Resolved, Walk};
use super::world::World;
use crate::functions::{Function, Sources};

/// A jump table and the register that selects an entry.
#[derive(Debug, Clone, Copy)]
struct Table {
    address: u64,
    /// Base that is added to each entry of 4 bytes; `None` if entries are addresses of 8 bytes.
    base: Option<u64>,
    index: Register,
    /// Instruction before which the register holds the index.
    at: u32,
    /// Instruction that reads an entry.
    load: u32,
}

impl Table {
    fn size(&self) -> u64 {
        if self.base.is_some() { 4 } else { 8 }
    }

    /// Returns the address of an entry.
    fn place(&self, i: u64) -> Option<u64> {
        self.address.checked_add(i * self.size())
    }
}

/// Sources which say of code that it is a function, and not a part of one.
const FUNCTION: [Sources; 4] = [Sources::SYMBOL, Sources::EXPORT, Sources::CALL, Sources::START];

/// Maximum number of entries of a table without a bound.
const MOST_UNBOUNDED: u64 = 1 << 12;

/// Maximum number of copies and sums that are followed from the jump back to the table.
const DEPTH: u32 = 6;

/// Resolves the indirect jumps `jumps` of `function`.
pub(super) fn resolve(
    world: &World,
    function: &Function,
    walk: &Walk,
    jumps: &[u32],
) -> Vec<(u32, Resolved)> {
    if jumps.is_empty() {
        return Vec::new();
    }
    let trace = Trace::new(world, function, walk);
    let mut resolver = Resolver { world, function, trace, begins: BTreeSet::new() };
    let found = jumps.iter().map(|&jump| (jump, resolver.tables_of(jump)));
    let found: Vec<_> = found.collect();
    let tables = found.iter().filter_map(|(_, tables)| tables.as_ref()).flatten();
    // With a displacement, the first entry may not be that of 0.
    let plain = tables.filter(|table| table.base == Some(table.address));
    resolver.begins = plain.map(|table| table.address).collect();
    found.into_iter().map(|(jump, tables)| (jump, resolver.jump(jump, tables))).collect()
}

struct Resolver<'a> {
    world: &'a World<'a>,
    function: &'a Function,
    trace: Trace<'a>,
    /// Addresses at which tables of distances begin.
    begins: BTreeSet<u64>,
}

impl Resolver<'_> {
    /// Returns the tables that a jump may read its target from.
    fn tables_of(&self, jump: u32) -> Option<Vec<Table>> {
        let instruction = self.trace.code(jump);
        match instruction.op0_kind() {
            OpKind::Register => self.tables(instruction.op0_register(), jump, DEPTH),
            OpKind::Memory => self.table(jump, 8, None).map(|t| vec![t]),
            _ => None,
        }
    }

    fn jump(&self, jump: u32, tables: Option<Vec<Table>>) -> Resolved {
        let instruction = self.trace.code(jump);
        if let Some(name) = exits::import(self.world.image, instruction) {
            if exits::is_hook(name) {
                return Resolved::Unknown { targets: Vec::new() };
            }
            return Resolved::TailCall;
        }
        let Some(tables) = tables else {
            if self.is_tail_call(jump) {
                return Resolved::TailCall;
            }
            return Resolved::Unknown { targets: Vec::new() };
        };
        let mut targets = Vec::new();
        let mut known = true;
        for table in &tables {
            known &= self.read(table, &mut targets).is_some();
        }
        let table = match tables[..] {
            [Table { address, base, load, .. }] => {
                let (jump, load) = (instruction.ip(), self.trace.code(load).ip());
                Some(JumpTable { jump, load, address, base, targets: targets.clone() })
            }
            _ => None,
        };
        targets.sort_unstable();
        targets.dedup();
        if known { Resolved::Table { targets, table } } else { Resolved::Unknown { targets } }
    }

    /// Returns the tables that the value of `register` may be read from.
    fn tables(&self, register: Register, at: u32, depth: u32) -> Option<Vec<Table>> {
        let depth = depth.checked_sub(1)?;
        let mut tables = Vec::new();
        for i in self.trace.definitions(register, at)? {
            let instruction = self.trace.code(i);
            let second = instruction.op1_kind();
            match instruction.mnemonic() {
                Mnemonic::Mov if second == OpKind::Register => {
                    tables.extend(self.tables(instruction.op1_register(), i, depth)?);
                }
                Mnemonic::Mov if second == OpKind::Memory => {
                    tables.push(self.table(i, 8, None)?);
                }
                Mnemonic::Add if second == OpKind::Register => {
                    let pair = (instruction.op0_register(), instruction.op1_register());
                    tables.extend(self.sum(pair, i, depth)?);
                }
                Mnemonic::Add if second == OpKind::Memory => {
                    // `add (%rdx,%rax,8), %rax`: compilers write no distances of 8 bytes.
                    return None;
                }
                Mnemonic::Lea => {
                    let pair = (instruction.memory_base(), instruction.memory_index());
                    let plain = instruction.memory_index_scale() == 1
                        && instruction.memory_displacement64() == 0
                        && pair.0 != Register::None;
                    tables.extend(self.sum(pair, i, depth).filter(|_| plain)?);
                }
                _ => return None,
            }
        }
        (!tables.is_empty()).then_some(tables)
    }

    /// Returns the tables of a sum of a base and a distance, in either order.
    fn sum(&self, pair: (Register, Register), at: u32, depth: u32) -> Option<Vec<Table>> {
        for (base, distance) in [pair, (pair.1, pair.0)] {
            let Some(base) = self.trace.constant(base, at) else { continue };
            if let Some(tables) = self.distances(distance, at, base, depth) {
                return Some(tables);
            }
        }
        None
    }

    /// Returns the tables of distances that the value of `register` may be read from.
    fn distances(&self, register: Register, at: u32, base: u64, depth: u32) -> Option<Vec<Table>> {
        let depth = depth.checked_sub(1)?;
        let mut tables = Vec::new();
        for i in self.trace.definitions(register, at)? {
            let instruction = self.trace.code(i);
            let (mnemonic, second) = (instruction.mnemonic(), instruction.op1_kind());
            match mnemonic {
                Mnemonic::Movsxd | Mnemonic::Mov if second == OpKind::Memory => {
                    if instruction.memory_size().size() != 4 {
                        return None;
                    }
                    tables.push(self.table(i, 4, Some(base))?);
                }
                Mnemonic::Movsxd | Mnemonic::Mov if second == OpKind::Register => {
                    let source = instruction.op1_register();
                    tables.extend(self.distances(source, i, base, depth)?);
                }
                Mnemonic::Cdqe => {
                    tables.extend(self.distances(Register::RAX, i, base, depth)?);
                }
                _ => return None,
            }
        }
        (!tables.is_empty()).then_some(tables)
    }

    /// Returns the table from which the memory operand of instruction `i` reads an entry of `size`
    /// bytes.
    fn table(&self, i: u32, size: u32, base: Option<u64>) -> Option<Table> {
        let instruction = self.trace.code(i);
        if instruction.segment_prefix() != Register::None {
            return None;
        }
        let displacement = instruction.memory_displacement64();
        let (first, second) = (instruction.memory_base(), instruction.memory_index());
        let scale = instruction.memory_index_scale();
        if second == Register::None {
            return None;
        }
        if scale == size {
            let place = match first {
                Register::None => 0,
                register => self.trace.constant(register, i)?,
            };
            let address = place.wrapping_add(displacement);
            return Some(Table { address, base, index: second, at: i, load: i });
        }
        if scale != 1 {
            return None;
        }
        // One register is the table, the other one the index times the size.
        for (place, scaled) in [(first, second), (second, first)] {
            let Some(place) = self.trace.constant(place, i) else { continue };
            let (index, at) = self.scaled(scaled, i, size)?;
            let address = place.wrapping_add(displacement);
            return Some(Table { address, base, index, at, load: i });
        }
        None
    }

    /// Returns the register that was multiplied by `size` to give `register`, and the instruction
    /// before which it holds the index.
    fn scaled(&self, register: Register, at: u32, size: u32) -> Option<(Register, u32)> {
        let [i] = self.trace.definitions(register, at)?[..] else { return None };
        let instruction = self.trace.code(i);
        match instruction.mnemonic() {
            Mnemonic::Lea => {
                let plain = instruction.memory_base() == Register::None
                    && instruction.memory_displacement64() == 0
                    && instruction.memory_index_scale() == size;
                plain.then(|| (instruction.memory_index(), i))
            }
            Mnemonic::Shl if is_immediate(instruction, 1) => {
                let fits = instruction.immediate(1) == u64::from(size.trailing_zeros());
                fits.then(|| (instruction.op0_register(), i))
            }
            _ => None,
        }
    }

    /// Reads the entries of `table`; `None` if it is uncertain which entries are its own.
    fn read(&self, table: &Table, targets: &mut Vec<u64>) -> Option<()> {
        match bound(&self.trace, table.index, table.at) {
            // Every index that passes a comparison has an entry.
            Some(Bound { entries, exact: true }) => {
                for i in 0..entries {
                    targets.push(self.entry(table, i).filter(|target| self.is_code(*target))?);
                }
                Some(())
            }
            Some(Bound { entries, exact: false }) => self.read_on(table, entries, true, targets),
            None if table.base.is_some() => self.read_on(table, MOST_UNBOUNDED, false, targets),
            None => None,
        }
    }

    /// Reads entries up to the first one that is not the table's, at most `most`. The table may
    /// have that many only if it is `bounded` by a width.
    fn read_on(
        &self,
        table: &Table,
        most: u64,
        bounded: bool,
        targets: &mut Vec<u64>,
    ) -> Option<()> {
        let before = targets.len();
        let others = self.world.image.distance_tables();
        let frame = |address: u64| self.world.image.frame_address_at(address);
        let here = frame(self.trace.code(table.at).ip());
        // Where frame descriptions say so, control cannot come to a target by a jump from here.
        let has_another_frame = |target: u64| {
            here.as_ref().is_some_and(|here| frame(target).is_some_and(|f| f != *here))
        };
        for i in 0..most {
            let place = table.place(i)?;
            let begins = self.begins.contains(&place) || others.binary_search(&place).is_ok();
            let target = self.entry(table, i).filter(|target| self.is_code(*target));
            match target {
                _ if i > 0 && begins => break,
                Some(target) if i > 0 && has_another_frame(target) => break,
                Some(target) if self.is_plausible(target) => targets.push(target),
                None => break,
                Some(target) if self.is_elsewhere(target) => break,
                // It is unknown where the table ended, and which of these entries are its own.
                Some(_) => {
                    targets.truncate(before);
                    return None;
                }
            }
        }
        let count = (targets.len() - before) as u64;
        let known = if bounded { count > 0 } else { (2..most).contains(&count) };
        if !known {
            targets.truncate(before);
        }
        known.then_some(())
    }

    /// Returns the target of an entry; `None` if the table does not extend so far, or is writable.
    fn entry(&self, table: &Table, i: u64) -> Option<u64> {
        let (image, place) = (self.world.image, table.place(i)?);
        match table.base {
            _ if !image.is_constant(place, table.size()) => None,
            Some(base) => image.offset32(place).map(|d| base.wrapping_add_signed(i64::from(d))),
            None => image.pointer(place),
        }
    }

    /// Whether a target is within another function, but not at its entry. It may not be a part of
    /// this function that the compiler placed elsewhere and that was taken for a function: nobody
    /// calls or names those.
    fn is_elsewhere(&self, target: u64) -> bool {
        let other = self.world.map.at(target).map(|id| self.world.function(id));
        other.is_some_and(|other| {
            let sure = FUNCTION.iter().any(|source| other.sources.contains(*source));
            sure && other.entry != target && !self.function.contains(target)
        })
    }

    fn is_code(&self, target: u64) -> bool {
        self.function.contains(target) || self.world.image.code_at(target).is_some()
    }

    /// Whether a target is in the function and not in the middle of an instruction.
    fn is_plausible(&self, target: u64) -> bool {
        let walk = self.trace.walk;
        let covered = |begin: u64| {
            let there = walk.index_of(begin).map(|i| &walk.code[i as usize]);
            there.is_some_and(|i| i.next_ip() > target)
        };
        let middle = (1..LONGEST).filter_map(|back| target.checked_sub(back)).any(covered);
        // What begins there may have been read because of this very entry.
        self.function.contains(target) && !middle
    }

    fn is_tail_call(&self, jump: u32) -> bool {
        let instruction = self.trace.code(jump);
        let summed = match instruction.op0_kind() {
            OpKind::Memory => false,
            _ => match self.trace.definitions(instruction.op0_register(), jump) {
                Some(definitions) => definitions.iter().any(|i| {
                    use Mnemonic as M;
                    // Loads, copies and instructions that demangle a pointer compute no sum.
                    let definition = self.trace.code(*i).mnemonic();
                    matches!(definition, M::Add | M::Sub | M::Lea | M::Movsxd | M::Cdqe)
                }),
                // The value is an argument, or the result of a call.
                None => false,
            },
        };
        !summed && self.frame_is_empty(instruction.ip()) && !self.takes_inner_address()
    }

    /// Whether the stack is as at the entry: a frame description says so, or no instruction of the
    /// function moves the stack pointer. In stubs the stack does not matter: they push the index of
    /// the symbol that they resolve.
    fn frame_is_empty(&self, address: u64) -> bool {
        let image = self.world.image;
        if image.code_at(address).is_some_and(|code| code.stub.is_some()) {
            return true;
        }
        image.frame_is_empty_at(address).unwrap_or_else(|| {
            let mut info = InstructionInfoFactory::new();
            let code = &self.trace.walk.code;
            let moves = |i: &&Instruction| exit_of(i) != Exit::Return && !is_call(i);
            !code.iter().filter(moves).any(|i| writes(&mut info, i, Register::RSP))
        })
    }

    /// Whether an address within the function, other than its entry, is taken by the function or
    /// stored in the file.
    fn takes_inner_address(&self) -> bool {
        let inner = |a: u64| a != self.function.entry && self.function.contains(a);
        let taken = |i: &Instruction| match i.mnemonic() {
            Mnemonic::Lea => i.is_ip_rel_memory_operand() && inner(i.memory_displacement64()),
            Mnemonic::Mov => is_immediate(i, 1) && inner(i.immediate(1)),
            _ => false,
        };
        let mut ranges = self.function.ranges.iter();
        self.trace.walk.code.iter().any(taken)
            || ranges.any(|r| self.world.image.points_within(r.clone(), self.function.entry))
    }
}
