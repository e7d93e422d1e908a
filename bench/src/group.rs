//! KernInst's case (Tamches and Miller 2001): one function and the hot code that it calls are laid
//! out anew in a running program, and an invocation becomes faster. There it was `tcp_rput_data` of
//! the kernel of Solaris; here it is what a server does for a request, and the matcher of Perl's
//! regular expressions.

use std::process::Command;
use std::time::Duration;

use refit_optimize::{Options, Step, optimize};
use refit_probe::watch::{self, Watch};
use refit_probe::{reading::Reading, spec::Spec};
use refit_splice::process::{Program, Refusal, STOP_TIMEOUT, Still};
use refit_splice::remains;

use crate::layouts::{compare, load, while_loaded};
use crate::server;
use crate::stats::Sample;
use crate::worker::Worker;

/// Number of windows, half of them with the copies.
const WINDOWS: usize = 24;
/// Time in which invocations are timed.
const WINDOW: Duration = Duration::from_secs(1);

/// A function that is laid out, with what it calls.
#[derive(Default)]
pub(crate) struct Group {
    /// The program and its load.
    pub(crate) name: &'static str,
    /// The function.
    pub(crate) root: &'static str,
    /// The probe by which invocations are timed: at a caller that stays as it is and does little
    /// else.
    timed: &'static str,
    /// Functions and blocks that were laid out.
    pub(crate) laid_out: (usize, usize),
    /// Time of an invocation, in nanoseconds, without and with the copies.
    pub(crate) invocations: [Sample; 2],
    /// Units of work per second, without and with the copies.
    pub(crate) rates: [Sample; 2],
    pub(crate) trouble: Option<String>,
}

/// Work that is done while a program is loaded.
type Work<'w> = &'w mut (dyn FnMut() -> Result<(), String> + Send);

pub(crate) fn measure() -> Vec<Group> {
    let mariadb = Group {
        name: "mariadbd, sysbench oltp_point_select",
        root: "_Z21mysql_execute_commandP3THDb",
        timed: "uprobe:mariadbd:_Z16dispatch_command* { latency }",
        ..Group::default()
    };
    let perl = Group {
        name: "perl, matches.pl",
        root: "Perl_regexec_flags",
        timed: "uprobe:perl:Perl_pp_match { latency }",
        ..Group::default()
    };
    let measured = |mut group: Group, measure: fn(&mut Group) -> Result<(), String>| {
        eprintln!("group: {} of {}", group.root, group.name);
        group.trouble = measure(&mut group).err();
        group
    };
    vec![measured(mariadb, of_mariadb), measured(perl, of_perl)]
}

fn of_mariadb(group: &mut Group) -> Result<(), String> {
    let folder = server::folder()?;
    let serving = server::mariadb(folder.path())?;
    let program = Program::open(serving.worker()?).map_err(|e| e.to_string())?;
    (serving.load)()?;
    lay_out(&program, group, &serving.load, &|work| while_loaded(&serving.load, work))
}

fn of_perl(group: &mut Group) -> Result<(), String> {
    let worker = Worker::start(Command::new("perl").arg(load("matches.pl")))?;
    let program = Program::open(worker.id()).map_err(|e| e.to_string())?;
    lay_out(&program, group, &|| worker.rate(), &|work| work())
}

/// Lays out a group, and measures what that changes; `while_loaded` does something while the
/// program works.
fn lay_out(
    program: &Program,
    group: &mut Group,
    rate: &dyn Fn() -> Result<f64, String>,
    while_loaded: &dyn Fn(Work<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let functions = Some(group.root.to_owned());
    let options = Options { functions, unproved: true, placebo: 0, ..Options::default() };
    let mut installed = None;
    while_loaded(&mut || {
        let outcome = optimize(program, &options, &mut |step| {
            if let Step::LaidOut(functions, blocks, ..) = step {
                group.laid_out = (*functions, *blocks);
            }
        });
        installed = outcome.map_err(|e| e.to_string())?.installed;
        Ok(())
    })?;
    let installed = installed.ok_or("nothing was installed")?;
    group.rates = compare(program, &installed, WINDOWS, rate)?;
    let spec = group.timed.parse::<Spec>().map_err(|e| e.to_string())?;
    let prepared = watch::prepare(program, &[spec], None).map_err(|e| e.to_string())?;
    let watch = prepared.install(program).map_err(|e| e.to_string())?;
    while_loaded(&mut || {
        let measure = || invocation(program, &watch);
        group.invocations = compare(program, &installed, WINDOWS, measure)?;
        Ok(())
    })?;
    watch.remove(program).map_err(|e| e.to_string())?;
    remains::repair(program).map(drop).map_err(|e| e.to_string())
}

/// Returns the mean time of an invocation from now on, in nanoseconds.
fn invocation(program: &Program, watch: &Watch) -> Result<f64, String> {
    let (before, time) = timed(program, watch)?;
    // The program works meanwhile: this is what is measured.
    std::thread::sleep(WINDOW);
    let (after, later) = timed(program, watch)?;
    if after == before {
        return Err("no invocation has ended".to_owned());
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
