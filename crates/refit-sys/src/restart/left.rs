//! The rest of a call that a stop has cut short.

use super::registers::arguments;
use super::table::{All, Pieces, Rest, Restart, of};
use crate::trace::Registers;

/// A system call: its number and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The number of the call.
    pub number: u64,
    /// The arguments of the call.
    pub arguments: [u64; 6],
}

/// The rest of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The amount done, in bytes or the unit that the call counts in.
    pub done: u64,
    /// The call that continues.
    pub next: Call,
    /// The rest after that call, once it has done all of its part.
    pub behind: Option<Behind>,
}

/// The rest after the first of several pieces; for a receiving call, only the next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The number of bytes that the call before this one has to transfer.
    pub after: u64,
    /// The call that transfers the rest, if all of those were transferred.
    pub call: Call,
    /// The `struct msghdr` whose address becomes the call's second argument, if it takes one.
    pub header: Option<[u64; HEADER]>,
}

/// Words of a `struct msghdr`.
pub const HEADER: usize = 7;
/// The kernel's maximum number of pieces in a call.
const UIO_MAXIOV: u64 = 1024;

/// Returns the rest of the call that a thread has just left and of which part was done. `None`: the
/// call is complete, or is of a kind that does not continue. `word` reads eight bytes of the
/// thread's memory.
pub fn left(registers: &Registers, word: impl Fn(u64) -> Option<u64>) -> Option<Left> {
    let call = Call { number: registers.orig_rax, arguments: arguments(registers) };
    let done = registers.rax;
    if done.cast_signed() <= 0 {
        return None;
    }
    match of(call.number)? {
        Restart::Kernel | Restart::Again(_) => None,
        Restart::Short(rest) => simple(call, done, rest, &word),
        Restart::Pieces(pieces) => several(call, done, pieces, &word),
    }
}

fn simple(call: Call, done: u64, rest: Rest, word: &dyn Fn(u64) -> Option<u64>) -> Option<Left> {
    let mut arguments = call.arguments;
    let goes_on = match rest.all {
        All::Always => true,
        All::WaitAll(flags) => arguments[flags] & libc::MSG_WAITALL as u64 != 0,
        All::Messages(flags) => {
            arguments[flags] & libc::MSG_WAITFORONE as u64 == 0 && arguments[flags + 1] == 0
        }
    };
    let whole = arguments[rest.left];
    // The kernel looks at 32 bits of some counts; more than those hold was not asked for.
    let least = if rest.unit == 1 && call.number != libc::SYS_io_uring_enter as u64 {
        done < whole
    } else {
        done < whole & 0xffff_ffff || is_waiting(call)
    };
    if !goes_on || !least {
        return None;
    }
    if call.number == libc::SYS_sendmmsg as u64 && !is_sent(arguments[1], done, word)? {
        return None;
    }
    arguments[rest.left] = whole.saturating_sub(done);
    if let Some(address) = rest.address {
        arguments[address] = arguments[address].wrapping_add(done.wrapping_mul(rest.unit));
    }
    if let Some(position) = rest.position {
        arguments[position] = arguments[position].wrapping_add(done);
    }
    Some(Left { done, next: Call { arguments, ..call }, behind: None })
}

/// Returns whether the call is an `io_uring_enter` that waits for completions: it returns the
/// number of requests it took, whether it has waited or not.
fn is_waiting(call: Call) -> bool {
    /// `IORING_ENTER_GETEVENTS` from `linux/io_uring.h`.
    const GET_EVENTS: u64 = 1;
    let waits = call.arguments[3] & GET_EVENTS != 0 && call.arguments[2] & 0xffff_ffff != 0;
    call.number == libc::SYS_io_uring_enter as u64 && waits
}

/// Returns whether the last of the messages that were done (`struct mmsghdr`) was sent whole. The
/// kernel also counts a message that was cut short; a message sent next would then take the place
/// of its end.
fn is_sent(messages: u64, done: u64, word: &dyn Fn(u64) -> Option<u64>) -> Option<bool> {
    let last = messages.checked_add(done.checked_sub(1)?.checked_mul(64)?)?;
    let (array, count) = (word(last.checked_add(16)?)?, word(last.checked_add(24)?)?);
    let mut whole = 0_u64;
    for at in 0..count.min(UIO_MAXIOV) {
        whole = whole.checked_add(word(array.checked_add(16 * at + 8)?)?)?;
    }
    // Its length follows the message, in 32 bits.
    Some(word(last.checked_add(56)?)? & 0xffff_ffff == whole)
}

fn several(
    call: Call,
    done: u64,
    pieces: Pieces,
    word: &dyn Fn(u64) -> Option<u64>,
) -> Option<Left> {
    let [descriptor, second, third, position, _, flags] = call.arguments;
    let header = match pieces {
        Pieces::Array => None,
        Pieces::ArrayAt => {
            // A position means a file, and flags mean a call that `write` cannot replace.
            if position != u64::MAX || flags & 0xffff_ffff != 0 {
                return None;
            }
            None
        }
        Pieces::Sent | Pieces::Received => Some(read_header(second, word)?),
    };
    if let (Pieces::Received, Some(header)) = (pieces, header)
        && (third & libc::MSG_WAITALL as u64 == 0 || header[CONTROL] != 0)
    {
        return None;
    }
    let (array, count) = header.map_or((second, third), |header| (header[ARRAY], header[COUNT]));
    let mut skipped = done;
    for at in 0..count.min(UIO_MAXIOV) {
        let piece = array.checked_add(16 * at)?;
        let (base, length) = (word(piece)?, word(piece.checked_add(8)?)?);
        if skipped >= length {
            skipped -= length;
            continue;
        }
        let (base, length) = (base.wrapping_add(skipped), length - skipped);
        let next = match (pieces, header) {
            (Pieces::Array | Pieces::ArrayAt, _) if skipped == 0 => {
                let [_, _, _, rest @ ..] = call.arguments;
                let arguments = with(descriptor, piece, count - at, rest);
                return Some(Left { done, next: Call { arguments, ..call }, behind: None });
            }
            (Pieces::Sent, Some(header)) => {
                // The kernel looks at 32 bits of the name's length.
                let name = [third, header[NAME], header[NAME_LENGTH] & 0xffff_ffff];
                Call {
                    number: libc::SYS_sendto as u64,
                    arguments: with(descriptor, base, length, name),
                }
            }
            (Pieces::Received, _) => {
                let arguments = with(descriptor, base, length, [third, 0, 0]);
                Call { number: libc::SYS_recvfrom as u64, arguments }
            }
            _ => {
                let [_, _, _, rest @ ..] = call.arguments;
                Call {
                    number: libc::SYS_write as u64,
                    arguments: with(descriptor, base, length, rest),
                }
            }
        };
        let behind = match pieces {
            Pieces::Received => {
                next_piece(array, at + 1..count.min(UIO_MAXIOV), word).map(|(base, more)| {
                    // The kernel would write to a header, which is where the program does not
                    // expect it, so only one more piece is received.
                    let arguments = with(descriptor, base, more, [third, 0, 0]);
                    let call = Call { number: libc::SYS_recvfrom as u64, arguments };
                    Behind { after: length, call, header: None }
                })
            }
            _ => {
                let more = (count - at).checked_sub(1).filter(|more| *more > 0);
                more.map(|more| behind(call, (piece + 16, more), length, header))
            }
        };
        return Some(Left { done, next, behind });
    }
    None
}

/// Indices of words in a `struct msghdr`.
const NAME: usize = 0;
const NAME_LENGTH: usize = 1;
const ARRAY: usize = 2;
const COUNT: usize = 3;
const CONTROL: usize = 4;

fn read_header(at: u64, word: &dyn Fn(u64) -> Option<u64>) -> Option<[u64; HEADER]> {
    let mut header = [0; HEADER];
    for (place, number) in header.iter_mut().zip(0..) {
        *place = word(at.checked_add(8 * number)?)?;
    }
    Some(header)
}

/// Returns address and length of the first of these pieces that is not empty.
fn next_piece(
    array: u64,
    mut numbers: std::ops::Range<u64>,
    word: &dyn Fn(u64) -> Option<u64>,
) -> Option<(u64, u64)> {
    numbers.find_map(|at| {
        let piece = array.checked_add(16 * at)?;
        let (base, length) = (word(piece)?, word(piece.checked_add(8)?)?);
        (length > 0).then_some((base, length))
    })
}

/// Returns the call that transfers the `count` pieces at `array`, after the first one.
fn behind(
    call: Call,
    (array, count): (u64, u64),
    after: u64,
    header: Option<[u64; HEADER]>,
) -> Behind {
    let [first, second, third, rest @ ..] = call.arguments;
    match header {
        None => {
            let arguments = with(first, array, count, rest);
            Behind { after, call: Call { arguments, ..call }, header: None }
        }
        Some([name, name_length, ..]) => {
            // The first part has sent the control messages.
            let header = [name, name_length, array, count, 0, 0, 0];
            let arguments = with(first, second, third, rest);
            Behind { after, call: Call { arguments, ..call }, header: Some(header) }
        }
    }
}

fn with(first: u64, second: u64, third: u64, [fourth, fifth, sixth]: [u64; 3]) -> [u64; 6] {
    [first, second, third, fourth, fifth, sixth]
}

#[cfg(test)]
mod tests {
    use super::super::registers::tests::stopped;
    use super::*;

    fn nothing(_: u64) -> Option<u64> {
        None
    }

    /// Returns the arguments of the next call, and the amount done.
    fn rest(registers: &Registers) -> Option<([u64; 6], u64)> {
        left(registers, nothing).map(|left| (left.next.arguments, left.done))
    }

    #[test]
    fn the_rest_is_what_was_not_done() {
        let write = stopped(libc::SYS_write, 10, [1, 0x1000, 30, 0, 0, 0]);
        assert_eq!(rest(&write), Some(([1, 0x100a, 20, 0, 0, 0], 10)));
        assert_eq!(rest(&stopped(libc::SYS_write, 30, [1, 0x1000, 30, 0, 0, 0])), None);
        assert_eq!(rest(&stopped(libc::SYS_write, -11, [1, 0x1000, 30, 0, 0, 0])), None);
        assert_eq!(rest(&stopped(libc::SYS_read, 10, [1, 0x1000, 30, 0, 0, 0])), None);
        let receive = |flags| stopped(libc::SYS_recvfrom, 10, [1, 0x1000, 30, flags, 0, 0]);
        assert_eq!(rest(&receive(0)), None);
        let all = rest(&receive(libc::MSG_WAITALL as u64)).expect("it goes on");
        assert_eq!((all.0[1], all.0[2], all.1), (0x100a, 20, 10));
        let enter = stopped(libc::SYS_io_uring_enter, 3, [9, 3, 2, 1, 0, 0]);
        assert_eq!(rest(&enter), Some(([9, 0, 2, 1, 0, 0], 3)), "it has not waited");
        let submit = stopped(libc::SYS_io_uring_enter, 3, [9, 3, 0, 0, 0, 0]);
        assert_eq!(rest(&submit), None);
    }

    #[test]
    fn messages_go_on_behind_one_that_was_sent_whole() {
        let messages = stopped(libc::SYS_sendmmsg, 2, [1, 0x1000, 5, 0, 0, 0]);
        // The second message: one piece of 9 bytes, of which so many were sent.
        let word = |sent: u64| {
            move |at: u64| match at {
                0x1050 => Some(0x2000),
                0x1058 => Some(1),
                0x2008 => Some(9),
                0x1078 => Some(sent),
                _ => None,
            }
        };
        let found = left(&messages, word(9)).expect("it goes on");
        assert_eq!((found.next.arguments, found.done), ([1, 0x1080, 3, 0, 0, 0], 2));
        assert_eq!(left(&messages, word(4)), None, "its end is missing");
    }

    /// Pieces of 10, 0, 20 and 30 bytes at 0x1000, 0x2000, …; a message of them at 0x9000.
    fn memory(at: u64) -> Option<u64> {
        const PIECES: u64 = 0x8000;
        match at {
            PIECES..0x8040 if at.is_multiple_of(16) => Some(((at - PIECES) / 16 + 1) * 0x1000),
            PIECES..0x8040 => Some([10, 0, 20, 30][(at - PIECES) as usize / 16]),
            0x9000 => Some(0x7000),
            0x9008 => Some(16),
            0x9010 => Some(PIECES),
            0x9018 => Some(4),
            0x9020..0x9038 => Some(0),
            _ => None,
        }
    }

    #[test]
    fn of_several_pieces_the_one_that_was_begun_comes_first() {
        let write = |done| stopped(libc::SYS_writev, done, [1, 0x8000, 4, 0, 0, 0]);
        let within = left(&write(15), memory).expect("it goes on");
        assert_eq!(within.next.number, libc::SYS_write as u64);
        assert_eq!(within.next.arguments, [1, 0x3005, 15, 0, 0, 0]);
        let behind = within.behind.expect("there is more");
        assert_eq!((behind.after, behind.call.arguments), (15, [1, 0x8030, 1, 0, 0, 0]));
        assert_eq!((behind.call.number, behind.header), (libc::SYS_writev as u64, None));
        let between = left(&write(30), memory).expect("it goes on");
        assert_eq!(between.next.number, libc::SYS_writev as u64);
        assert_eq!(
            (between.next.arguments[1..3].to_vec(), between.behind),
            (vec![0x8030, 1], None)
        );
        let last = left(&write(59), memory).expect("it goes on");
        assert_eq!((last.next.arguments[1..3].to_vec(), last.behind), (vec![0x401d, 1], None));
        assert_eq!(left(&write(60), memory), None);
        assert_eq!(left(&write(15), nothing), None, "it cannot be read");
    }

    #[test]
    fn a_message_goes_on_without_what_went_with_its_beginning() {
        let send = stopped(libc::SYS_sendmsg, 15, [1, 0x9000, 7, 0, 0, 0]);
        let found = left(&send, memory).expect("it goes on");
        assert_eq!(found.next.number, libc::SYS_sendto as u64);
        assert_eq!(found.next.arguments, [1, 0x3005, 15, 7, 0x7000, 16]);
        let behind = found.behind.expect("there is more");
        assert_eq!(behind.header, Some([0x7000, 16, 0x8030, 1, 0, 0, 0]));
        let receive = |flags| stopped(libc::SYS_recvmsg, 15, [1, 0x9000, flags, 0, 0, 0]);
        assert_eq!(left(&receive(0), memory), None);
        let all = libc::MSG_WAITALL as u64;
        let found = left(&receive(all), memory).expect("it goes on");
        assert_eq!(found.next.arguments, [1, 0x3005, 15, all, 0, 0]);
        let behind = found.behind.expect("there is more");
        assert_eq!(behind.call.number, libc::SYS_recvfrom as u64);
        assert_eq!((behind.call.arguments, behind.header), ([1, 0x4000, 30, all, 0, 0], None));
        let control = |at| if at == 0x9020 { Some(0x6000) } else { memory(at) };
        assert_eq!(left(&receive(all), control), None, "room for control messages");
    }
}
