//! `refit classes` and `refit upgrade`.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use refit_change::Report;
use refit_instance::wire::{ClassInfo, Upgrade, UpgradeLine};
use refit_instance::{Kind, Lines, Refusal};
use serde::Serialize;

use super::swap;
use crate::commands::interruption::interruption;
use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::Output;
use crate::table::{Align, Table};

/// Arguments of `refit upgrade`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit upgrade fcm partitioned
  refit upgrade fcm partitioned --rate 1000 &
  refit upgrade fcm --pause

If an object cannot be swapped, or on Ctrl-C, refit rolls back every swap, and new objects keep the old implementation.")]
pub(crate) struct UpgradeArgs {
    /// Name of the class, as in `refit classes`
    class: String,

    /// Implementation to swap to
    #[arg(required_unless_present_any = ["pause", "resume"])]
    implementation: Option<String>,

    /// Time that a batch of objects may take before everything is rolled back
    #[arg(long, default_value = "1s", value_parser = format::parse_duration, value_name = "TIME")]
    deadline: Duration,

    /// Maximum number of objects to swap per second (default: no limit)
    #[arg(long, value_name = "N")]
    rate: Option<f64>,

    /// Pause the current upgrade; until it resumes, some objects are old and some are new
    #[arg(long, conflicts_with_all = ["implementation", "rate", "resume"])]
    pause: bool,

    /// Resume the paused upgrade
    #[arg(long, conflicts_with_all = ["implementation", "rate"])]
    resume: bool,
}

#[derive(Serialize)]
struct Line<'a, T> {
    instance: u32,
    #[serde(flatten)]
    what: &'a T,
}

/// Lists the classes of all instances.
pub(crate) fn list(only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let mut found: Vec<(u32, ClassInfo)> = Vec::new();
    for Live { pid, client } in instances::live("list classes", only)? {
        found.extend(client.classes()?.into_iter().map(|class| (pid, class)));
    }
    if out.json() {
        let mut print = |instance, what| out.object(&Line { instance, what });
        return found.iter().try_for_each(|(pid, class)| print(*pid, class));
    }
    let mut table = Table::new(&[
        ("CLASS", Align::Left),
        ("DEFAULT", Align::Left),
        ("OBJECTS", Align::Right),
        ("OF", Align::Left),
    ]);
    for (_, ClassInfo { class, factory, implementation, instances }) in found {
        table.row(vec![class, implementation, format::count(instances), factory]);
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}

/// Upgrades a class on every instance that has it, or holds such an upgrade up.
pub(crate) fn upgrade(
    args: &UpgradeArgs,
    only: Option<u32>,
    out: &mut Output,
) -> Result<(), Failure> {
    let Some(implementation) = &args.implementation else {
        return pause(&args.class, args.pause, only);
    };
    let operation = format!("upgrade {} to {implementation}", args.class);
    let request = Upgrade {
        class: args.class.clone(),
        implementation: implementation.clone(),
        deadline_ms: Some(swap::millis(args.deadline)),
        rate: args.rate,
    };
    let interrupted = interruption()?;
    let mut failed = None;
    for (pid, lines) in begin(&operation, &request, only)? {
        let bar = progress(out);
        let (sender, news) = mpsc::channel();
        // Ends with the instance's answer, or with this process, which the instance notices.
        thread::spawn(move || lines.into_iter().try_for_each(|line| sender.send(line)));
        loop {
            let line = match news.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => line?,
                Err(RecvTimeoutError::Timeout) if interrupted.load(Ordering::Relaxed) => {
                    let remedy = "it is being rolled back; see `refit changes`";
                    return Err(Failure::new(operation, "it was interrupted", remedy));
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            match line {
                UpgradeLine::Progress { done, total, paused } => {
                    bar.set_length(total);
                    bar.set_position(done);
                    bar.set_message(if paused { "paused" } else { "" });
                }
                UpgradeLine::Report(report) => {
                    bar.finish_and_clear();
                    show(pid, &report, out)?;
                    failed = failed.or((!report.committed()).then_some(report));
                }
            }
        }
    }
    match failed {
        None => Ok(()),
        Some(report) => Err(Failure::new(
            operation,
            if report.rolled_back() { "it was rolled back" } else { "it was refused" },
            "see the reason above, or in `refit changes`",
        )),
    }
}

fn begin(
    operation: &str,
    request: &Upgrade,
    only: Option<u32>,
) -> Result<Vec<(u32, Lines<UpgradeLine>)>, Failure> {
    let (mut begun, mut refusals) = (Vec::new(), Vec::<Refusal>::new());
    for Live { pid, client } in instances::live(operation, only)? {
        match client.upgrade(request) {
            Ok(lines) => begun.push((pid, lines)),
            Err(refusal) if refusal.kind == Kind::Unknown => refusals.push(refusal),
            Err(refusal) => return Err(refusal.into()),
        }
    }
    match refusals.into_iter().next() {
        Some(refusal) if begun.is_empty() => Err(refusal.into()),
        _ => Ok(begun),
    }
}

fn pause(class: &str, paused: bool, only: Option<u32>) -> Result<(), Failure> {
    let operation = format!("{} the upgrade of {class}", if paused { "pause" } else { "resume" });
    let mut answers = Vec::new();
    for Live { client, .. } in instances::live(&operation, only)? {
        answers.push(client.pause(class, paused));
    }
    // One instance with such an upgrade is enough.
    if answers.iter().any(Result::is_ok) {
        return Ok(());
    }
    answers.into_iter().collect::<Result<(), Refusal>>().map_err(Failure::from)
}

fn show(instance: u32, report: &Report, out: &mut Output) -> Result<(), Failure> {
    if out.json() {
        return out.object(&Line { instance, what: report });
    }
    swap::lines(report).iter().try_for_each(|line| out.line(line))?;
    if report.committed() {
        let blocked = match report.blocked {
            0 => "no call was blocked".to_owned(),
            n => format!(
                "{} blocked, for {} at most",
                format::counted(n, "call"),
                format::nanos(report.longest_block_ns)
            ),
        };
        out.line(&format!(
            "{} swapped, {} forwarded meanwhile, {blocked}",
            format::counted(report.objects, "object"),
            format::counted(report.forwarded, "call"),
        ))?;
    }
    out.flush()
}

fn progress(out: &Output) -> ProgressBar {
    if out.json() {
        return ProgressBar::hidden();
    }
    // Draws on standard error, and only if that is a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {pos}/{len} swapped, {eta} left {msg}")
    {
        bar.set_style(style);
    }
    bar
}
