//! The messages of Perfetto's trace format that refit writes, according to Perfetto's published
//! schema (`protos/perfetto/trace/trace_packet.proto` and its imports), which defines the field
//! numbers.

use std::io::{self, Write};

use super::protobuf::Message;
use crate::block::ClockPair;

/// `BuiltinClocks` of `ClockSnapshot.Clock`.
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;
const MONOTONIC_RAW: u64 = 5;
const BOOTTIME: u64 = 6;

/// `TrackEvent.Type`.
#[derive(Clone, Copy)]
pub(super) enum Type {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// A writer of packets.
pub(super) struct Packets<'a> {
    to: &'a mut dyn Write,
    /// Whether times are in `CLOCK_MONOTONIC_RAW`; otherwise they are in the default clock.
    raw: bool,
}

impl<'a> Packets<'a> {
    pub(super) fn new(to: &'a mut dyn Write, raw: bool) -> Packets<'a> {
        Packets { to, raw }
    }

    fn put(&mut self, sequence: u32, packet: Message) -> io::Result<()> {
        let packet = packet.uint(10, u64::from(sequence));
        // `Trace.packet`.
        self.to.write_all(Message::new().message(1, &packet).as_bytes())
    }

    /// Writes a `ClockSnapshot` of clocks that were read at the same time.
    pub(super) fn clocks(&mut self, sequence: u32, pair: &ClockPair) -> io::Result<()> {
        let clock = |id, time| Message::new().uint(1, id).uint(2, time);
        let snapshot = Message::new()
            .message(1, &clock(BOOTTIME, pair.boot))
            .message(1, &clock(MONOTONIC, pair.monotonic))
            .message(1, &clock(MONOTONIC_RAW, pair.raw))
            .message(1, &clock(REALTIME, pair.real))
            .uint(2, BOOTTIME);
        self.put(sequence, Message::new().uint(8, pair.boot).message(6, &snapshot))
    }

    /// Writes a `TrackDescriptor`.
    pub(super) fn track(&mut self, sequence: u32, descriptor: &Message) -> io::Result<()> {
        self.put(sequence, Message::new().message(60, descriptor))
    }

    /// Writes a `TrackEvent` at a time. `dropped` means that records before it on this sequence are
    /// lost.
    pub(super) fn event(
        &mut self,
        sequence: u32,
        time: u64,
        dropped: bool,
        event: &Message,
    ) -> io::Result<()> {
        let mut packet = Message::new().uint(8, time);
        if self.raw {
            packet = packet.uint(58, MONOTONIC_RAW);
        }
        if dropped {
            packet = packet.uint(42, 1);
        }
        self.put(sequence, packet.message(11, event))
    }

    /// Writes the `TraceStats`, which contain the number of lost records of each buffer.
    pub(super) fn losses(
        &mut self,
        sequence: u32,
        lost: impl Iterator<Item = u64>,
    ) -> io::Result<()> {
        let stats = lost
            .fold(Message::new(), |stats, lost| stats.message(1, &Message::new().uint(19, lost)));
        self.put(sequence, Message::new().message(35, &stats))
    }
}

/// Returns a `TrackDescriptor` with a name.
pub(super) fn named(id: u64, parent: Option<u64>, name: &str) -> Message {
    let track = Message::new().uint(1, id).text(2, name);
    match parent {
        Some(parent) => track.uint(5, parent),
        None => track,
    }
}

/// Returns a `TrackDescriptor` of a counter.
pub(super) fn counter(id: u64, name: &str) -> Message {
    named(id, None, name).message(8, &Message::new())
}

/// Returns a `TrackDescriptor` of a process.
pub(super) fn process(id: u64, process: u32, name: &str) -> Message {
    let descriptor = Message::new().uint(1, u64::from(process)).text(6, name);
    Message::new().uint(1, id).message(3, &descriptor)
}

/// Returns a `TrackDescriptor` of a thread.
pub(super) fn thread(id: u64, process: u32, thread: u32, name: &str) -> Message {
    let descriptor =
        Message::new().uint(1, u64::from(process)).uint(2, u64::from(thread)).text(5, name);
    Message::new().uint(1, id).message(4, &descriptor)
}

/// Returns a `TrackEvent` on a track.
pub(super) fn event(kind: Type, track: u64) -> Message {
    Message::new().uint(9, kind as u64).uint(11, track)
}
