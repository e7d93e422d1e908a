//! `refit changes`: the journal of one instance or of all, and that of changes that commands have
//! made of programs.
//!
//! They are read one after the other, or, when they are followed, side by side: a thread each,
//! whose lines meet in a channel.

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
use crate::journal;
use crate::output::Output;

/// Arguments of `refit changes`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit changes -f --json

Without --instance, changes of programs that `refit optimize` has made are listed, too; their instance is null in JSON.")]
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
    /// The instance; `None` if a command has made the change.
    instance: Option<u32>,
    #[serde(flatten)]
    line: &'a JournalLine,
}

/// A message of a journal that is followed.
enum Item {
    Line(Option<u32>, JournalLine),
    Refused(u32, Refusal),
    /// An instance has ended.
    Ended,
}

/// Prints the journal.
pub(crate) fn run(args: &ChangesArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let commands = only.is_none();
    let made = if commands { journal::read() } else { Vec::new() };
    // Without instances, only commands can have made changes.
    let live = match &made[..] {
        [] => instances::live("read the journal", only)?,
        _ => instances::answering(None)?,
    };
    if args.follow {
        return follow(args, live, commands, out);
    }
    for Live { pid, client } in live {
        let query = ChangesQuery { follow: false, from: None, last: args.last };
        for line in client.changes(&query)? {
            print(Some(pid), &line?, out)?;
        }
    }
    latest(made, args.last).into_iter().try_for_each(|report| print(None, &entry_of(report), out))
}

fn follow(
    args: &ChangesArgs,
    live: Vec<Live>,
    commands: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let (sender, items) = mpsc::channel();
    let mut left = live.len();
    for Live { pid, client } in live {
        let query = ChangesQuery { follow: true, from: None, last: args.last };
        let journal = client.changes(&query)?;
        let sender = sender.clone();
        // Ends with its instance, or with this process.
        thread::spawn(move || {
            let item = |line: Result<_, _>| match line {
                Ok(line) => Item::Line(Some(pid), line),
                Err(refusal) => Item::Refused(pid, refusal),
            };
            let sent = journal.into_iter().try_for_each(|line| sender.send(item(line)));
            sent.and_then(|()| sender.send(Item::Ended))
        });
    }
    let ends = left > 0;
    if commands {
        let last = args.last;
        thread::spawn(move || follow_commands(last, &sender));
    } else {
        drop(sender);
    }
    loop {
        // The existing changes are printed at once; the output is flushed before waiting.
        let next = match items.try_recv() {
            Ok(next) => next,
            Err(_) => {
                out.flush()?;
                let Ok(next) = items.recv() else { return Ok(()) };
                next
            }
        };
        match next {
            Item::Line(instance, line) => print(instance, &line, out)?,
            Item::Refused(pid, refusal) => say!("refit: instance {pid}: {}", refusal.obstacle),
            Item::Ended => left -= 1,
        }
        if ends && left == 0 {
            return Ok(());
        }
    }
}

/// Sends the changes that commands have made, and make from now on, until nobody receives them.
fn follow_commands(last: Option<usize>, to: &mpsc::Sender<Item>) {
    let mut follower = journal::Follower::default();
    let mut new = latest(follower.read(), last);
    while new.drain(..).all(|report| to.send(Item::Line(None, entry_of(report))).is_ok()) {
        new = follower.wait();
    }
}

/// Returns the last ones, at most this many.
fn latest(mut reports: Vec<Report>, last: Option<usize>) -> Vec<Report> {
    let surplus = last.map_or(0, |last| reports.len().saturating_sub(last));
    reports.drain(..surplus);
    reports
}

/// Returns the line of a change that a command has made. Such changes are numbered from 1 on, and
/// positions from 0 on.
fn entry_of(report: Report) -> JournalLine {
    JournalLine::Entry { seq: report.change.id.saturating_sub(1), report: Box::new(report) }
}

fn print(instance: Option<u32>, line: &JournalLine, out: &mut Output) -> Result<(), Failure> {
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
    } else if !report.effect.is_empty() {
        line.push_str(": ");
        line.push_str(&report.effect);
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
