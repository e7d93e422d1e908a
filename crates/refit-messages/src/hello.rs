//! The handshake of two instances before any message: each sends a [`Hello`], then a verdict.
//!
//! Hello and verdict have the same lengths in every version, so that two versions at least detect
//! that they differ. Each side sends both, whatever it receives, so that each side learns why the
//! other one refuses.
//!
//! | bytes | field |
//! |---|---|
//! | 0–7 | `refitmsg` |
//! | 8–9 | version of this layer |
//! | 10–11 | the number of the sending instance |
//! | 12 | the connection: 0 for urgent, 1 for bulk |
//! | 13 | length of the release |
//! | 16–23 | token: the same on all connections of one joining |
//! | 24–63 | the release, in UTF-8, then zeros |

use std::io::{self, Read, Write};

use crate::{InstanceId, Refusal, Way};

const MAGIC: [u8; 8] = *b"refitmsg";
/// The version of this layer. Changes with the format of headers, or of the data behind the hello.
pub(crate) const VERSION: u16 = 1;
/// The release, which determines the encoding of messages: another one may have other types.
pub(crate) const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// Length of a hello in bytes.
pub(crate) const HELLO: usize = 64;
const RELEASE_AT: usize = 24;

/// The introduction of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) id: InstanceId,
    pub(crate) way: Way,
    pub(crate) token: u64,
    pub(crate) version: u16,
    pub(crate) release: String,
}

impl Hello {
    /// Returns the hello of this instance.
    pub(crate) fn new(id: InstanceId, way: Way, token: u64) -> Self {
        Self { id, way, token, version: VERSION, release: RELEASE.to_owned() }
    }

    /// Decodes the other side's hello.
    pub(crate) fn decode(bytes: &[u8; HELLO]) -> Result<Self, Refusal> {
        if bytes[..8] != MAGIC {
            return Err(Refusal::Stranger);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(Refusal::Version { theirs: version, ours: VERSION });
        }
        let way = match bytes[12] {
            0 => Way::Urgent,
            1 => Way::Bulk,
            _ => return Err(Refusal::Stranger),
        };
        let (token, release) = bytes[16..].split_at(RELEASE_AT - 16);
        let release = release.get(..usize::from(bytes[13])).ok_or(Refusal::Stranger)?;
        let release = std::str::from_utf8(release).map_err(|_| Refusal::Stranger)?.to_owned();
        Ok(Self {
            id: InstanceId(u16::from_le_bytes([bytes[10], bytes[11]])),
            way,
            token: token.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
            version,
            release,
        })
    }

    /// Encodes the hello for [`decode`](Self::decode).
    pub(crate) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.id.0.to_le_bytes());
        bytes[12] = u8::from(self.way == Way::Bulk);
        let release = &self.release.as_bytes()[..self.release.len().min(HELLO - RELEASE_AT)];
        bytes[13] = release.len() as u8;
        bytes[16..RELEASE_AT].copy_from_slice(&self.token.to_le_bytes());
        bytes[RELEASE_AT..RELEASE_AT + release.len()].copy_from_slice(release);
        bytes
    }

    /// Checks whether this instance and the other one are compatible.
    fn suits(&self, other: &Self) -> Result<(), Refusal> {
        if other.release != self.release {
            return Err(Refusal::Release {
                theirs: other.release.clone(),
                ours: self.release.clone(),
            });
        }
        if other.id == self.id {
            return Err(Refusal::SameId(self.id));
        }
        Ok(())
    }
}

/// Sends a hello and receives the other one. The other side counts as accepted only after
/// [`judge`].
pub(crate) fn greet(stream: &mut (impl Read + Write), own: &Hello) -> Result<Hello, Refusal> {
    stream.write_all(&own.encode()).map_err(|error| refusal(&error))?;
    let bytes = hear(stream)?;
    let checked = Hello::decode(&bytes).and_then(|hello| own.suits(&hello).map(|()| hello));
    if let Err(why) = &checked {
        // The other side waits for the verdict; if it does not any more, the first reason counts.
        let _ = exchange(stream, code(why));
    }
    checked
}

/// Receives the bytes of a hello, or returns the reason that there is none, such as a TLS record.
fn hear(stream: &mut impl Read) -> Result<[u8; HELLO], Refusal> {
    let mut bytes = [0; HELLO];
    let mut heard = 0;
    let ended = loop {
        match stream.read(&mut bytes[heard..]) {
            Ok(0) => break Refusal::HungUp,
            Ok(count) => heard += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break refusal(&error),
        }
        if heard == HELLO {
            break Refusal::Stranger;
        }
    };
    match ended {
        _ if is_tls(&bytes[..heard]) => Err(Refusal::Encrypted),
        _ if heard == HELLO => Ok(bytes),
        ended => Err(ended),
    }
}

/// Returns whether these bytes are the beginning of a first TLS record: an alert or a part of the
/// handshake (RFC 8446, §5.1).
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [21 | 22, 3, 0..=4, ..])
}

/// Sends this side's verdict, and receives the other one's.
pub(crate) fn judge<T>(
    stream: &mut (impl Read + Write),
    verdict: Result<T, Refusal>,
    peer: InstanceId,
    own: InstanceId,
) -> Result<T, Refusal> {
    let heard = exchange(stream, verdict.as_ref().map_or_else(code, |_| 0));
    let accepted = verdict?;
    let by_peer = |why| Err(Refusal::ByPeer(Box::new(why)));
    match heard.map_err(|error| refusal(&error))? {
        0 => Ok(accepted),
        TAKEN => by_peer(Refusal::Taken(own)),
        SAME_ID => by_peer(Refusal::SameId(peer)),
        HALF => by_peer(Refusal::Half),
        RINGS => by_peer(Refusal::Rings),
        other => Err(Refusal::ByPeerFor(other)),
    }
}

/// Sends this side's verdict, and receives the other one's. The other one's is read even if this
/// side refuses, since a connection that is closed with unread data may lose the last data sent. It
/// is read even if sending fails, since the other side may have sent a refusal before it hung up.
fn exchange(stream: &mut (impl Read + Write), said: u8) -> io::Result<u8> {
    let written = stream.write_all(&[said]);
    let mut heard = [0];
    stream.read_exact(&mut heard)?;
    if heard[0] == 0 {
        written?;
    }
    Ok(heard[0])
}

const TAKEN: u8 = 4;
const SAME_ID: u8 = 5;
const HALF: u8 = 6;
const RINGS: u8 = 8;

/// Returns the code by which a refusal is sent to the other side.
fn code(why: &Refusal) -> u8 {
    match why {
        Refusal::Stranger => 1,
        Refusal::Version { .. } => 2,
        Refusal::Release { .. } => 3,
        Refusal::Taken(_) => TAKEN,
        Refusal::SameId(_) => SAME_ID,
        Refusal::Half => HALF,
        Refusal::Rings => RINGS,
        Refusal::User(_) => 7,
        Refusal::Tls(_)
        | Refusal::Encrypted
        | Refusal::ByPeer(_)
        | Refusal::ByPeerFor(_)
        | Refusal::Silent
        | Refusal::HungUp => 255,
    }
}

/// Converts an error of the connection during the handshake.
fn refusal(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Refusal::Silent,
        io::ErrorKind::InvalidData => Refusal::Tls(error.to_string()),
        _ => Refusal::HungUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection whose other side has sent these bytes.
    struct Peer<'b>(&'b [u8]);

    /// A connection whose other side has sent this byte, and takes nothing any more.
    struct Gone(u8);

    impl Read for Gone {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            into[0] = self.0;
            Ok(1)
        }
    }

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Peer<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Peer<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn own() -> Hello {
        Hello::new(InstanceId(1), Way::Urgent, 7)
    }

    #[test]
    fn another_release_is_refused_by_name() {
        let other = Hello { id: InstanceId(2), release: "0.0.1".to_owned(), ..own() };
        let refused = greet(&mut Peer(&other.encode()), &own()).expect_err("another release");
        let ours = RELEASE.to_owned();
        assert_eq!(refused, Refusal::Release { theirs: other.release, ours });
        let same = Hello { id: InstanceId(2), ..own() };
        assert_eq!(greet(&mut Peer(&same.encode()), &own()), Ok(same));
    }

    #[test]
    fn a_peer_that_speaks_tls_is_told_apart_from_a_stranger() {
        for (said, refusal) in [
            (&[22, 3, 1, 2, 0, 1, 0][..], Refusal::Encrypted),
            (&[21, 3, 3, 0, 2, 2, 40], Refusal::Encrypted),
            (b"GET / HTTP/1.0", Refusal::HungUp),
            (&[b'x'; HELLO], Refusal::Stranger),
        ] {
            assert_eq!(greet(&mut Peer(said), &own()), Err(refusal));
        }
    }
    #[test]
    fn a_refusal_is_heard_though_its_sender_is_gone() {
        let (own, peer) = (InstanceId(1), InstanceId(2));
        let heard = |verdict| judge(&mut Gone(verdict), Ok(()), peer, own).expect_err("it is gone");
        assert_eq!(heard(TAKEN), Refusal::ByPeer(Box::new(Refusal::Taken(own))));
        assert_eq!(heard(SAME_ID), Refusal::ByPeer(Box::new(Refusal::SameId(peer))));
        assert_eq!(heard(0), Refusal::HungUp);
    }
}
