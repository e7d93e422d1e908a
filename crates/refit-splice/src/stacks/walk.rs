//! Walking a stack outside of the program.

use super::row::{Kind, Row, SAVED_BY_SIGNAL};

/// Bytes of a word.
const WORD: u64 = 8;

/// Where a thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The program counter.
    pub counter: u64,
    /// The stack pointer.
    pub pointer: u64,
    /// The frame pointer, or whatever the program uses its register for.
    pub frame: u64,
}

/// Why a walk has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// At the outermost frame.
    Whole,
    /// At the number of frames that was allowed.
    Deep,
    /// At memory that cannot be read, such as the end of a copy.
    Cut,
    /// At a frame from which it is not known how to go on.
    Unknown,
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkedFrame {
    /// The address of the instruction, or of the last byte of the call.
    pub address: u64,
    /// Its stack pointer.
    pub pointer: u64,
    /// Where the return address of the call is, if it is one.
    pub slot: Option<u64>,
}

/// Walks a stack from where its thread stands, and tells of at most `depth` frames, the innermost
/// first.
///
/// `word` reads a word of the stack, and `row` returns the unwinding rules at an address.
pub fn walk(
    at: Position,
    word: impl Fn(u64) -> Option<u64>,
    depth: usize,
    mut row: impl FnMut(u64) -> Row,
    mut tell: impl FnMut(WalkedFrame),
) -> Walked {
    let (mut at, mut slot) = (at, None);
    for _ in 0..depth {
        tell(WalkedFrame { address: at.counter, pointer: at.pointer, slot });
        let row = row(at.counter);
        match row.kind {
            Kind::End => return Walked::Whole,
            Kind::Unknown => return Walked::Unknown,
            _ => {}
        }
        at = match caller(at, row, &word) {
            // A handler can have a stack of its own; otherwise callers are above, or a rule is
            // wrong.
            Some(next) if next.pointer > at.pointer || row.kind == Kind::Signal => next,
            Some(_) => return Walked::Unknown,
            None => return Walked::Cut,
        };
        if at.counter == 0 {
            return Walked::Whole;
        }
        let calls = row.kind != Kind::Signal;
        slot = calls.then(|| at.pointer.wrapping_sub(WORD));
        if calls {
            // A call can be the last instruction of its function.
            at.counter -= 1;
        }
    }
    Walked::Deep
}

/// Returns the word at an address of a copy of a stack that begins at `base`.
pub fn word_of(copy: &[u8], base: u64, address: u64) -> Option<u64> {
    let offset = usize::try_from(address.checked_sub(base)?).ok()?;
    copy.get(offset..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Returns where the caller of a frame stands: its program counter is the return address. `None` if
/// a word cannot be read.
fn caller(at: Position, row: Row, word: impl Fn(u64) -> Option<u64>) -> Option<Position> {
    let words = |base: u64, count: i16| base.wrapping_add_signed(i64::from(count) * WORD as i64);
    let cfa = match row.kind {
        Kind::StackPointer => words(at.pointer, row.cfa),
        Kind::FramePointer => words(at.frame, row.cfa),
        Kind::Stored => word(words(at.frame, row.cfa))?,
        Kind::Signal => {
            let saved = |offset| word(at.pointer.wrapping_add_signed(offset));
            let [frame, pointer, counter] = SAVED_BY_SIGNAL.map(saved);
            return Some(Position { counter: counter?, pointer: pointer?, frame: frame? });
        }
        Kind::End | Kind::Unknown => return None,
    };
    let frame = match (row.kind, row.frame_pointer) {
        (Kind::Stored, _) => word(at.frame)?,
        (_, 0) => at.frame,
        (_, saved) => word(words(cfa, saved))?,
    };
    Some(Position { counter: word(cfa.wrapping_sub(WORD))?, pointer: cfa, frame })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7000;

    fn row(kind: Kind, cfa: i16, frame_pointer: i16) -> Row {
        Row { kind, cfa, frame_pointer }
    }

    /// Walks a stack of these words by rows that depend on the upper half of the address.
    fn walked(words: &[u64], frame: u64, depth: usize) -> (Vec<u64>, Walked) {
        let top: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let at = Position { counter: 0x1000, pointer: BASE, frame };
        let mut frames = Vec::new();
        let word = |address| word_of(&top, BASE, address);
        let end = walk(
            at,
            word,
            depth,
            |address| match address >> 12 {
                1 => row(Kind::StackPointer, 2, 0),
                2 => row(Kind::StackPointer, 2, -2),
                3 => row(Kind::FramePointer, 2, -2),
                4 => row(Kind::Stored, -1, 0),
                5 => row(Kind::Signal, 0, 0),
                6 => row(Kind::End, 0, 0),
                7 => row(Kind::StackPointer, 0, 0),
                _ => Row::UNKNOWN,
            },
            |frame| {
                // The return address is where it is said to be.
                let returned = frame.slot.and_then(word);
                assert!(returned.is_none_or(|to| to == frame.address + 1), "{frame:x?}");
                frames.push(frame.address);
            },
        );
        (frames, end)
    }

    #[test]
    fn each_kind_of_row_leads_to_the_caller() {
        let slot = |index: u64| BASE + index * 8;
        let words = [
            9,
            0x2002,  // to a function that has saved the frame pointer
            slot(5), // which points to the next frame
            0x3003,  // to a function with a frame pointer
            9,
            slot(9),
            0x4004, // to one that has aligned its stack
            9,
            slot(12), // where its frame was
            0,        // its caller's frame pointer
            9,
            0x6006, // the outermost frame
        ];
        let (frames, end) = walked(&words, 0, 100);
        assert_eq!(frames, [0x1000, 0x2001, 0x3002, 0x4003, 0x6005]);
        assert_eq!(end, Walked::Whole);
        assert_eq!(walked(&words, 0, 2), (frames[..2].to_vec(), Walked::Deep));
        for length in 0..words.len() {
            let (part, end) = walked(&words[..length], 0, 100);
            assert!(end == Walked::Cut && frames.starts_with(&part), "{length}: {part:x?}");
        }
    }

    #[test]
    fn a_signal_leads_to_the_instruction_that_it_interrupted() {
        let mut words = [0; 40];
        words[1] = 0x5001;
        let saved = |offset: i64| 2 + (offset / 8) as usize;
        let [frame, pointer, counter] = SAVED_BY_SIGNAL.map(saved);
        (words[frame], words[pointer], words[counter]) = (7, BASE + 30 * 8, 0x1fff);
        words[31] = 0x6001;
        // Its address is that of the instruction, not of the byte before.
        assert_eq!(walked(&words, 0, 100).0, [0x1000, 0x5000, 0x1fff, 0x6000]);
    }

    #[test]
    fn a_walk_ends_where_the_stack_does_not_grow_or_nothing_is_known() {
        assert_eq!(walked(&[9, 0x7001], 0, 100), (vec![0x1000, 0x7000], Walked::Unknown));
        assert_eq!(walked(&[9, 0x8001], 0, 100), (vec![0x1000, 0x8000], Walked::Unknown));
        assert_eq!(walked(&[9, 0], 0, 100), (vec![0x1000], Walked::Whole));
        // A frame pointer below the stack.
        assert_eq!(walked(&[9, 0x3001], 8, 100), (vec![0x1000, 0x3000], Walked::Cut));
    }
}
