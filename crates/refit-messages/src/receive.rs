//! Receiving messages from a peer, and calling their handlers.

use std::collections::HashMap;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::frame::{HEADER, Header, Sort};
use crate::handlers::{Handler, decode};
use crate::hello::Hello;
use crate::link::Link;
use crate::tickets::Outcome;
use crate::{ENDED, Malformed, Way, receiving};

/// The maximum capacity that a buffer keeps from one message to the next.
const MAX_KEPT_CAPACITY: usize = 1 << 20;

/// Handles all messages of one way until the connection ends. Returns the reason for its end.
pub(crate) fn receive(
    handlers: &HashMap<u16, Handler>,
    link: &Arc<Link>,
    way: Way,
    mut from: impl Read,
) -> String {
    receiving::begin();
    let (mut message, mut body) = (Vec::new(), Vec::new());
    loop {
        let header = match read(&mut from, &mut message, &mut body) {
            Ok(header) => header,
            Err(why) => return why,
        };
        if header.sort != Sort::Heartbeat {
            link.way(way).counts.receive(&header);
        }
        let handled = catch_unwind(AssertUnwindSafe(|| {
            handle(handlers, link, way, &header, &mut message, &mut body)
        }));
        match handled {
            Ok(Ok(())) => {}
            Ok(Err(malformed)) => return malformed.to_string(),
            Err(_) => {
                return format!("the handler of its message of kind {} panicked", header.kind);
            }
        }
        for buffer in [&mut message, &mut body] {
            if buffer.capacity() > MAX_KEPT_CAPACITY {
                *buffer = Vec::new();
            }
        }
    }
}

/// Reads a message and its body, or returns why there are no more.
fn read(from: &mut impl Read, message: &mut Vec<u8>, body: &mut Vec<u8>) -> Result<Header, String> {
    let mut bytes = [0; HEADER];
    from.read_exact(&mut bytes).map_err(|error| ended(&error))?;
    let header = Header::decode(&bytes).map_err(|malformed| malformed.to_string())?;
    for (buffer, length) in [(message, header.message), (body, header.body)] {
        buffer.clear();
        // Memory is allocated as bytes arrive, whatever the header announces.
        let mut part = from.take(u64::from(length));
        match part.read_to_end(buffer) {
            Ok(count) if count == length as usize => {}
            Ok(_) => return Err(ended(&io::ErrorKind::UnexpectedEof.into())),
            Err(error) => return Err(ended(&error)),
        }
    }
    Ok(header)
}

/// Decodes bytes as the beginning of a peer's stream, to show that any bytes can be handled.
/// Returns the number of messages, and the reason for the end.
pub fn rehearse(mut bytes: &[u8]) -> (usize, String) {
    if let Some((hello, rest)) = bytes.split_first_chunk()
        && let Ok(hello) = Hello::decode(hello)
        && Hello::decode(&hello.encode()) == Ok(hello)
    {
        bytes = rest;
    }
    let (mut message, mut body) = (Vec::new(), Vec::new());
    for count in 0.. {
        match read(&mut bytes, &mut message, &mut body) {
            // A type with every shape.
            Ok(header) => drop(decode::<(u8, Vec<String>, Option<i64>)>(header.kind, &message)),
            Err(why) => return (count, why),
        }
    }
    (0, String::new())
}

/// Returns what an error of a connection means for the peer.
fn ended(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => ENDED.to_owned(),
        io::ErrorKind::WouldBlock => "it has stopped responding".to_owned(),
        io::ErrorKind::TimedOut => "it takes nothing any more".to_owned(),
        _ => format!("its connection broke: {error}"),
    }
}

fn handle(
    handlers: &HashMap<u16, Handler>,
    link: &Arc<Link>,
    way: Way,
    header: &Header,
    message: &mut Vec<u8>,
    body: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let outcome = match header.sort {
        Sort::Heartbeat => return Ok(()),
        Sort::Message | Sort::Question => {
            let handler = handlers.get(&header.kind).ok_or(Malformed::Kind(header.kind))?;
            if handler.sort != header.sort {
                return Err(Malformed::NotThatSort(header.kind));
            }
            if handler.way != way {
                return Err(Malformed::WrongWay(header.kind, way));
            }
            return (handler.handle)(link, header, message, body);
        }
        Sort::Answer => Outcome::Answer(std::mem::take(message), std::mem::take(body)),
        Sort::Unanswered => Outcome::Unanswered,
    };
    match link.tickets.settle(header.ticket, outcome) {
        true => Ok(()),
        false => Err(Malformed::Ticket(header.ticket)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::frame::assemble;
    use crate::link::Place;
    use crate::socket::Socket;
    use crate::wire::Wire;
    use crate::{InstanceId, Transport};

    #[test]
    fn an_answer_to_nothing_is_malformed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let outgoing = [ours, theirs].map(|end| Wire::plain(Socket::new(end)).split().1);
        let place = Place { name: "a test".to_owned(), dialed: false };
        let link = Link::new(InstanceId(2), place, Transport::Shared, outgoing);
        let (ticket, _) = link.tickets.open().unwrap();
        for (number, outcome) in [(ticket, Ok(())), (ticket, Err(Malformed::Ticket(ticket)))] {
            let header = Header::bare(Sort::Unanswered, number);
            let (mut message, mut body) = (Vec::new(), Vec::new());
            let handlers = HashMap::new();
            let handled = handle(&handlers, &link, Way::Urgent, &header, &mut message, &mut body);
            assert_eq!(handled, outcome);
        }
    }

    #[test]
    fn a_stream_that_ends_within_a_message_has_ended_and_a_whole_message_is_read() {
        let header = Header { kind: 7, ..Header::bare(Sort::Message, 0) };
        let bytes = assemble(header, b"message", b"body").unwrap();
        let (mut message, mut body) = (b"old".to_vec(), Vec::new());
        for length in 0..bytes.len() {
            let read = read(&mut &bytes[..length], &mut message, &mut body);
            assert_eq!(read, Err(ENDED.to_owned()), "{length} of {} bytes", bytes.len());
        }
        let whole = read(&mut &bytes[..], &mut message, &mut body).unwrap();
        assert_eq!((whole.kind, whole.message, whole.body), (7, 7, 4));
        assert_eq!((&message[..], &body[..]), (&b"message"[..], &b"body"[..]));
    }

    #[test]
    fn each_error_of_a_connection_has_its_own_meaning() {
        use io::ErrorKind::{ConnectionReset, Other, TimedOut, UnexpectedEof, WouldBlock};
        for (kind, meaning) in [
            (UnexpectedEof, ENDED),
            (ConnectionReset, ENDED),
            (WouldBlock, "it has stopped responding"),
            (TimedOut, "it takes nothing any more"),
            (Other, "its connection broke: other error"),
        ] {
            assert_eq!(ended(&kind.into()), meaning);
        }
    }
}
