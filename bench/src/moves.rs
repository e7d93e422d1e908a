//! Measures the effect of moves between instances on a program: the time for which it does not run,
//! and the slowdown afterwards.
//!
//! All times are taken by the program itself ([`crate::moved`]), which has one thread. Of three
//! instances, the program begins at the first, with a processor of its own; the others share one.
//! Each round is another program, so each has never moved before.

use std::thread;
use std::time::{Duration, Instant};

use refit_instance::Client;
use refit_instance::wire::MoveRequest;
use refit_sys::clock;

use crate::moved::ARGUMENT;
use crate::spread::Instances;
use crate::stats::Sample;
use crate::workload::Workload;

const ROUNDS: usize = 11;
/// The number of round trips of a program after it has been everywhere.
const TRIPS: usize = 20;
/// The time for which it runs after each arrival.
const STAY: Duration = Duration::from_millis(10);
/// The minimum length of a pause that counts as part of a move; an interrupt takes microseconds.
const LEAST: Duration = Duration::from_micros(10);
/// The number of mappings that are touched.
const AREAS: usize = 50;
/// The number of pages that move.
const PAGES: usize = 64;
const COMPUTATIONS: usize = 5;

/// The kinds of moves of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The first move, for which the program and a replica are prepared.
    First,
    /// A move to an instance where the program has not been.
    New,
    /// A move to an instance where it has been.
    Warm,
    /// A move back to the origin.
    Back,
}

pub(crate) const WAYS: [Way; 4] = [Way::First, Way::New, Way::Warm, Way::Back];

/// The results, in microseconds except for ratios.
#[derive(Default)]
pub(crate) struct MoveTotals {
    /// For each of [`WAYS`]: the longest time that the program did not run, and all such times
    /// until it runs undisturbed.
    pub(crate) stands: [[Sample; 2]; WAYS.len()],
    /// For each of [`WAYS`]: the time from a thread's own call until its arrival.
    pub(crate) lookups: [Sample; WAYS.len()],
    /// The first touch of a mapping: natively (a page that is present), of private memory, of
    /// frames.
    pub(crate) touches: [Sample; 3],
    /// The last of those, averaged over each round, in which some mappings come with others.
    pub(crate) each: Sample,
    /// The same where no mapping comes with another.
    pub(crate) alone: Sample,
    /// A page that moves in order to be written: from the origin, and from another instance.
    pub(crate) pages: [Sample; 2],
    /// The ratio of a computation after a move to the same natively.
    pub(crate) computes: Sample,
    /// [`CALLS`]: natively, at home, elsewhere.
    pub(crate) calls: [[Sample; 3]; CALLS.len()],
}

/// The measured calls. The last two read 4 KiB, of a file on the disk and of one that only the
/// thread's own shadow can read.
pub(crate) const CALLS: [&str; 4] = ["getppid", "read", "pread file", "pread memfd"];

/// Three instances, and the client for requesting moves.
type Booted = (Instances, Client);

/// Measures while processors are kept awake, and while they may sleep.
pub(crate) fn measure() -> Result<[MoveTotals; 2], String> {
    // Processors are kept awake only while a program that has moved exists there, so all instances
    // can run at once.
    let plain = both(&[])?;
    let alone = both(&["--ahead", "1"])?;
    let moving = both(&["--pages", "move", "--ahead", "1"])?;
    let ticks = ticks_per_microsecond();
    let mut both = <[MoveTotals; 2]>::default();
    for _ in 0..ROUNDS {
        for (at, moves) in both.iter_mut().enumerate() {
            let round = Round::new(&plain[at], ticks);
            round.stands(moves)?;
            round.asks(moves)?;
            moves.each.push(round.touches(&mut moves.touches)?);
            round.computes(moves)?;
            let one_by_one = Round::new(&alone[at], ticks);
            moves.alone.push(one_by_one.touches(&mut Default::default())?);
            Round::new(&moving[at], ticks).pages(&mut moves.pages)?;
        }
    }
    Ok(both)
}

/// Boots instances with these options, of both kinds.
fn both(options: &[&str]) -> Result<[Booted; 2], String> {
    let boot = |more: &[&str]| {
        let plain = ["--instances", "3", "--cpus", "0/1/1"];
        let instances = Instances::boot_with(&[&plain, options, more].concat())?;
        let client = instances.client(0)?;
        Ok::<Booted, String>((instances, client))
    };
    Ok([boot(&["--awake"])?, boot(&[])?])
}

/// Returns the moves of a thread, with their destinations.
fn journey() -> Vec<(Way, u16)> {
    let there = [(Way::First, 1), (Way::Back, 0), (Way::New, 2), (Way::Back, 0)];
    let again = [(Way::Warm, 1), (Way::Back, 0)].into_iter().cycle().take(2 * TRIPS);
    there.into_iter().chain(again).collect()
}

fn ticks_per_microsecond() -> f64 {
    let (began, first) = (Instant::now(), clock::counter());
    // This time itself is measured.
    thread::sleep(Duration::from_millis(200));
    let ticks = clock::counter() - first;
    ticks as f64 / began.elapsed().as_secs_f64() / 1e6
}

struct Round<'a> {
    instances: &'a Instances,
    client: &'a Client,
    ticks: f64,
}

impl<'a> Round<'a> {
    fn new((instances, client): &'a Booted, ticks: f64) -> Self {
        Self { instances, client, ticks }
    }

    fn program(&self) -> Result<Workload, String> {
        let mut program = Workload::start(&self.instances.under(), &[ARGUMENT.to_owned()])?;
        // The program is movable by then.
        let [_] = program.ask("getppid")?;
        Ok(program)
    }

    fn move_to(&self, program: &Workload, to: u16) -> Result<(), String> {
        let request = MoveRequest { pid: program.id(), thread: None, to: Some(to) };
        self.client.move_to(&request).map_err(|refusal| refusal.to_string())
    }

    /// Moves there and back, as the thread itself requests.
    fn asks(&self, moves: &mut MoveTotals) -> Result<(), String> {
        let mut program = self.program()?;
        for (way, to) in journey() {
            let [took] = program.ask(&format!("go {to}"))?;
            moves.lookups[way as usize].push(took / self.ticks);
        }
        Ok(())
    }

    /// Moves there and back, and records the pauses of the program.
    fn stands(&self, moves: &mut MoveTotals) -> Result<(), String> {
        let journey = journey();
        let mut program = self.program()?;
        let id = program.id();
        let micros = |time: Duration| (time.as_secs_f64() * 1e6 * self.ticks) as u64;
        // Longer than the moves, to observe all of them.
        let within = micros(STAY * journey.len() as u32 * 3);
        let line = format!("gaps {within} {}", micros(LEAST));
        let (gaps, began) = thread::scope(|scope| {
            let gaps = scope.spawn(|| program.ask_all(&line));
            // Here and below the program runs for a while at one instance: the pauses in that time
            // are measured.
            thread::sleep(STAY);
            let mut began = Vec::new();
            for &(_, to) in &journey {
                began.push(clock::counter());
                let request = MoveRequest { pid: id, thread: None, to: Some(to) };
                self.client.move_to(&request).map_err(|refusal| refusal.to_string())?;
                thread::sleep(STAY);
            }
            let gaps = gaps.join().map_err(|_| "nobody waits for the program".to_owned())??;
            Ok::<_, String>((gaps, began))
        })?;
        let until = |next: usize| began.get(next).map_or(f64::MAX, |&tick| tick as f64);
        for (number, (way, _)) in journey.iter().enumerate() {
            let during = until(number)..until(number + 1);
            let gaps = gaps.chunks_exact(2).filter(|gap| during.contains(&(gap[0] + gap[1])));
            let gaps: Vec<f64> = gaps.map(|gap| gap[1] / self.ticks).collect();
            let stands = &mut moves.stands[*way as usize];
            stands[0].push(gaps.iter().copied().fold(0.0, f64::max));
            stands[1].push(gaps.iter().sum());
        }
        Ok(())
    }

    /// Touches mappings; returns the average of frames that other instances have.
    fn touches(&self, touches: &mut [Sample; 3]) -> Result<f64, String> {
        let mut last = 0.0;
        let mut program = self.program()?;
        let [_] = program.ask(&format!("areas {AREAS}"))?;
        for (to, touches) in (0..).zip(touches) {
            if to > 0 {
                self.move_to(&program, to)?;
            }
            // Brings in the memory that the program itself needs.
            let [_] = program.ask("getppid")?;
            let took = program.ask_all("touch")?;
            took.iter().for_each(|ticks| touches.push(ticks / self.ticks));
            last = took.iter().sum::<f64>() / took.len() as f64 / self.ticks;
        }
        Ok(last)
    }

    /// Touches pages of one mapping, one by one.
    fn pages(&self, pages: &mut [Sample; 2]) -> Result<(), String> {
        let mut program = self.program()?;
        let [_] = program.ask(&format!("pages {PAGES}"))?;
        for (to, sample) in (1..).zip(pages) {
            self.move_to(&program, to)?;
            let [_] = program.ask("getppid")?;
            let took = program.ask_all("turn")?;
            // The first touch also creates the mapping.
            took.iter().skip(1).for_each(|ticks| sample.push(ticks / self.ticks));
        }
        Ok(())
    }

    fn computes(&self, moves: &mut MoveTotals) -> Result<(), String> {
        // On the processor to which the other program moves.
        let mut native = Workload::start(&[], &[ARGUMENT.to_owned(), "1".to_owned()])?;
        let mut program = self.program()?;
        for (name, calls) in CALLS.iter().zip(&mut moves.calls) {
            for (whom, sample) in [&mut native, &mut program].into_iter().zip(calls) {
                let [took] = whom.ask(name)?;
                sample.push(took / self.ticks);
            }
        }
        self.move_to(&program, 1)?;
        for (name, calls) in CALLS.iter().zip(&mut moves.calls) {
            let [_] = program.ask(name)?;
            let [took] = program.ask(name)?;
            calls[2].push(took / self.ticks);
        }
        for computation in 0..=COMPUTATIONS {
            let [of_native] = native.ask("compute")?;
            let [of_moved] = program.ask("compute")?;
            // The first computation also touches the memory that it needs.
            if computation > 0 {
                moves.computes.push(of_moved / of_native);
            }
        }
        Ok(())
    }
}
