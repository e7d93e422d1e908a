//! Measures work that consists of names and attributes: unpacking, searching, `git status` and
//! `npm ci`, on a mount and without one.
//!
//! The contenders take turns, round after round. "First" is the first time after a mount, when the
//! caches of the mount are empty; those of the file system below it are full, as they are for the
//! contender without a server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Resource, getrlimit};

use crate::files::{Place, Server, Serving, variable};
use crate::stats::Sample;

const ROUNDS: usize = 3;

/// The contenders; the last is no server.
pub(crate) const CONTENDERS: [&str; 5] = [
    "`refit mount`",
    "`--cache exclusive`",
    "`--cache passthrough`",
    "passthrough_hp",
    "no server",
];

/// The works, and whether each is done with caches that are full.
pub(crate) const WORK: [(&str, bool); 8] = [
    ("tar x, 11,300 files of Linux", false),
    ("find, first", false),
    ("find", true),
    ("grep -r, first", false),
    ("grep -r", true),
    ("git status, first", false),
    ("git status", true),
    ("npm ci, 120 packages, 6,000 files", false),
];

/// Seconds: `[contender][work]`.
pub(crate) type Times = [[Sample; WORK.len()]; CONTENDERS.len()];

/// The trees that all contenders use.
struct Trees {
    archive: PathBuf,
    repository: PathBuf,
    project: PathBuf,
}

pub(crate) fn measure() -> Result<Times, String> {
    let place = Place::new().map_err(|e| format!("a scratch directory: {e}"))?;
    let made = |what: &str| tree(what, &place.other(what));
    let trees = Trees {
        archive: made("kernel")?.join("linux.tar"),
        repository: made("repository")?,
        project: made("packages")?,
    };
    let mut times = Times::default();
    for round in 0..ROUNDS {
        for turn in 0..CONTENDERS.len() {
            let contender = (round + turn) % CONTENDERS.len();
            let measured = one_round(contender, &place, &trees)?;
            times[contender].iter_mut().zip(measured).for_each(|(sample, t)| sample.push(t));
        }
        eprintln!("metadata: round {} of {ROUNDS}", round + 1);
    }
    Ok(times)
}

/// Returns the number of files of the git repository: 50,000, or as many as servers can serve that
/// have a descriptor for each.
pub(crate) fn repository_files() -> u64 {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    (limit / 10 * 6 / 100 * 100).min(50_000)
}

/// Makes a tree. Returns its path.
fn tree(what: &str, path: &Path) -> Result<PathBuf, String> {
    let mut command = Command::new("sh");
    command.env("FILES", repository_files().to_string());
    let made = command.arg(variable("TREES")).arg(what).arg(path).status();
    match made {
        Ok(status) if status.success() => Ok(path.to_owned()),
        _ => Err(format!("the tree `{what}` could not be made")),
    }
}

/// Serves a directory by a contender. Returns the server, if there is one, and the directory in
/// which programs work.
fn served(contender: usize, place: &Place, directory: &Path) -> (Option<Serving>, PathBuf) {
    let serving = match contender {
        0 => Serving::refit_over(place, directory, &[]),
        1 => Serving::refit_over(place, directory, &["--cache", "exclusive"]),
        2 => Serving::refit_over(place, directory, &["--cache", "passthrough"]),
        3 => Serving::start_over(Server::Peer, true, place, directory),
        _ => return (None, directory.to_owned()),
    };
    (Some(serving), place.mountpoint())
}

fn one_round(contender: usize, place: &Place, trees: &Trees) -> Result<[f64; WORK.len()], String> {
    let source = place.cleared();
    let (serving, at) = served(contender, place, &source);
    let unpacked = seconds(Command::new("tar").arg("-xf").arg(&trees.archive).arg("-C").arg(&at))?;
    drop(serving);

    let (serving, at) = served(contender, place, &source);
    let find = || seconds(Command::new("find").arg(&at).args(["-name", "*.c", "-size", "+4k"]));
    let grep = || seconds(Command::new("grep").args(["-r", "-l", "copy_from_user"]).arg(&at));
    let [found, found_again] = [find()?, find()?];
    let [searched, searched_again] = [grep()?, grep()?];
    drop(serving);

    let (serving, at) = served(contender, place, &trees.repository);
    let status = || seconds(Command::new("git").arg("-C").arg(&at).args(["status", "--porcelain"]));
    let [seen, seen_again] = [status()?, status()?];
    drop(serving);

    let (serving, at) = served(contender, place, &place.cleared());
    seconds(Command::new("cp").arg("-r").arg(trees.project.join(".")).arg(&at))?;
    let install = ["ci", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"];
    let installed = seconds(Command::new("npm").args(install).current_dir(&at))?;
    drop(serving);
    Ok([unpacked, found, found_again, searched, searched_again, seen, seen_again, installed])
}

/// Runs a program to its end.
fn seconds(command: &mut Command) -> Result<f64, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let began = Instant::now();
    let status = command.stdout(Stdio::null()).status().map_err(|e| format!("{program}: {e}"))?;
    let took = began.elapsed().as_secs_f64();
    if status.success() { Ok(took) } else { Err(format!("{program} failed: {status}")) }
}
