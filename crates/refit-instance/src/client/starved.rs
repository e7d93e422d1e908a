//! Whether an instance is silent because it gets no processor.
//!
//! Linux can leave a runnable thread waiting for many seconds while others use the processors
//! (`CAVEATS.md`, "Hosts"). An instance that waits for one is neither stopped nor dead, and answers
//! when it gets it.

use std::path::Path;

use refit_sys::process::{life, name, threads};

/// The thread that serves the control API. It hands much of the work to others.
const CONTROL: &str = "refit-control";

/// Returns whether a thread that would answer at `socket`, or on which the answer depends, is
/// waiting for a processor: any thread of the process that serves the API.
pub(super) fn waits_for_a_processor(socket: &Path) -> bool {
    let number = socket.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
    let Some(first) = number else { return false };
    // The process that was started, or what serves in its place.
    let mut processes = vec![first];
    let mut at = 0;
    while let Some(process) = processes.get(at).copied() {
        processes.extend(children(process));
        at += 1;
    }
    let serves = |all: &Vec<u32>| all.iter().any(|id| name(*id) == CONTROL);
    let mut serving = processes.into_iter().map(threads).filter(serves).flatten();
    serving.any(|thread| life(thread).is_some_and(|life| life.state == b'R'))
}

/// Returns the children of the first thread of a process; none if the kernel does not list them.
fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let list = std::fs::read_to_string(path).unwrap_or_default();
    list.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn threads_that_run_or_could_run_are_told_from_those_that_wait() {
        let socket = format!("/run/{}.sock", std::process::id());
        let end = Arc::new(AtomicBool::new(false));
        let until_the_end = |name: &str, turn: fn()| {
            let end = Arc::clone(&end);
            let run = move || {
                while !end.load(Relaxed) {
                    turn();
                }
            };
            thread::Builder::new().name(name.into()).spawn(run).unwrap()
        };
        // Another thread has the work, and the control thread waits for it.
        let work = until_the_end("refit-change", std::hint::spin_loop);
        let control = until_the_end(CONTROL, || thread::park_timeout(Duration::from_millis(10)));
        while !waits_for_a_processor(Path::new(&socket)) {
            thread::yield_now();
        }
        end.store(true, Relaxed);
        work.join().unwrap();
        control.join().unwrap();
        assert!(!waits_for_a_processor(Path::new("/run/none.sock")));
        // A process without such a thread. Processes of others may have children that have one.
        let mut other = Command::new("sleep").arg("100").spawn().unwrap();
        let socket = format!("/run/{}.sock", other.id());
        assert!(!waits_for_a_processor(Path::new(&socket)));
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
