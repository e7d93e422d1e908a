//! Measures servers under load while one hot function of them is counted, while all are, libraries
//! included, and with a flag at every block: once those that are called often have been moved, as
//! `refit probe` does, and the flags that are set at first have been taken out, as `refit cover`
//! does, with `--all` or without.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use refit_probe::cover::{self, Blocks, Watching};
use refit_probe::watch;
use refit_splice::process::Program;

use crate::server::{self, Load, Start};
use crate::stats::Sample;

const ROUNDS: usize = 7;
/// Time between two looks at what has been counted.
const LOOK: Duration = Duration::from_millis(100);

/// Requests per second of a server.
pub(crate) struct Served {
    pub(crate) name: &'static str,
    pub(crate) hot: &'static str,
    /// The number of functions that are counted, and of blocks that are watched, if those with room
    /// are and if all are.
    pub(crate) places: [usize; 3],
    /// Unmodified, with the hot function counted, with all counted, with a flag at every block that
    /// has room, with a flag at every block.
    pub(crate) rates: [Sample; 5],
    pub(crate) trouble: Option<String>,
}

/// The code that is put into a server for a round.
enum Inside {
    Nothing,
    Counts(Box<watch::Watch>),
    Flags(Box<cover::Cover>),
}

pub(crate) fn measure() -> Vec<Served> {
    [
        ("redis-server, SET and GET", "processCommand", server::redis as Start),
        ("nginx, a small file", "ngx_http_process_request", server::nginx),
        ("squid, files in memory and on disk", "_Z20clientProcessRequest*", server::squid),
        ("postgres, pgbench -S", "standard_ExecutorRun", server::postgres),
        ("mariadb, sysbench oltp_point_select", "*dispatch_command*", server::mariadb),
        ("memcached, memcslap get", "sendmsg", server::memcached),
    ]
    .map(|(name, hot, start)| {
        let (places, rates, trouble) = Default::default();
        let mut served = Served { name, hot, places, rates, trouble };
        served.trouble = rounds(start, &mut served).err();
        served
    })
    .into()
}

fn rounds(start: Start, served: &mut Served) -> Result<(), String> {
    let folder = server::folder()?;
    let serving = start(folder.path())?;
    let program = Program::open(serving.id()).map_err(|e| e.to_string())?;
    for round in 0..=ROUNDS {
        for number in 0..served.rates.len() {
            let mut inside = put_in(&program, number, served)?;
            let rate = match &mut inside {
                Inside::Nothing => (serving.load)()?,
                // A thread that cannot be stopped now can be later.
                Inside::Flags(cover) => second(&serving.load, || {
                    let _ = cover.look().map(|_| cover.relieve(&program, Instant::now()));
                })?,
                Inside::Counts(watch) => second(&serving.load, || {
                    let _ = watch.move_hot(&program);
                })?,
            };
            take_out(&program, inside)?;
            // The first round fills caches, and is for the analysis.
            if round > 0 {
                served.rates[number].push(rate);
            }
        }
    }
    Ok(())
}

/// Inserts the code for the rate of this number.
fn put_in(program: &Program, number: usize, served: &mut Served) -> Result<Inside, String> {
    let probe = match number {
        0 => return Ok(Inside::Nothing),
        1 => format!("uprobe:*:{} {{ count }}", served.hot),
        2 => "uprobe:*:* { count }".to_owned(),
        _ => {
            let (which, place) = if number == 3 { (Blocks::Roomy, 1) } else { (Blocks::All, 2) };
            let prepared = cover::prepare(program, &["*".to_owned()], which, Watching::Flags);
            let cover = prepared.and_then(|flags| flags.install(program));
            let cover = cover.map_err(|e| e.to_string())?;
            let functions = cover.files.iter().flat_map(|file| &file.functions);
            served.places[place] = functions.map(|one| cover.tally(one).watched as usize).sum();
            return Ok(Inside::Flags(Box::new(cover)));
        }
    };
    let spec = probe.parse().map_err(|e| format!("{e}"))?;
    let prepared = watch::prepare(program, &[spec], None).map_err(|e| e.to_string())?;
    served.places[0] = prepared.watched.len();
    prepared.install(program).map(Box::new).map(Inside::Counts).map_err(|e| e.to_string())
}

/// Returns the rate of the second load, while refit does some times per second what its commands do
/// while they watch.
fn second(load: &Load, mut watches: impl FnMut() + Send) -> Result<f64, String> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            // Relaxed: only the end of the loop depends on it.
            while !done.load(Ordering::Relaxed) {
                watches();
                // The loads are measured, and not how soon something is seen.
                thread::sleep(LOOK);
            }
        });
        let rate = load().and_then(|_| load());
        done.store(true, Ordering::Relaxed);
        watcher.join().map_err(|_| "the watcher has panicked".to_owned())?;
        rate
    })
}

fn take_out(program: &Program, inside: Inside) -> Result<(), String> {
    match inside {
        Inside::Nothing => Ok(()),
        Inside::Counts(watch) => watch.remove(program).map(drop).map_err(|e| e.to_string()),
        Inside::Flags(mut cover) => cover.remove(program).map(drop).map_err(|e| e.to_string()),
    }
}
