//! KernInst's case (Tamches and Miller 2001): one function and the hot code that it calls are laid
//! out anew in a running program, and an invocation becomes faster. There it was `tcp_rput_data` of
//! the kernel of Solaris; here it is the matcher of Perl's regular expressions.

use std::process::Command;
use std::time::Duration;

use refit_optimize::{Options, Step, optimize};
use refit_probe::watch::{self, Watch};
use refit_probe::{reading::Reading, spec::Spec};
use refit_splice::process::{Program, Refusal, STOP_TIMEOUT, Still};
use refit_splice::remains;

use crate::layouts::{compare, load};
use crate::stats::Sample;
use crate::worker::Worker;

/// The function that is laid out, with what it calls.
const ROOT: &str = "Perl_regexec_flags";
/// Its caller, which stays as it is. It does little else.
const TIMED: &str = "uprobe:perl:Perl_pp_match { latency }";
/// Number of windows, half of them with the copies.
const WINDOWS: usize = 24;
/// Time in which invocations are timed.
const WINDOW: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Group {
    /// Functions and blocks that were laid out.
    pub(crate) laid_out: (usize, usize),
    /// Time of an invocation, in nanoseconds, without and with the copies.
    pub(crate) invocations: [Sample; 2],
    /// Units of work per second, without and with the copies.
    pub(crate) rates: [Sample; 2],
    pub(crate) trouble: Option<String>,
}

pub(crate) fn measure() -> Group {
    let mut group = Group::default();
    eprintln!("group: {ROOT}");
    group.trouble = lay_out(&mut group).err();
    group
}

fn lay_out(group: &mut Group) -> Result<(), String> {
    let worker = Worker::start(Command::new("perl").arg(load("matches.pl")))?;
    let program = Program::open(worker.id()).map_err(|e| e.to_string())?;
    let functions = Some(ROOT.to_owned());
    let options = Options { functions, unproved: true, placebo: 0, ..Options::default() };
    let outcome = optimize(&program, &options, &mut |step| {
        if let Step::LaidOut(functions, blocks, ..) = step {
            group.laid_out = (*functions, *blocks);
        }
    });
    let installed = outcome.map_err(|e| e.to_string())?.installed.ok_or("nothing was installed")?;
    group.rates = compare(&program, &installed, WINDOWS, || worker.rate())?;
    let spec = TIMED.parse::<Spec>().map_err(|e| e.to_string())?;
    let prepared = watch::prepare(&program, &[spec], None).map_err(|e| e.to_string())?;
    let watch = prepared.install(&program).map_err(|e| e.to_string())?;
    group.invocations = compare(&program, &installed, WINDOWS, || invocation(&program, &watch))?;
    watch.remove(&program).map_err(|e| e.to_string())?;
    remains::repair(&program).map(drop).map_err(|e| e.to_string())
}

/// Returns the mean time of an invocation from now on, in nanoseconds.
fn invocation(program: &Program, watch: &Watch) -> Result<f64, String> {
    let (before, time) = timed(program, watch)?;
    // The program works meanwhile: this is what is measured.
    std::thread::sleep(WINDOW);
    let (after, later) = timed(program, watch)?;
    if after == before {
        return Err(format!("{TIMED}: no call has ended"));
    }
    Ok((later - time) as f64 / (after - before) as f64)
}

/// Returns the number of calls that have ended, and the time in all, of a program that is stopped
/// meanwhile: a call that ends while its time is read would be counted with a part of it.
fn timed(program: &Program, watch: &Watch) -> Result<(u64, u64), String> {
    let read = |_: &mut Still<'_>| Ok::<_, Refusal>(sum(watch));
    let (sum, _) = program.stand_still(STOP_TIMEOUT, read).map_err(|e| e.to_string())?;
    sum
}

fn sum(watch: &Watch) -> Result<(u64, u64), String> {
    let mut all = (0, 0);
    for watching in watch.watched.iter().flat_map(|place| &place.actions) {
        let counts = watch.read(watching).map_err(|e| e.to_string())?;
        if let Reading::Latency { ended, nanos, .. } = counts.all {
            all = (all.0 + ended, all.1 + nanos);
        }
    }
    Ok(all)
}
