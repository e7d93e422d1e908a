//! `refit changes`: the journal of one instance or of all.
//!
//! Several instances are read one after the other, or, when they are followed, side by side: a
//! thread each, whose lines meet in a channel.

use std::sync::mpsc;
use std::thread;

use clap::Args;
use refit_change::{End, Report};
use refit_instance::Refusal;
use refit_instance::wire::{ChangesQuery, JournalLine};
use serde::Serialize;

use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::Output;

/// Arguments of `refit changes`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  refit changes -f --json")]
pub(crate) struct ChangesArgs {
    /// Keep running, and print changes as they complete
    #[arg(short, long)]
    follow: bool,

    /// Print at most this many of the latest existing entries
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<usize>,
}

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    line: &'a JournalLine,
}

/// Prints the journal.
pub(crate) fn run(args: &ChangesArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let live = instances::live("read the journal", only)?;
    if !args.follow {
        for Live { pid, client } in live {
            let query = ChangesQuery { follow: false, from: None, last: args.last };
            for line in client.changes(&query)? {
                print(pid, &line?, out)?;
            }
        }
        return Ok(());
    }
    let (sender, lines) = mpsc::channel::<(u32, Result<JournalLine, Refusal>)>();
    for Live { pid, client } in live {
        let query = ChangesQuery { follow: true, from: None, last: args.last };
        let journal = client.changes(&query)?;
        let sender = sender.clone();
        // Ends with its instance, or with this process.
        thread::spawn(move || journal.into_iter().try_for_each(|line| sender.send((pid, line))));
    }
    drop(sender);
    loop {
        // The existing changes are printed at once; the output is flushed before waiting.
        let next = match lines.try_recv() {
            Ok(next) => next,
            Err(_) => {
                out.flush()?;
                let Ok(next) = lines.recv() else { return Ok(()) };
                next
            }
        };
        match next {
            (pid, Ok(line)) => print(pid, &line, out)?,
            (pid, Err(refusal)) => say!("refit: instance {pid}: {}", refusal.obstacle),
        }
    }
}

fn print(instance: u32, line: &JournalLine, out: &mut Output) -> Result<(), Failure> {
    if out.json() {
        return out.object(&Line { instance, line });
    }
    match line {
        JournalLine::Entry { report, .. } => out.line(&entry(report)),
        JournalLine::Lost { lost } => out.line(&format!(
            "… {} entries overwritten before they could be read",
            format::count(*lost)
        )),
    }
}

/// One line for one change; the name last, why it failed after that.
pub(crate) fn entry(report: &Report) -> String {
    let change = &report.change;
    let mut line = format!(
        "{}  {:>6}  {:<11}  {:>8}  {} → {}  {}",
        clock(change.began_us),
        change.id,
        end(&report.end),
        format::nanos(report.total_ns()),
        change.from,
        change.to,
        change.target,
    );
    if let End::RolledBack(why) | End::Refused(why) = &report.end {
        line.push_str(": ");
        line.push_str(why);
    } else if let Some(why) = change.owner.strip_prefix("refit: ") {
        // The change was not requested by a user.
        line.push_str(": ");
        line.push_str(why);
    }
    line
}

/// The word for an end.
pub(crate) fn end(end: &End) -> &'static str {
    match end {
        End::Committed => "committed",
        End::RolledBack(_) => "rolled back",
        End::Refused(_) => "refused",
        End::Rehearsed => "dry run",
    }
}

/// Local time of day with milliseconds, and the date before it.
fn clock(began_us: u64) -> String {
    let micros = i64::try_from(began_us).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_microsecond(micros) {
        Ok(time) => {
            let local = time.to_zoned(jiff::tz::TimeZone::system());
            local.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
        }
        Err(_) => "?".into(),
    }
}
