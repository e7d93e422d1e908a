//! The header of each message in transit, and its encoding. All numbers are little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 0–1 | [`Sort`] |
//! | 2–3 | the message's [`KIND`](crate::Message::KIND); 0 if none |
//! | 4–7 | length of the message |
//! | 8–11 | length of the body |
//! | 12–19 | ticket: the number of the question, or of the question that this answers; 0 if none |
//! | 20–27 | time of sending, in nanoseconds of the host's monotonic clock; 0 if not included |

use crate::{LIMIT, Malformed};

/// Length of a header in bytes.
pub(crate) const HEADER: usize = 28;

/// The kind of contents behind a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Message = 1,
    Question = 2,
    Answer = 3,
    /// The question will not be answered.
    Unanswered = 4,
    /// No contents; shows that the sender is alive.
    Heartbeat = 5,
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sort: Sort,
    pub(crate) kind: u16,
    pub(crate) message: u32,
    pub(crate) body: u32,
    pub(crate) ticket: u64,
    pub(crate) sent: u64,
}

impl Header {
    /// Returns a header without contents.
    pub(crate) fn bare(sort: Sort, ticket: u64) -> Self {
        Self { sort, kind: 0, message: 0, body: 0, ticket, sent: 0 }
    }

    /// Decodes a header from a peer.
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Result<Self, Malformed> {
        let [s0, s1, k0, k1, m0, m1, m2, m3, b0, b1, b2, b3, rest @ ..] = *bytes;
        let [t0, t1, t2, t3, t4, t5, t6, t7, sent @ ..] = rest;
        let sort = match u16::from_le_bytes([s0, s1]) {
            1 => Sort::Message,
            2 => Sort::Question,
            3 => Sort::Answer,
            4 => Sort::Unanswered,
            5 => Sort::Heartbeat,
            other => return Err(Malformed::Sort(other)),
        };
        let header = Self {
            sort,
            kind: u16::from_le_bytes([k0, k1]),
            message: u32::from_le_bytes([m0, m1, m2, m3]),
            body: u32::from_le_bytes([b0, b1, b2, b3]),
            ticket: u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            sent: u64::from_le_bytes(sent),
        };
        let length = u64::from(header.message) + u64::from(header.body);
        if length > LIMIT as u64 {
            return Err(Malformed::TooLong(length));
        }
        if matches!(sort, Sort::Unanswered | Sort::Heartbeat) && length > 0 {
            return Err(Malformed::Contents);
        }
        Ok(header)
    }

    /// Encodes the header for [`decode`](Self::decode).
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..2].copy_from_slice(&(self.sort as u16).to_le_bytes());
        bytes[2..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.message.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.body.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.ticket.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.sent.to_le_bytes());
        bytes
    }
}

/// Returns the bytes of a message with its header, and sets the lengths in it. If the message is
/// too long, returns the length of message and body.
pub(crate) fn assemble(header: Header, message: &[u8], body: &[u8]) -> Result<Vec<u8>, usize> {
    let length = message.len().saturating_add(body.len());
    let (Ok(of_message), Ok(of_body)) = (message.len().try_into(), body.len().try_into()) else {
        return Err(length);
    };
    if length > LIMIT {
        return Err(length);
    }
    let mut bytes = Vec::with_capacity(HEADER + length);
    bytes.extend_from_slice(&Header { message: of_message, body: of_body, ..header }.encode());
    bytes.extend_from_slice(message);
    bytes.extend_from_slice(body);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_can_be_read_is_written_the_same_and_is_within_the_limit(bytes: [u8; HEADER], sort in 0_u8..8) {
            let mut bytes = bytes;
            bytes[..2].copy_from_slice(&[sort, 0]);
            bytes[7] &= 3;
            bytes[11] &= 3;
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
                prop_assert!(header.message as usize + header.body as usize <= LIMIT);
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let mut header = Header::bare(Sort::Heartbeat, 0);
        header.body = 1;
        assert_eq!(Header::decode(&header.encode()), Err(Malformed::Contents));
        let long = Header { sort: Sort::Message, body: u32::MAX, message: u32::MAX, ..header };
        assert_eq!(
            Header::decode(&long.encode()),
            Err(Malformed::TooLong(2 * u64::from(u32::MAX)))
        );
        assert_eq!(Header::decode(&[0; HEADER]), Err(Malformed::Sort(0)));
        assert_eq!(assemble(header, &[], &vec![0; LIMIT + 1]), Err(LIMIT + 1));
    }
}
