//! The thread that drains all rings, and its modes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use refit_sys::{clock, futex};
use rustix::time::ClockId;

use super::cost;
use super::drain::Drain;
use super::output::{Output, OutputError, Rotation};
use super::source::{Source, Tap};
use crate::block::{ClockPair, Dump, End, Head, Kind, Total};
use crate::instrument::Trigger;
use crate::session::layout::header;
use crate::session::{Area, Kind as EntryKind, Session};

/// The behavior of a full ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Records are written continuously; those for which there is no slot are lost and counted.
    #[default]
    Stream,
    /// The oldest records are dropped; the rest is written on request and at the end.
    Flight,
    /// All processors wait until all rings are written (Kohr 1994, §3.2): nothing is lost, and the
    /// duration is recorded. There is one file, so one thread writes for all; as in the paper,
    /// programs that record do not run meanwhile.
    Dump,
}

/// The options of a recording.
#[derive(Debug, Default)]
pub struct Options {
    /// The behavior of a full ring.
    pub mode: Mode,
    /// When the next file begins.
    pub rotation: Rotation,
    /// The recorded command, for the head of the trace.
    pub command: Vec<String>,
    /// Further sources of records, which the recorder's thread reads.
    pub sources: Vec<Box<dyn Source>>,
    /// The triggers that switch instruments during the recording.
    pub triggers: Vec<Trigger>,
}

/// The result of a recording.
#[derive(Debug)]
pub struct Summary {
    /// The number of records written, and lost by cause.
    pub end: End,
    /// The number of dumps.
    pub dumps: u64,
    /// The number of files.
    pub parts: u32,
    /// The last error of writing.
    pub trouble: Option<io::Error>,
}

/// The maximum number of records of a block; 64 Ki records are 2 MiB.
const BATCH: u64 = 1 << 16;
/// The time for which the thread sleeps when there is little to do.
const SLEEP: Duration = Duration::from_millis(10);
/// The interval at which the records are written even if they do not fill a block.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// The interval at which other sources are read, so that their own buffers do not fill.
const SOURCE_INTERVAL: Duration = Duration::from_millis(50);
/// The interval between clock pairs, and between totals.
const CLOCK_INTERVAL: Duration = Duration::from_secs(2);

/// A recording.
#[derive(Debug)]
pub struct Recorder {
    session: &'static Session,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<Summary>,
}

impl Recorder {
    /// Starts to record a session into a file. A session has one recorder and is recorded once: the
    /// session ends with its recording.
    ///
    /// # Errors
    ///
    /// The file cannot be created, or the thread cannot be started.
    pub fn start(
        session: &'static Session,
        path: &Path,
        options: Options,
    ) -> Result<Self, OutputError> {
        let area = session.area();
        let head = Head {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            command: options.command.clone(),
            processors: area.rings().len() as u32,
            clock: area.clock(),
            part: 0,
        };
        let output = Output::create(path, head, options.rotation)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let dumps = options.mode == Mode::Dump;
        let mut writing = Writing::new(session, output, options);
        area.begin(dumps);
        writing.begin();
        let stop = stopping.clone();
        let thread = thread::Builder::new().name("refit-recorder".into());
        let thread = thread.spawn(move || writing.run(&stop)).map_err(OutputError::Thread)?;
        Ok(Self { session, stopping, thread })
    }

    /// Ends the session, writes the remaining records, and returns the summary.
    ///
    /// # Panics
    ///
    /// Panics if the recorder's thread has panicked.
    pub fn stop(self) -> Summary {
        // Pairs with the load in `Writing::run`.
        self.stopping.store(true, Ordering::Release);
        self.session.ask_for_dump();
        self.thread.join().expect("the recorder's thread does not panic")
    }
}

/// The state of the recorder's thread.
#[derive(Debug)]
struct Writing {
    session: &'static Session,
    area: &'static Area,
    mode: Mode,
    output: Output,
    drains: Vec<Drain>,
    taps: Vec<Tap>,
    dumps: u64,
    /// The number of definitions when they were last written.
    defined: u64,
    /// The definitions that were written.
    known: Vec<u32>,
    flushed: Instant,
    clocked: Instant,
    tapped: Instant,
    triggers: Vec<Trigger>,
    looked: Instant,
}

impl Writing {
    fn new(session: &'static Session, output: Output, options: Options) -> Self {
        let Options { mode, sources, triggers, .. } = options;
        let area = session.area();
        let processors = area.rings().len();
        let tap = |(i, source)| Tap::new(source, processors, i as u16 + 1);
        let taps = sources.into_iter().enumerate().map(tap).collect();
        let drains = (0..area.rings().len()).map(|p| Drain::new(area, p)).collect();
        let now = Instant::now();
        Self {
            session,
            area,
            mode,
            output,
            drains,
            taps,
            dumps: 0,
            defined: 0,
            known: Vec::new(),
            flushed: now,
            clocked: now,
            tapped: now,
            triggers,
            looked: now,
        }
    }

    fn begin(&mut self) {
        self.output.keep(Kind::Clock, &clocks(self.area));
        let costs = cost::measure();
        if !costs.is_empty() {
            self.output.keep(Kind::Costs, &costs);
        }
        self.define();
    }

    fn run(mut self, stopping: &AtomicBool) -> Summary {
        let requests = self.area.header(header::ASKED);
        let mut served = requests.load(Ordering::Acquire);
        // Pairs with the store in `Recorder::stop`.
        while !stopping.load(Ordering::Acquire) {
            self.define();
            self.clock();
            self.tap();
            self.look();
            // Pairs with the addition in `Area::ask_for_dump`.
            let wanted = requests.load(Ordering::Acquire);
            let demanded = wanted != served;
            served = wanted;
            if !self.step(demanded) {
                futex::wait(requests, served as u32, SLEEP);
            }
        }
        self.finish()
    }

    /// Performs the work that is due. Returns whether there may be more.
    fn step(&mut self, demanded: bool) -> bool {
        match self.mode {
            Mode::Stream => self.stream(),
            Mode::Flight => {
                let area = self.area;
                self.drains
                    .iter_mut()
                    .for_each(|drain| drain.forget(drain.capacity() / 4 * 3, area));
                demanded && self.write_all()
            }
            Mode::Dump => demanded && self.dump(),
        }
    }

    /// Writes full blocks, and all records if the last time was long ago.
    fn stream(&mut self) -> bool {
        let flush = self.flushed.elapsed() >= FLUSH_INTERVAL;
        if flush {
            self.flushed = Instant::now();
        }
        let mut more = false;
        for drain in &mut self.drains {
            let enough = BATCH.min(drain.capacity() / 8).max(1);
            if flush || drain.backlog() >= enough {
                drain.write(BATCH, self.area, &mut self.output);
                more |= drain.backlog() >= enough;
            }
        }
        more
    }

    /// Writes all records in the rings. Returns `false`.
    fn write_all(&mut self) -> bool {
        for drain in &mut self.drains {
            let mut left = drain.backlog();
            while left > 0 {
                let most = left.min(BATCH);
                let taken = drain.write(most, self.area, &mut self.output);
                left -= taken.min(left);
                if taken == 0 {
                    // A writer is within a record, or has died there.
                    thread::sleep(Duration::from_micros(100));
                }
            }
        }
        false
    }

    /// Closes all rings, writes them, and opens them again. Returns `false`.
    fn dump(&mut self) -> bool {
        let begin = self.area.now();
        self.drains.iter().for_each(Drain::close);
        self.write_all();
        self.drains.iter().for_each(Drain::open);
        let stood = self.area.dumped();
        self.dumps += 1;
        let begin = if stood == 0 { begin } else { begin.min(stood) };
        let dump = Dump { number: self.dumps, begin, end: self.area.now() };
        self.output.json(Kind::Dump, &dump);
        false
    }

    /// Writes new definitions.
    fn define(&mut self) {
        let defined = self.session.defined();
        if defined == self.defined {
            return;
        }
        self.defined = defined;
        let mut new = self.session.definitions();
        new.retain(|definition| !self.known.contains(&definition.id));
        self.known.extend(new.iter().map(|definition| definition.id));
        if !new.is_empty() {
            self.output.keep(Kind::Definitions, &new);
        }
    }

    fn clock(&mut self) {
        if self.clocked.elapsed() >= CLOCK_INTERVAL {
            self.clocked = Instant::now();
            self.output.json(Kind::Clock, &clocks(self.area));
            self.totals();
        }
    }

    fn tap(&mut self) {
        if self.tapped.elapsed() >= SOURCE_INTERVAL {
            self.tapped = Instant::now();
            self.taps.iter_mut().for_each(|tap| tap.write(&mut self.output));
        }
    }

    /// Evaluates the triggers, at most once per sleep interval.
    fn look(&mut self) {
        let elapsed = self.looked.elapsed();
        if elapsed < SLEEP {
            return;
        }
        self.looked = Instant::now();
        for trigger in &mut self.triggers {
            trigger.look(self.session, elapsed);
        }
    }

    fn totals(&mut self) {
        let totals = totals(self.session);
        if !totals.is_empty() {
            self.output.json(Kind::Totals, &totals);
        }
    }

    fn finish(mut self) -> Summary {
        self.area.end();
        self.session.switch_system(true);
        self.drains.iter().for_each(Drain::close);
        self.write_all();
        self.taps.iter_mut().for_each(|tap| tap.finish(&mut self.output));
        // Sources define events, too.
        self.define();
        self.drains.iter_mut().for_each(|drain| drain.write_rest(&mut self.output));
        self.totals();
        self.output.json(Kind::Clock, &clocks(self.area));
        let mut end = End::default();
        self.drains.iter().for_each(|drain| drain.add_to(&mut end));
        self.taps.iter().for_each(|tap| tap.add_to(&mut end));
        self.output.json(Kind::End, &end);
        let Self { dumps, output, .. } = self;
        Summary { end, dumps, parts: output.parts(), trouble: output.trouble }
    }
}

/// Returns the values of counters and timers.
fn totals(session: &Session) -> Vec<Total> {
    let total = |(_, kind, definition): (usize, EntryKind, crate::definition::Definition)| {
        let instrument = match kind {
            EntryKind::Counter => "counter",
            EntryKind::Timer => "timer",
            EntryKind::Event | EntryKind::Manager => return None,
        };
        let [count, sum] = session.area().totals(definition.id);
        let (name, manager) = (definition.name, definition.manager);
        Some(Total { name, manager, instrument: instrument.into(), count, sum })
    };
    session.entries().filter_map(total).collect()
}

/// Reads all clocks as close together as possible, with the ticks in the middle.
fn clocks(area: &Area) -> ClockPair {
    const TRIES: usize = 8;
    let read = |_| {
        let before = area.now();
        let monotonic = clock::kernel(ClockId::Monotonic);
        let raw = clock::raw();
        let boot = clock::kernel(ClockId::Boottime);
        let real = clock::kernel(ClockId::Realtime);
        let after = area.now();
        let ticks = before + (after - before) / 2;
        (after - before, ClockPair { ticks, monotonic, raw, boot, real })
    };
    let closest = (0..TRIES).map(read).min_by_key(|(width, _)| *width);
    closest.map_or_else(|| read(0).1, |(_, pair)| pair)
}
