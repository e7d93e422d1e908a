//! Replaces the hot code of a program by copies in another order again and again, until it ends:
//! `rearrange PID [FILE]`. For `ci/rearranged.sh`.

use std::error::Error;
use std::time::Duration;

use refit_optimize::layout::Hot;
use refit_optimize::{calls, profile};
use refit_probe::files::Files;
use refit_probe::finder;
use refit_splice::process::Program;
use refit_splice::remains::{self, Which};
use refit_splice::{Arrangement, Installed, Plan};

/// Time for which the program is profiled, and for which copies stay.
const PROFILE: Duration = Duration::from_millis(500);
const STAY: Duration = Duration::from_secs(2);
/// Number of orders by chance for each profile.
const ORDERS: u64 = 6;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let id = arguments.next().ok_or("which process?")?.parse()?;
    let part = arguments.next();
    let program = Program::open(id)?;
    let mut round = 0;
    loop {
        match replace(&program, part.as_deref(), round) {
            Ok(replaced) => println!("{round}: {replaced} functions"),
            // Whatever stood in the way: the program has ended, or goes on as it is.
            Err(_) if !std::path::Path::new(&format!("/proc/{id}/maps")).exists() => break,
            Err(error) => println!("{round}: {error}"),
        }
        round += 1;
    }
    println!("{round} rounds");
    Ok(())
}

/// Profiles the program, and has its hot code run in copies of three orders, one after the other.
/// Returns the number of functions that were copied.
fn replace(program: &Program, part: Option<&str>, seed: u64) -> Result<usize, Box<dyn Error>> {
    let mut files = Files::new(program)?;
    let has = |file: &usize, part| files.mapped(*file).path.to_string_lossy().contains(part);
    let found = match part {
        Some(part) => files.all().find(|file| has(file, part)),
        None => files.own(program),
    };
    let file = found.ok_or("no such file")?;
    files.open(file)?;
    let changed = profile::changed(program, &mut files, file)?;
    let called = profile::called(program, &mut files, file, &changed, PROFILE)?;
    let functions = profile::hot(&files, file, &called, &changed);
    let profile = profile::blocks(program, &mut files, file, &functions, PROFILE)?;
    let targets = calls::targets(program, &mut files, file, &profile, PROFILE / 2)?;
    let (module, bias) = files.open(file)?;
    let hot = Hot::new(module, bias, (&profile, &targets), &Default::default());
    let any = (0..ORDERS).map(|order| hot.any_order(seed * ORDERS + order));
    let any = any.map(|order| hot.arrangement(&order));
    for arrangement in [hot.arrangement(&hot.new_order()), hot.placebo()].into_iter().chain(any) {
        run_in_copies(program, &mut files, arrangement)?;
    }
    Ok(hot.len().0)
}

fn run_in_copies(
    program: &Program,
    files: &mut Files,
    arrangement: Arrangement,
) -> Result<(), Box<dyn Error>> {
    let (mut plan, _) = Plan::arranged(arrangement);
    finder::add(program, files, &mut plan);
    let installed = Installed::new(program, &plan, 0, None)?;
    std::thread::sleep(STAY / 2);
    installed.leave(program, || ())?;
    installed.enter(program, || ())?;
    std::thread::sleep(STAY / 2);
    remains::take_out(program, Which::Arrangements)?;
    Ok(())
}
