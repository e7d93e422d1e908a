//! Unwinding rules of one frame description, instruction by instruction: where the caller's frame
//! and the registers that it expects are (DWARF 5 §6.4).

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use gimli::{CfaRule, EhFrame, Pointer, RegisterRule, UnwindExpression, UnwindSection};

use super::go::Return;
use super::language_data::LanguageData;
use super::{Image, frames};

/// Number of the stack pointer in frame descriptions (System V ABI, figure 3.36).
pub const STACK_POINTER: u16 = 7;
/// Number of the return address.
pub const RETURN_ADDRESS: u16 = 16;

/// Unwinding rules of a range of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Procedure {
    /// The code.
    pub addresses: Range<u64>,
    /// The routine that decides what an exception does here.
    pub personality: Option<Personality>,
    /// Its language-specific data, if there is any that is understood.
    pub language_data: Option<LanguageData>,
    /// Whether it is code that signal handlers return to.
    pub signal: bool,
    /// Addresses from which rows apply, ascending; each up to the next one.
    pub rows: Vec<(u64, Row)>,
}

/// The address of a personality routine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Personality {
    /// The routine itself.
    At(u64),
    /// A word that holds the address of the routine.
    Stored(u64),
}

/// Unwinding rules at an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The rule of the canonical frame address, which is the stack pointer in the caller.
    pub cfa: Cfa,
    /// Rules of registers, by ascending number; a register without a rule has the value that it
    /// has in the caller.
    pub rules: Vec<(u16, Rule)>,
    /// Bytes of arguments that the function has pushed, which a landing pad does not expect.
    pub arguments: u64,
}

/// Where the canonical frame address is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cfa {
    /// A register plus an offset in bytes.
    Register(u16, i64),
    /// The result of a DWARF expression.
    Expression(Vec<u8>),
}

/// Where the caller's value of a register is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Nowhere.
    Undefined,
    /// In memory, at this offset from the canonical frame address.
    Offset(i64),
    /// Nowhere in memory: the value is the canonical frame address plus this offset.
    ValueOffset(i64),
    /// In another register.
    Register(u16),
    /// In memory, at the address that a DWARF expression computes.
    Expression(Vec<u8>),
    /// Nowhere in memory: the value is the result of a DWARF expression.
    ValueExpression(Vec<u8>),
}

impl Row {
    /// Returns the row that holds at the first instruction of a called function.
    pub fn at_entry() -> Self {
        Self {
            cfa: Cfa::Register(STACK_POINTER, 8),
            rules: vec![(RETURN_ADDRESS, Rule::Offset(-8))],
            arguments: 0,
        }
    }
}

impl Procedure {
    /// Returns the row at an address.
    pub fn row(&self, address: u64) -> Option<&Row> {
        let next = self.rows.partition_point(|(begin, _)| *begin <= address);
        self.rows[..next].last().map(|(_, row)| row).filter(|_| self.addresses.contains(&address))
    }

    /// Returns the description for a program in which the file is mapped `bias` bytes from its
    /// addresses.
    #[must_use]
    pub fn moved(self, bias: u64) -> Self {
        let to = |address: u64| address.wrapping_add(bias);
        Self {
            addresses: to(self.addresses.start)..to(self.addresses.end),
            personality: self.personality.map(|personality| match personality {
                Personality::At(address) => Personality::At(to(address)),
                Personality::Stored(address) => Personality::Stored(to(address)),
            }),
            language_data: self.language_data.map(|data| data.moved(bias)),
            rows: self.rows.into_iter().map(|(begin, row)| (to(begin), row)).collect(),
            ..self
        }
    }
}

thread_local! {
    /// Room for the rules of a row, which takes longer to make than most descriptions to read.
    static CONTEXT: RefCell<gimli::UnwindContext<usize>> = RefCell::new(gimli::UnwindContext::new());
}

impl Image {
    /// Returns the unwinding rules of the code around `address`. `None` if it has none, or rules
    /// that cannot be expressed for other addresses.
    pub fn procedure_at(&self, address: u64) -> Option<Procedure> {
        self.procedure_until(address, u64::MAX)
    }

    /// Returns the unwinding rules of the code around `address`, as far as they are before `end`.
    pub fn procedure_until(&self, address: u64, end: u64) -> Option<Procedure> {
        let frame = self.frame_at(address)?;
        let found = self.rules_of(frame, end)?;
        let language_data = frame.language_data.and_then(|address| {
            let part = &frame.addresses;
            LanguageData::read(self, address, part.start, part.end - part.start)
        });
        Some(Procedure { language_data, ..found })
    }

    /// Returns where the canonical frame address is before the instruction at `address`, if a frame
    /// description says.
    pub(crate) fn frame_address_at(&self, address: u64) -> Option<Cfa> {
        let found = self.rules_of(self.frame_at(address)?, u64::MAX)?;
        found.row(address).map(|row| row.cfa.clone())
    }

    /// Returns the unwinding rules of a frame description as far as they are before `end`, without
    /// language-specific data.
    fn rules_of(&self, frame: &frames::Frame, end: u64) -> Option<Procedure> {
        let section = self.frames.section();
        let length = usize::try_from(section.end - section.start).ok()?;
        self.frames.procedure(self.bytes(section.start, length)?, frame, end)
    }

    /// Returns the unwinding rules of all code, by ascending address, without language-specific
    /// data; without those of code that [`procedure_at`](Self::procedure_at) returns `None` for.
    pub fn procedures(&self) -> impl IndexedParallelIterator<Item = Option<Procedure>> + '_ {
        let section = self.frames.section();
        let length = usize::try_from(section.end - section.start).unwrap_or(0);
        let bytes = self.bytes(section.start, length).unwrap_or_default();
        self.frames().par_iter().map(|frame| self.frames.procedure(bytes, frame, u64::MAX))
    }

    /// Returns the unwinding rules of Go's functions, which have no frame descriptions, from Go's
    /// own table. Functions that set the stack pointer have none.
    pub fn go_procedures(&self) -> impl Iterator<Item = Procedure> {
        let row = |(at, returns)| match returns {
            Return::Above(bytes) => {
                let cfa = Cfa::Register(STACK_POINTER, bytes + 8);
                (at, Row { cfa, ..Row::at_entry() })
            }
            Return::Nowhere => {
                let rules = vec![(RETURN_ADDRESS, Rule::Undefined)];
                (at, Row { rules, ..Row::at_entry() })
            }
        };
        self.go.returns(&self.data).into_iter().map(move |(addresses, returns)| Procedure {
            addresses,
            personality: None,
            language_data: None,
            signal: false,
            rows: returns.into_iter().map(row).collect(),
        })
    }
}

impl frames::Frames {
    /// Reads a frame description, without the language-specific data; `bytes` are those of the
    /// section.
    fn procedure(&self, bytes: &[u8], frame: &super::Frame, end: u64) -> Option<Procedure> {
        let table = EhFrame::new(bytes, gimli::LittleEndian);
        let bases = self.bases();
        let at = gimli::EhFrameOffset(frame.offset());
        let fde = table.fde_from_offset(bases, at, EhFrame::cie_from_offset).ok()?;
        if fde.cie().return_address_register().0 != RETURN_ADDRESS {
            return None;
        }
        let rows = CONTEXT.with_borrow_mut(|context| {
            let mut read = fde.rows(&table, bases, context).ok()?;
            let mut rows = Vec::new();
            while let Some(found) = read.next_row().ok()?.filter(|one| one.start_address() < end) {
                rows.push((found.start_address(), row(&table, found)?));
            }
            Some(rows)
        })?;
        let personality = match fde.personality() {
            None | Some(Pointer::Direct(0)) => None,
            Some(Pointer::Direct(address)) => Some(Personality::At(address)),
            Some(Pointer::Indirect(address)) => Some(Personality::Stored(address)),
        };
        Some(Procedure {
            addresses: frame.addresses.start..frame.addresses.end.min(end),
            personality,
            language_data: None,
            signal: fde.is_signal_trampoline(),
            rows,
        })
    }
}

type Table<'a> = EhFrame<gimli::EndianSlice<'a, gimli::LittleEndian>>;

fn row(table: &Table<'_>, found: &gimli::UnwindTableRow<usize>) -> Option<Row> {
    let expression =
        |expression: &UnwindExpression<usize>| Some(expression.get(table).ok()?.0.slice().to_vec());
    let cfa = match found.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0, *offset),
        CfaRule::Expression(one) => Cfa::Expression(expression(one)?),
    };
    let mut rules = Vec::with_capacity(found.registers().count());
    for (register, rule) in found.registers() {
        let rule = match rule {
            RegisterRule::Undefined => Rule::Undefined,
            RegisterRule::SameValue => continue,
            RegisterRule::Offset(offset) => Rule::Offset(*offset),
            RegisterRule::ValOffset(offset) => Rule::ValueOffset(*offset),
            RegisterRule::Register(other) => Rule::Register(other.0),
            RegisterRule::Expression(one) => Rule::Expression(expression(one)?),
            RegisterRule::ValExpression(one) => Rule::ValueExpression(expression(one)?),
            _ => return None,
        };
        rules.push((register.0, rule));
    }
    rules.sort_by_key(|(register, _)| *register);
    Some(Row { cfa, rules, arguments: found.saved_args_size() })
}
