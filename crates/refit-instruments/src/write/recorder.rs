//! One thread that drains all rings, and what it does when they fill.

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

/// What happens when a ring fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Records are written as they come; what finds no place is lost and counted.
    #[default]
    Stream,
    /// The oldest records are forgotten; what is there is written on demand and at the end.
    Flight,
    /// All processors stand still until all rings are written (Kohr 1994, §3.2): nothing is lost, and the time is
    /// recorded. There is one file, so one thread writes for all; as there, no program runs meanwhile that records.
    Dump,
}

/// How to record.
#[derive(Debug, Default)]
pub struct Options {
    /// What happens when a ring fills.
    pub mode: Mode,
    /// When the next file begins.
    pub rotation: Rotation,
    /// What is recorded, for the head of the trace.
    pub command: Vec<String>,
    /// What else tells of what happens; asked by the recorder's thread.
    pub sources: Vec<Box<dyn Source>>,
    /// What switches instruments meanwhile.
    pub triggers: Vec<Trigger>,
}

/// What there was at the end.
#[derive(Debug)]
pub struct Summary {
    /// Records written, and lost by cause.
    pub end: End,
    /// How many dumps there were.
    pub dumps: u64,
    /// How many files.
    pub parts: u32,
    /// The last thing that went wrong while writing.
    pub trouble: Option<io::Error>,
}

/// Records that go into one block at most: 64 Ki of them are 2 MiB.
const BATCH: u64 = 1 << 16;
/// How long the thread sleeps when there is little to do.
const NAP: Duration = Duration::from_millis(10);
/// What is there is written at least so often, full block or not.
const FLUSH: Duration = Duration::from_millis(500);
/// How often other sources are asked: their own buffers must not fill meanwhile.
const SOURCES: Duration = Duration::from_millis(50);
/// How far apart pairs of clocks are, and totals.
const CLOCKS: Duration = Duration::from_secs(2);

/// A recording.
#[derive(Debug)]
pub struct Recorder {
    session: &'static Session,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<Summary>,
}

impl Recorder {
    /// Records a session into a file from now on. One recorder per session at a time, and a session is recorded once:
    /// it ends with its recording.
    ///
    /// # Errors
    /// The file cannot be made, or no thread started.
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

    /// Ends the session, writes what is left, and says what there was.
    ///
    /// # Panics
    /// If the recorder's thread has.
    pub fn stop(self) -> Summary {
        // Pairs with the load in `Writing::run`.
        self.stopping.store(true, Ordering::Release);
        self.session.ask_for_dump();
        self.thread.join().expect("the recorder's thread does not panic")
    }
}

/// The recorder's thread.
#[derive(Debug)]
struct Writing {
    session: &'static Session,
    area: &'static Area,
    mode: Mode,
    output: Output,
    drains: Vec<Drain>,
    taps: Vec<Tap>,
    dumps: u64,
    /// How many definitions there were when they were last written.
    defined: u64,
    /// Which were written.
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
        let asked = self.area.header(header::ASKED);
        let mut served = asked.load(Ordering::Acquire);
        // Pairs with the store in `Recorder::stop`.
        while !stopping.load(Ordering::Acquire) {
            self.define();
            self.clock();
            self.tap();
            self.look();
            // Pairs with the addition in `Area::ask_for_dump`.
            let wanted = asked.load(Ordering::Acquire);
            let demanded = wanted != served;
            served = wanted;
            if !self.step(demanded) {
                futex::wait(asked, served as u32, NAP);
            }
        }
        self.finish()
    }

    /// Does what is to be done now; whether more may be.
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

    /// Writes full blocks, and everything when the last time is long ago.
    fn stream(&mut self) -> bool {
        let flush = self.flushed.elapsed() >= FLUSH;
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

    /// Writes what is in the rings now; false.
    fn write_all(&mut self) -> bool {
        for drain in &mut self.drains {
            let mut left = drain.backlog();
            while left > 0 {
                let most = left.min(BATCH);
                let taken = drain.write(most, self.area, &mut self.output);
                left -= taken.min(left);
                if taken == 0 {
                    // Somebody is within a record, or has died there.
                    thread::sleep(Duration::from_micros(100));
                }
            }
        }
        false
    }

    /// Closes all rings, writes them, and opens them again; false.
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

    /// Writes definitions that have come.
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
        if self.clocked.elapsed() >= CLOCKS {
            self.clocked = Instant::now();
            self.output.json(Kind::Clock, &clocks(self.area));
            self.totals();
        }
    }

    fn tap(&mut self) {
        if self.tapped.elapsed() >= SOURCES {
            self.tapped = Instant::now();
            self.taps.iter_mut().for_each(|tap| tap.write(&mut self.output));
        }
    }

    /// Lets triggers look, at most once per nap.
    fn look(&mut self) {
        let elapsed = self.looked.elapsed();
        if elapsed < NAP {
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
        self.taps.iter_mut().for_each(|tap| tap.write(&mut self.output));
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

/// What counters and timers hold.
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

/// All clocks, read as close together as can be: the ticks in the middle.
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
