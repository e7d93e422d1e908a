//! `refit instruments`: what is instrumented, what it costs now, and switching it.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::ValueHint;
use refit_instance::Glob;
use refit_instruments::block::Place;
use refit_instruments::session::{Kind, Session, SessionInstrument};
use refit_instruments::write::measure_costs;
use serde::Serialize;

use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::Output;
use crate::table::{Align, Table};

/// Arguments of `refit instruments`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit instruments
  refit instruments 'FileCache::*' --suspend
  refit instruments --session /proc/4711/fd/5 --json

PER S is measured over half a second. COST is that rate times the cost of one record, measured in a loop on this host.")]
pub(crate) struct InstrumentsArgs {
    /// Pattern for names such as `FileCache::read`
    #[arg(default_value = "*")]
    glob: String,

    /// Suspend the instruments in all processes
    #[arg(long, conflicts_with_all = ["resume", "reset"])]
    suspend: bool,

    /// Resume the instruments
    #[arg(long, conflicts_with = "reset")]
    resume: bool,

    /// Reset the values of the instruments to zero
    #[arg(long)]
    reset: bool,

    /// Session to use (default: that of the instances of this user)
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    session: Option<PathBuf>,
}

/// Over what time the rate is measured.
const SPAN: Duration = Duration::from_millis(500);

#[derive(Serialize)]
struct Line<'a> {
    manager: &'a str,
    name: &'a str,
    kind: &'static str,
    count: u64,
    per_second: f64,
    /// Share of one processor.
    cost: Option<f64>,
    suspended: &'a [&'static str],
}

/// Lists or switches them.
pub(crate) fn run(
    args: &InstrumentsArgs,
    only: Option<u32>,
    out: &mut Output,
) -> Result<(), Failure> {
    let operation = format!("look at instruments {}", args.glob);
    let path = match &args.session {
        Some(path) => path.clone(),
        None => recorded(&operation, only)?,
    };
    let session = Session::open(&path).map_err(|e| {
        Failure::new(&operation, e.to_string(), "name the session of a running recording")
    })?;
    let glob = Glob::new(&args.glob);
    let matching = || {
        let mut known = session.instruments();
        known.retain(|known| glob.matches(&known.definition.name));
        known
    };
    let before = matching();
    if before.is_empty() {
        return Err(Failure::new(
            operation,
            "no instrument matches",
            "list all with `refit instruments`",
        ));
    }
    for SessionInstrument { definition, .. } in &before {
        if args.suspend || args.resume {
            session.suspend(definition.id, args.suspend);
        }
        if args.reset {
            session.reset(definition.id);
        }
    }
    let begin = Instant::now();
    let switched = args.suspend || args.resume || args.reset;
    if !switched {
        // The time that passes is what is measured.
        thread::sleep(SPAN);
    }
    let seconds = begin.elapsed().as_secs_f64().max(1e-9);
    let rate = |known: &SessionInstrument| {
        let earlier = before.iter().find(|b| b.definition.id == known.definition.id);
        let grown = known.count.saturating_sub(earlier.map_or(0, |earlier| earlier.count));
        if switched { 0.0 } else { grown as f64 / seconds }
    };
    print(&matching(), rate, out)
}

/// The session of the first instance that is recorded.
fn recorded(operation: &str, only: Option<u32>) -> Result<PathBuf, Failure> {
    for Live { client, .. } in instances::live(operation, only)? {
        if let Some(path) = client.recorded()?.into_iter().next() {
            return Ok(path);
        }
    }
    Err(Failure::new(operation, "no recording is in progress", "start one with `refit record`"))
}

fn print(
    known: &[SessionInstrument],
    rate: impl Fn(&SessionInstrument) -> f64,
    out: &mut Output,
) -> Result<(), Failure> {
    let costs = measure_costs();
    let event = costs.iter().find(|c| c.instrument == "event" && c.place == Place::InVitro);
    let nanos = event.map(|cost| refit_sys::clock::nanos((cost.ticks * 1e3) as u64) as f64 / 1e3);
    let mut table = Table::new(&[
        ("RECORDS", Align::Right),
        ("PER S", Align::Right),
        ("COST", Align::Right),
        ("KIND", Align::Left),
        ("MANAGER", Align::Left),
        ("NAME", Align::Left),
        ("SUSPENDED BY", Align::Left),
    ]);
    for one in known {
        let kind = match one.kind {
            Kind::Event => "event",
            Kind::Counter => "counter",
            Kind::Timer => "timer",
            Kind::Manager => "manager",
        };
        let per_second = rate(one);
        let cost = nanos.map(|nanos| per_second * nanos / 1e9);
        let (manager, name) = (&*one.definition.manager, &*one.definition.name);
        if out.json() {
            let (count, suspended) = (one.count, &*one.suspended);
            out.object(&Line { manager, name, kind, count, per_second, cost, suspended })?;
            continue;
        }
        table.row(vec![
            format::count(one.count),
            format::count(per_second.round() as u64),
            cost.map_or("-".into(), |cost| format!("{:.3} %", 100.0 * cost)),
            kind.into(),
            manager.into(),
            name.into(),
            one.suspended.join(", "),
        ]);
    }
    if out.json() {
        return Ok(());
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}
