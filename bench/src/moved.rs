//! A program that moves, and measures the effects on itself: the time for which it did not run, and
//! the duration of the first touch of memory, of a computation, and of a system call.
//!
//! It reads the processor's counter, because reading the kernel's clock is a system call for
//! programs that are movable.

use refit_sys::{clock, launch, processor};
use rustix::process::getppid;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

use crate::area::Area;
use crate::workload;

/// The argument with which the program is the moving one; with the number of a processor behind it,
/// it stays there.
pub(crate) const ARGUMENT: &str = "--moved";

/// The number of calls that are timed together.
pub(crate) const CALLS: usize = 1000;
/// The number of bytes that are read of a file at once.
const READ: usize = 4096;

pub(crate) fn serve(arguments: &[String]) {
    let bound = match arguments.first().map(|on| on.parse()) {
        Some(Ok(on)) => processor::bind(on),
        Some(Err(_)) => false,
        None => true,
    };
    let (mut areas, mut pages) = (Vec::new(), None);
    workload::serve(|words| match *words {
        _ if !bound => Err(format!("it cannot be bound to the processor {arguments:?}")),
        ["gaps", within, least] => Ok(gaps(number(within)?, number(least)?)),
        ["areas", count] => {
            areas = apart(number(count)? as usize)?;
            Ok(vec![0.0])
        }
        ["touch"] => Ok(areas.iter().map(|area| touch(area, 0)).collect()),
        ["pages", count] => {
            let area = Area::new(number(count)? as usize)?;
            (0..area.pages()).for_each(|page| area.word(page, 0).store(1, Relaxed));
            pages = Some(area);
            Ok(vec![0.0])
        }
        ["turn"] => {
            let area = pages.as_ref().ok_or("there are no pages")?;
            Ok((0..area.pages()).map(|page| touch(area, page)).collect())
        }
        ["go", to] => Ok(vec![go(number(to)?)?]),
        ["compute"] => Ok(vec![compute()]),
        ["getppid"] => Ok(vec![getppids()]),
        ["read"] => reads().map(|took| vec![took]),
        ["pread", "file"] => tempfile::tempfile().and_then(preads).map_err(|e| e.to_string()),
        ["pread", "memfd"] => memfd().and_then(preads).map_err(|e| e.to_string()),
        _ => Err(format!("{words:?}: nobody knows what that is")),
    });
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|error| format!("{word}: {error}"))
}

/// Reads the counter repeatedly for `within` ticks. Returns the times at which the program did not
/// run, and for how long, if that was `least` or longer.
fn gaps(within: u64, least: u64) -> Vec<f64> {
    const MOST: usize = 1 << 16;
    let mut found = vec![0.0; MOST];
    let mut count = 0;
    let begin = clock::counter();
    let mut last = begin;
    while last - begin < within {
        let now = clock::counter();
        let gap = now.wrapping_sub(last);
        // The counter of another processor may be behind by some ticks.
        if gap.cast_signed() >= least.cast_signed() && count + 2 <= MOST {
            found[count] = last as f64;
            found[count + 1] = gap as f64;
            count += 2;
        }
        last = now;
    }
    found.truncate(count);
    found
}

/// Asks to move to another instance after some computation. Returns the ticks from the request to
/// the arrival.
fn go(to: u64) -> Result<f64, String> {
    /// About a millisecond, in ticks.
    const WHILE: u64 = 2_000_000;
    let end = clock::counter() + WHILE;
    while clock::counter() < end {}
    let began = clock::counter();
    launch::request(launch::MOVE, to).map_err(|error| format!("go to instance {to}: {error}"))?;
    Ok((clock::counter() - began) as f64)
}

/// Returns `count` areas of one page, each a mapping of its own, which have been written to.
fn apart(count: usize) -> Result<Vec<Area>, String> {
    let all: Result<Vec<Area>, String> = (0..2 * count).map(|_| Area::new(1)).collect();
    let areas: Vec<Area> = all?.into_iter().step_by(2).collect();
    areas.iter().for_each(|area| area.word(0, 0).store(1, Relaxed));
    Ok(areas)
}

/// Returns the ticks of one access.
fn touch(area: &Area, page: usize) -> f64 {
    let began = clock::counter();
    area.word(page, 1).store(1, Relaxed);
    (clock::counter() - began) as f64
}

/// Returns the ticks of a computation in registers and in a cache's worth of memory.
fn compute() -> f64 {
    const ROUNDS: u64 = 20_000_000;
    let mut table = [0_u64; 1024];
    let mut state = 1_u64;
    let began = clock::counter();
    for round in 0..ROUNDS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
        let at = (state >> 54) as usize;
        table[at] = table[at].wrapping_add(state);
    }
    black_box(table);
    (clock::counter() - began) as f64
}

/// Returns the ticks of a system call that does nothing.
fn getppids() -> f64 {
    let began = clock::counter();
    for _ in 0..CALLS {
        black_box(getppid());
    }
    (clock::counter() - began) as f64 / CALLS as f64
}

/// Creates a file that exists in no directory, which a thread's shadow reads, wherever the thread
/// runs.
fn memfd() -> io::Result<File> {
    Ok(rustix::fs::memfd_create(c"nowhere", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// Returns the ticks of a system call that reads [`READ`] bytes of a file.
fn preads(file: File) -> io::Result<Vec<f64>> {
    let mut bytes = [1; READ];
    file.write_all_at(&bytes, 0)?;
    let began = clock::counter();
    for _ in 0..CALLS {
        file.read_exact_at(black_box(&mut bytes), 0)?;
    }
    Ok(vec![(clock::counter() - began) as f64 / CALLS as f64])
}

/// Returns the ticks of a system call that reads a byte of a pipe.
fn reads() -> Result<f64, String> {
    let (reader, writer) = rustix::pipe::pipe().map_err(|e| e.to_string())?;
    rustix::io::write(&writer, &[1; CALLS]).map_err(|e| e.to_string())?;
    let began = clock::counter();
    for _ in 0..CALLS {
        let mut byte = [0];
        rustix::io::read(&reader, &mut byte).map_err(|e| e.to_string())?;
    }
    Ok((clock::counter() - began) as f64 / CALLS as f64)
}
