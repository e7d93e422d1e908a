//! Tests of the export to Perfetto, decoded by prost with a schema of its own: field numbers and
//! types are those of Perfetto's published `.proto` files, and nothing of refit's encoder is used.

use prost::Message;
use refit_instruments::analysis::Filter;
use refit_instruments::block::{Frame, Function, Kind, Stack};
use refit_instruments::definition::FieldKind::{F64, U32, U64};
use refit_instruments::definition::Role;
use refit_instruments::export;
use refit_instruments::record::Phase::{Begin, End, In, Out, Point, Sample};

use super::builder::{Builder, definition, pair, record};

#[derive(Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "58")]
    timestamp_clock_id: Option<u32>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(bool, optional, tag = "42")]
    previous_packet_dropped: Option<bool>,
    #[prost(message, optional, tag = "6")]
    clock_snapshot: Option<ClockSnapshot>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "35")]
    trace_stats: Option<TraceStats>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Message)]
struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<Clock>,
    #[prost(uint32, optional, tag = "2")]
    primary_trace_clock: Option<u32>,
}

#[derive(Message)]
struct Clock {
    #[prost(uint32, optional, tag = "1")]
    clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    timestamp: Option<u64>,
}

#[derive(Message)]
struct TraceStats {
    #[prost(message, repeated, tag = "1")]
    buffer_stats: Vec<BufferStats>,
}

#[derive(Message)]
struct BufferStats {
    #[prost(uint64, optional, tag = "19")]
    trace_writer_packet_loss: Option<u64>,
}

#[derive(Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

#[derive(Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

#[derive(Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

#[derive(Message)]
struct CounterDescriptor {}

#[derive(Message)]
struct TrackEvent {
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
    #[prost(double, optional, tag = "44")]
    double_counter_value: Option<f64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Message)]
struct DebugAnnotation {
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    int_value: Option<i64>,
    #[prost(double, optional, tag = "5")]
    double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(uint64, optional, tag = "7")]
    pointer_value: Option<u64>,
}

const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;

/// Builds a trace with a request that waits for a swap, its phases, context switches, a counter, a
/// message, a dump and a loss.
pub(crate) fn swapped() -> Builder {
    let change = [("change", U64)];
    let definitions = [
        definition(1, "fcm::read", Role::Request, &[("request", U64), ("offset", U32)]),
        definition(2, "swap::wait", Role::Wait, &[("change", U64), ("thread", U32)]),
        definition(3, "swap::whole", Role::Change, &change),
        definition(4, "swap::block", Role::Change, &change),
        definition(5, "sched::in", Role::SwitchIn, &[("last", U32)]),
        definition(6, "sched::out", Role::SwitchOut, &[("next", U32)]),
        definition(7, "frames", Role::Plain, &[("share", F64)]),
        definition(8, "message", Role::Plain, &[("id", U64)]),
    ];
    Builder::new()
        .definitions(&definitions)
        .threads(&[(100, 100, "refit"), (101, 100, "worker"), (102, 100, "swapper")])
        .dump(20_000, 22_000)
        .records(
            0,
            &[
                record(1_000, 5, Point, 101, [0, 0]),
                record(2_000, 1, Begin, 101, [4711, 4096]),
                record(4_000, 2, Begin, 101, [3, 102]),
                record(6_000, 2, End, 101, [3, 0]),
                record(7_000, 1, End, 101, [4711, 0]),
                record(7_500, 8, Out, 101, [55, 0]),
                record(8_000, 6, Point, 101, [0, 0]),
            ],
        )
        .records(
            1,
            &[
                record(1_500, 3, Begin, 102, [3, 0]),
                record(3_000, 4, Begin, 102, [3, 0]),
                record(5_000, 4, End, 102, [3, 0]),
                record(5_500, 3, End, 102, [3, 0]),
                record(5_600, 7, Sample, 102, [0.25_f64.to_bits(), 0]),
                record(9_000, 8, In, 102, [55, 0]),
            ],
        )
        .lose(1, |head| (head.lost_full, head.lost_torn) = (40, 2))
        .records(1, &[record(30_000, 9, Point, 103, [1, 2])])
        .end()
}

fn exported(builder: &Builder, filter: &Filter) -> Trace {
    let mut bytes = Vec::new();
    export::perfetto(&builder.trace(), filter, &mut bytes).expect("memory takes it");
    Trace::decode(bytes.as_slice()).expect("it is a message")
}

impl Trace {
    fn tracks(&self) -> impl Iterator<Item = &TrackDescriptor> {
        self.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref())
    }

    /// Returns the track with a name.
    fn track(&self, name: &str) -> u64 {
        let is = |track: &&TrackDescriptor| {
            let thread = track.thread.as_ref().and_then(|thread| thread.thread_name.as_deref());
            track.name.as_deref().or(thread) == Some(name)
        };
        self.tracks()
            .find(is)
            .and_then(|track| track.uuid)
            .unwrap_or_else(|| panic!("no track {name}"))
    }

    /// Returns the events of a track: time in ns since raw time 1 s, kind, name.
    fn on(&self, track: &str) -> Vec<(u64, i32, &str)> {
        let track = self.track(track);
        let mut found: Vec<_> = self
            .events()
            .filter(|(_, event)| event.track_uuid == Some(track))
            .map(|(packet, event)| {
                assert_eq!(packet.timestamp_clock_id, Some(5), "CLOCK_MONOTONIC_RAW");
                let time = packet.timestamp.expect("each has one") - 1_000_000_000;
                (time, event.kind.expect("each has one"), event.name.as_deref().unwrap_or_default())
            })
            .collect();
        found.sort_by_key(|(time, ..)| *time);
        found
    }

    fn events(&self) -> impl Iterator<Item = (&Packet, &TrackEvent)> {
        self.packet.iter().filter_map(|packet| Some((packet, packet.track_event.as_ref()?)))
    }

    fn event(&self, name: &str) -> (&Packet, &TrackEvent) {
        self.events().find(|(_, event)| event.name.as_deref() == Some(name)).expect("it is there")
    }
}

#[test]
fn tracks_stand_for_processors_threads_and_changes() {
    let trace = exported(&swapped(), &Filter::default());
    let mut ids: Vec<_> = trace.tracks().map(|track| track.uuid.expect("each has one")).collect();
    let many = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), many, "each track is described once");
    let processors = trace.track("processors");
    for name in ["processor 0", "processor 1"] {
        let id = trace.track(name);
        let parent =
            trace.tracks().find(|track| track.uuid == Some(id)).and_then(|track| track.parent_uuid);
        assert_eq!(parent, Some(processors), "{name}");
    }
    let threads: Vec<_> = trace
        .tracks()
        .filter_map(|track| track.thread.as_ref())
        .map(|thread| (thread.pid, thread.tid, thread.thread_name.as_deref()))
        .collect();
    assert_eq!(
        threads,
        [
            (Some(100), Some(100), Some("refit")),
            (Some(100), Some(101), Some("worker")),
            (Some(100), Some(102), Some("swapper")),
            (Some(103), Some(103), Some("thread 103")),
        ]
    );
    let names: Vec<_> = trace
        .tracks()
        .filter_map(|track| track.process.as_ref())
        .map(|process| (process.pid, process.process_name.as_deref()))
        .collect();
    assert_eq!(names, [(Some(100), Some("refit")), (Some(103), Some("thread 103"))]);
    assert!(
        trace.events().all(|(_, event)| ids.contains(&event.track_uuid.expect("each has one")))
    );
}

#[test]
fn requests_and_phases_are_slices_and_a_flow_leads_to_what_delayed() {
    let trace = exported(&swapped(), &Filter::default());
    let worker = [
        (1_000, BEGIN, "fcm::read"),
        (2_000, BEGIN, "swap::wait"),
        (3_000, END, ""),
        (3_500, END, ""),
        (3_750, INSTANT, "message"),
    ];
    assert_eq!(trace.on("worker"), worker);
    let change = [
        (750, BEGIN, "swap::whole"),
        (1_500, BEGIN, "swap::block"),
        (2_000, INSTANT, "delays request 4711"),
        (2_500, END, ""),
        (2_750, END, ""),
    ];
    assert_eq!(trace.on("change 3"), change);
    let (_, request) = trace.event("fcm::read");
    let (_, delay) = trace.event("delays request 4711");
    assert_eq!(request.flow_ids.len(), 1);
    assert_eq!(request.flow_ids, delay.terminating_flow_ids);
    assert_eq!(request.categories, ["test"]);
    let fields: Vec<_> = request
        .debug_annotations
        .iter()
        .map(|field| (field.name.as_deref(), field.uint_value))
        .collect();
    assert_eq!(fields, [(Some("request"), Some(4711)), (Some("offset"), Some(4096))]);
    let messages: Vec<_> =
        trace.events().filter(|(_, event)| event.name.as_deref() == Some("message")).collect();
    assert_eq!(messages[0].1.flow_ids, messages[1].1.terminating_flow_ids);
    assert_ne!(messages[0].1.flow_ids, request.flow_ids);
}

#[test]
fn processors_show_who_runs_and_what_is_lost() {
    let trace = exported(&swapped(), &Filter::default());
    assert_eq!(trace.on("processor 0"), [(500, BEGIN, "worker (101)"), (4_000, END, "")]);
    assert_eq!(trace.on("processor 1"), [(15_000, INSTANT, "42 records lost")]);
    let (packet, lost) = trace.event("42 records lost");
    assert_eq!(packet.previous_packet_dropped, Some(true));
    let causes: Vec<_> = lost
        .debug_annotations
        .iter()
        .map(|field| (field.name.as_deref(), field.uint_value))
        .collect();
    assert_eq!(causes, [(Some("full"), Some(40)), (Some("torn"), Some(2))]);
    let dropped = trace.packet.iter().filter(|packet| packet.previous_packet_dropped == Some(true));
    assert_eq!(dropped.count(), 1);
    let stats =
        trace.packet.iter().find_map(|packet| packet.trace_stats.as_ref()).expect("it is there");
    let losses: Vec<_> =
        stats.buffer_stats.iter().map(|buffer| buffer.trace_writer_packet_loss).collect();
    assert_eq!(losses, [Some(0), Some(42)], "by processor");
    assert!(
        trace
            .packet
            .iter()
            .all(|packet| packet.trusted_packet_sequence_id.is_some_and(|id| id > 0))
    );
    assert_eq!(trace.on("dumps"), [(10_000, BEGIN, "dump 1"), (11_000, END, "")]);
}

#[test]
fn counters_and_clocks_are_there() {
    let trace = exported(&swapped(), &Filter::default());
    assert_eq!(trace.on("frames"), [(2_800, COUNTER, "")]);
    let counter = trace.track("frames");
    assert!(trace.tracks().any(|track| track.uuid == Some(counter) && track.counter.is_some()));
    let values: Vec<_> =
        trace.events().filter_map(|(_, event)| event.double_counter_value).collect();
    assert_eq!(values, [0.25]);
    assert!(trace.events().all(|(_, event)| event.counter_value.is_none()));
    let snapshots: Vec<_> =
        trace.packet.iter().filter_map(|packet| packet.clock_snapshot.as_ref()).collect();
    assert_eq!(snapshots.len(), 2);
    for (snapshot, ticks) in snapshots.iter().zip([0, 8_000_000_000]) {
        let pair = pair(ticks);
        let clocks: Vec<_> =
            snapshot.clocks.iter().map(|clock| (clock.clock_id, clock.timestamp)).collect();
        let expected = [(6, pair.boot), (3, pair.monotonic), (5, pair.raw), (1, pair.real)];
        assert_eq!(clocks, expected.map(|(id, time)| (Some(id), Some(time))));
        assert_eq!(snapshot.primary_trace_clock, Some(6));
    }
}

#[test]
fn a_filter_leaves_slices_whole() {
    let filter = Filter { classes: vec!["fcm".into()], ..Filter::default() };
    let trace = exported(&swapped(), &filter);
    assert_eq!(trace.on("worker"), [(1_000, BEGIN, "fcm::read"), (3_500, END, "")]);
}

/// Writes a file for `ci/perfetto.sh`, which opens it with Perfetto's own tools.
#[test]
fn a_file_for_perfetto() {
    let mut bytes = Vec::new();
    export::perfetto(&swapped().trace(), &Filter::default(), &mut bytes).expect("memory takes it");
    assert!(!bytes.is_empty());
    if let Some(path) = std::env::var_os("REFIT_PERFETTO_FILE") {
        std::fs::write(path, bytes).expect("it can be written");
    }
}

/// Builds a trace of a thread that waits within an interval, and is preempted after it.
pub(crate) fn waits() -> Builder {
    let frame = |id, module: Option<&str>, names: &[&str]| Frame {
        id,
        module: module.map(str::to_owned),
        address: 0x10 * u64::from(id),
        functions: names
            .iter()
            .map(|name| Function { name: (*name).to_owned(), source: None })
            .collect(),
    };
    let switch = |id, name, role| definition(id, name, role, &[]);
    Builder::new()
        .definitions(&[
            definition(1, "Cache::read", Role::Plain, &[]),
            switch(2, "switch in", Role::SwitchIn),
            switch(3, "switch out", Role::SwitchOut),
        ])
        .threads(&[(7, 7, "water")])
        .json(Kind::Frames, &[frame(1, Some("libc"), &[]), frame(2, Some("w"), &[])])
        .json(Kind::Stacks, &[Stack { id: 1, frames: vec![1, 2] }])
        // The name of the second comes later.
        .json(Kind::Frames, &[frame(2, Some("w"), &["inner", "outer"])])
        .records(
            0,
            &[
                record(1_000, 1, Begin, 7, [0; 2]),
                record(3_000, 3, Point, 7, [0, 1]),
                record(9_000, 2, Point, 7, [0; 2]),
                record(10_000, 1, End, 7, [0; 2]),
                record(12_000, 3, Point, 7, [1 << 32, 1]),
                record(14_000, 2, Point, 7, [0; 2]),
                // Without a stack.
                record(20_000, 3, Point, 7, [0; 2]),
                record(30_000, 2, Point, 7, [0; 2]),
            ],
        )
}

#[test]
fn the_time_off_the_processors_is_a_slice_with_its_stack() {
    let mut bytes = Vec::new();
    export::perfetto(&waits().trace(), &Filter::default(), &mut bytes).expect("memory takes it");
    let trace = Trace::decode(&bytes[..]).expect("it is Perfetto's format");
    let events = trace.packet.iter().filter_map(|packet| {
        let event = packet.track_event.as_ref()?;
        Some((packet.timestamp? % 1_000_000_000, event))
    });
    let events: Vec<_> = events.collect();
    let off: Vec<_> = events.iter().filter(|(_, event)| event.categories == ["off-cpu"]).collect();
    let names: Vec<_> =
        off.iter().map(|(time, event)| (*time, event.name.as_deref().unwrap_or(""))).collect();
    assert_eq!(names, [(1_500, "waits in libc+0x10"), (6_000, "preempted in libc+0x10")]);
    let stack = off[0].1.debug_annotations[0].string_value.as_deref();
    assert_eq!(stack, Some("libc+0x10\ninner (w)\nouter (w)"));
    let track = off[0].1.track_uuid;
    let ends =
        events.iter().filter(|(_, event)| event.kind == Some(END) && event.track_uuid == track);
    assert_eq!(ends.map(|(time, _)| *time).collect::<Vec<_>>(), [4_500, 5_000, 7_000]);
}
