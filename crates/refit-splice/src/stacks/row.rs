//! A row of the table by which snippets walk stacks: how to get from a frame to its caller's, in
//! eight bytes.
//!
//! Compilers use few of the rules that DWARF has. What a row cannot express is
//! [`Kind::Unknown`]: a walk ends there, and says so.

use refit_analysis::image::procedure::{Cfa, RETURN_ADDRESS, Rule, STACK_POINTER};
use refit_analysis::image::{Image, Procedure, procedure};

use crate::process::signal_frames::PROGRAM_COUNTER;

/// Number of the frame pointer in frame descriptions (System V ABI, figure 3.36).
const FRAME_POINTER: u16 = 6;
/// Bytes of a word, the unit of offsets in a row.
const WORD: i64 = 8;

/// Rules of expressions (DWARF 5 §2.5.1): the word at an offset from the frame pointer, as GCC
/// describes functions that align their stack; the frame pointer itself; and the stack pointer that
/// the kernel saved (`rt_sigframe`, Linux `arch/x86/include/asm/sigframe.h`).
const DEREFERENCE: u8 = 0x06;
const BASE_FRAME_POINTER: u8 = 0x76;
const SAVED_AT_FRAME_POINTER: [u8; 2] = [BASE_FRAME_POINTER, 0];
const SAVED_BY_KERNEL: [u8; 4] = [0x77, 0xa0, 0x01, DEREFERENCE];

/// Offsets in `struct rt_sigframe`, after the return address of the handler: the frame pointer, the
/// stack pointer and the program counter. The last two are the 16th and 17th of the registers, the
/// first is the 11th.
pub(crate) const SAVED_BY_SIGNAL: [i64; 3] = {
    let counter = PROGRAM_COUNTER as i64 - 8;
    [counter - 6 * 8, counter - 8, counter]
};

/// Where the canonical frame address (CFA) is, or why a walk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The rules are unknown.
    Unknown = 0,
    /// The outermost frame.
    End = 1,
    /// At an offset from the stack pointer.
    StackPointer = 2,
    /// At an offset from the frame pointer.
    FramePointer = 3,
    /// In memory, at an offset from the frame pointer, which points to the caller's.
    Stored = 4,
    /// In a frame that the kernel has made for a signal handler.
    Signal = 5,
}

/// The unwinding rules at an instruction, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub(crate) kind: Kind,
    /// Offset of the CFA, in words.
    pub(super) cfa: i16,
    /// Offset of the caller's frame pointer from the CFA, in words; 0 if it is still in its
    /// register.
    pub(super) frame_pointer: i16,
}

impl Row {
    /// Offsets of the parts of a row in bytes; the first two are the distance of the code from the
    /// beginning of its block.
    pub(crate) const KIND: i64 = 2;
    pub(crate) const CFA: i64 = 4;
    pub(crate) const FRAME_POINTER: i64 = 6;

    /// Rules that are not known.
    pub const UNKNOWN: Self = Self::bare(Kind::Unknown);

    /// Returns a row of a kind that has no offsets.
    const fn bare(kind: Kind) -> Self {
        Self { kind, cfa: 0, frame_pointer: 0 }
    }

    /// Returns the row at an address of a file; `None` if no frame description has the address.
    pub fn at(image: &Image, address: u64) -> Option<Self> {
        let found = image.procedure_at(address)?;
        Some(found.row(address).map_or(Self::UNKNOWN, |row| Self::new(&found, row)))
    }

    /// Returns the row of an instruction with these rules.
    pub fn new(procedure: &Procedure, rules: &procedure::Row) -> Self {
        Self::known(procedure, rules).unwrap_or(Self::UNKNOWN)
    }

    fn known(procedure: &Procedure, rules: &procedure::Row) -> Option<Self> {
        let rule = |number: u16| {
            let found = rules.rules.iter().find(|(register, _)| *register == number);
            found.map(|(_, rule)| rule)
        };
        if procedure.signal {
            let kernel = rules.cfa == Cfa::Expression(SAVED_BY_KERNEL.to_vec());
            return kernel.then_some(Self::bare(Kind::Signal));
        }
        match rule(RETURN_ADDRESS)? {
            Rule::Undefined => return Some(Self::bare(Kind::End)),
            Rule::Offset(-8) => {}
            _ => return None,
        }
        let (kind, bytes) = match &rules.cfa {
            Cfa::Register(STACK_POINTER, bytes) => (Kind::StackPointer, *bytes),
            Cfa::Register(FRAME_POINTER, bytes) => (Kind::FramePointer, *bytes),
            Cfa::Register(..) => return None,
            Cfa::Expression(expression) => (Kind::Stored, stored_at(expression)?),
        };
        let saved = match (kind, rule(FRAME_POINTER)) {
            (Kind::Stored, Some(Rule::Expression(at))) if *at == SAVED_AT_FRAME_POINTER => 0,
            (Kind::Stored, _) => return None,
            (_, None | Some(Rule::Undefined)) => 0,
            // Below the stack pointer: the register has been restored.
            (Kind::StackPointer, Some(Rule::Offset(at))) if bytes + at < 0 => 0,
            (Kind::StackPointer, Some(Rule::Offset(at))) if *at < 0 => *at,
            // At the frame pointer or above, where the walk has checked that there is a stack.
            (Kind::FramePointer, Some(Rule::Offset(at))) if *at < 0 && bytes + at >= 0 => *at,
            _ => return None,
        };
        let sound = if kind == Kind::Stored { bytes <= 0 } else { bytes >= WORD };
        let words = |bytes: i64| i16::try_from(bytes / WORD).ok().filter(|_| bytes % WORD == 0);
        let row = Self { kind, cfa: words(bytes)?, frame_pointer: words(saved)? };
        sound.then_some(row)
    }

    /// Encodes the row for code that begins at this distance from the beginning of its block.
    pub(crate) fn encode(self, from: u16) -> u64 {
        let words = u64::from(self.cfa.cast_unsigned()) << 32
            | u64::from(self.frame_pointer.cast_unsigned()) << 48;
        words | u64::from(self.kind as u8) << 16 | u64::from(from)
    }
}

/// Returns the offset from the frame pointer of the word that an expression loads.
fn stored_at(expression: &[u8]) -> Option<i64> {
    match *expression {
        // Offsets up to 63 have one byte (LEB128); the others two.
        [BASE_FRAME_POINTER, low, DEREFERENCE] if low < 0x80 => {
            Some(i64::from((low << 1).cast_signed() >> 1))
        }
        [BASE_FRAME_POINTER, low, high, DEREFERENCE] if low >= 0x80 && high < 0x80 => {
            let high = i64::from((high << 1).cast_signed() >> 1);
            Some(high << 7 | i64::from(low & 0x7f))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cfa: Cfa, rules: &[(u16, Rule)], signal: bool) -> Row {
        let rules = procedure::Row { cfa, rules: rules.to_vec(), arguments: 0 };
        let procedure = Procedure {
            addresses: 0..1,
            personality: None,
            language_data: None,
            signal,
            rows: Vec::new(),
        };
        Row::new(&procedure, &rules)
    }

    #[test]
    fn the_rules_of_compilers_are_expressed() {
        let at = |bytes| (RETURN_ADDRESS, Rule::Offset(bytes));
        let saved = |bytes| (FRAME_POINTER, Rule::Offset(bytes));
        let known = |kind, cfa, frame_pointer| Row { kind, cfa, frame_pointer };
        let stack = |bytes| Cfa::Register(STACK_POINTER, bytes);
        assert_eq!(row(stack(8), &[at(-8)], false), known(Kind::StackPointer, 1, 0));
        assert_eq!(row(stack(48), &[saved(-16), at(-8)], false), known(Kind::StackPointer, 6, -2));
        // After `pop rbp`.
        assert_eq!(row(stack(8), &[saved(-16), at(-8)], false), known(Kind::StackPointer, 1, 0));
        let frame = Cfa::Register(FRAME_POINTER, 16);
        assert_eq!(row(frame, &[saved(-16), at(-8)], false), known(Kind::FramePointer, 2, -2));
        let aligned = |at: &[u8]| Cfa::Expression([&[0x76], at, &[0x06]].concat());
        let own = (FRAME_POINTER, Rule::Expression(vec![0x76, 0]));
        assert_eq!(
            row(aligned(&[0x78]), &[own.clone(), at(-8)], false),
            known(Kind::Stored, -1, 0)
        );
        assert_eq!(row(aligned(&[0x90, 0x7f]), &[own, at(-8)], false), known(Kind::Stored, -14, 0));
        let kernel = Cfa::Expression(SAVED_BY_KERNEL.to_vec());
        assert_eq!(row(kernel.clone(), &[], true), known(Kind::Signal, 0, 0));
        let outermost = [(RETURN_ADDRESS, Rule::Undefined)];
        assert_eq!(row(stack(8), &outermost, false), known(Kind::End, 0, 0));
    }

    #[test]
    fn other_rules_are_unknown() {
        let at = |bytes| (RETURN_ADDRESS, Rule::Offset(bytes));
        let stack = |bytes| Cfa::Register(STACK_POINTER, bytes);
        for (cfa, rules) in [
            (stack(12), vec![at(-8)]),
            (stack(0), vec![at(-8)]),
            (stack(1 << 40), vec![at(-8)]),
            (stack(16), vec![at(-16)]),
            (stack(16), vec![]),
            (stack(16), vec![(FRAME_POINTER, Rule::Register(3)), at(-8)]),
            (Cfa::Register(10, 0), vec![at(-8)]),
            // Below the frame pointer, where nothing is known of the stack.
            (Cfa::Register(FRAME_POINTER, 16), vec![(FRAME_POINTER, Rule::Offset(-24)), at(-8)]),
            (Cfa::Expression(vec![0x76, 0x10, 0x06]), vec![at(-8)]),
            (Cfa::Expression(SAVED_BY_KERNEL.to_vec()), vec![at(-8)]),
        ] {
            assert_eq!(row(cfa.clone(), &rules, false), Row::UNKNOWN, "{cfa:?} {rules:?}");
        }
    }
}
