//! Sets of processors, as people write them.

use std::io;
use std::time::Duration;

use refit_sys::pidfd::Pidfd;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the processors that this process may use.
pub(crate) fn own() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&one| set.is_set(one)).collect()
}

/// Parses a set, e.g. `0-3,6`.
pub(crate) fn parse(list: &str) -> Result<Vec<usize>, String> {
    let own = own();
    let mut found = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let malformed = |_| format!("`{list}` is not a list of processors");
            text.trim().parse::<usize>().map_err(malformed)
        };
        let (first, last) = (number(first)?, number(last)?);
        if last >= CpuSet::MAX_CPU || !(first..=last).all(|one| own.contains(&one)) {
            return Err(format!(
                "some processors of {list} do not exist, or this process may not use them"
            ));
        }
        found.extend(first..=last);
    }
    found.sort_unstable();
    found.dedup();
    match found.is_empty() {
        true => Err(format!("`{list}` names no processor")),
        false => Ok(found),
    }
}

/// Returns a set in that form.
pub(crate) fn list(processors: &[usize]) -> String {
    let texts: Vec<String> = processors.iter().map(usize::to_string).collect();
    texts.join(",")
}

/// Binds this process, and its future children, to these processors.
pub(crate) fn bind(processors: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    processors.iter().for_each(|&one| set.set(one));
    Ok(sched_setaffinity(None, &set)?)
}

/// Asks a process to end, and waits for it.
pub(crate) fn end(process: u32) {
    let Ok(handle) = Pidfd::open(process) else { return };
    // A failure means that the process has ended.
    let _ = handle.signal(signal_hook::consts::SIGTERM);
    let _ = handle.wait_for_end(Duration::from_secs(10));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_what_they_say() {
        let first = own()[0];
        assert_eq!(parse(&first.to_string()), Ok(vec![first]));
        assert_eq!(parse(&list(&own())), Ok(own()));
        for text in ["", "x", "1-", "99999", "0-99999", "3-1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
