//! A program that works for ever, and writes a line for each unit of work.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which units are counted.
const WINDOW: Duration = Duration::from_secs(2);
/// Least number of lines in it, between which the time is taken.
const LEAST: usize = 5;

/// The program; killed when it is dropped.
pub(crate) struct Worker {
    child: Child,
    /// When the lines have come.
    lines: Arc<Mutex<Vec<Instant>>>,
}

impl Worker {
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let output = child.stdout.take().ok_or("no pipe")?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let worker = Self { child, lines: Arc::clone(&lines) };
        // It ends with the program, whose output ends then.
        thread::spawn(move || {
            for _ in BufReader::new(output).lines().map_while(Result::ok) {
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
            }
        });
        // An interpreter has read its script by then.
        worker.rate().map(|_| worker)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the units of work per second, from now on.
    pub(crate) fn rate(&self) -> Result<f64, String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut windows = 0;
        loop {
            // The program works meanwhile: this is what is measured.
            thread::sleep(WINDOW);
            windows += 1;
            let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if let [first, .., last] = lines[..]
                && lines.len() >= LEAST
            {
                return Ok((lines.len() - 1) as f64 / (last - first).as_secs_f64());
            }
            if windows == 10 {
                return Err("the program does not work".to_owned());
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
