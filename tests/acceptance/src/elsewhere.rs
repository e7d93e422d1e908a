//! A directory that is served by another process, which can be stopped and killed.

use refit_files::CacheMode;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process that serves a directory. Dropping it kills the process and removes its mount.
#[derive(Debug)]
pub struct ServedElsewhere {
    child: Child,
    mountpoint: PathBuf,
}

impl ServedElsewhere {
    /// Starts `program`, the crate's own `acceptance-serve`, and waits until its mount answers.
    ///
    /// # Panics
    ///
    /// The process does not start, or the mount does not answer.
    pub fn start(
        program: &str,
        (source, mountpoint): (&Path, &Path),
        cache: CacheMode,
        frames_bytes: u64,
        storm: bool,
    ) -> Self {
        let mode = if cache == CacheMode::Direct { "direct" } else { "kernel" };
        let child = Command::new(program)
            .args([source, mountpoint])
            .args([mode, &frames_bytes.to_string()])
            .args(storm.then_some("storm"))
            // When this process ends, the other one reads the end of its input and unmounts.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
        let mut this = Self { child, mountpoint: mountpoint.to_owned() };
        let mut line = String::new();
        let output = this.child.stdout.take().expect("it is piped");
        let _ = BufReader::new(output).read_line(&mut line);
        assert_eq!(line, "serving\n", "the other process has not said that it serves");
        this
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the child has not been waited for");
    }

    /// Stops the process, so that no request is answered from now on.
    ///
    /// # Panics
    ///
    /// The process cannot be signalled.
    pub fn hold(&self) {
        self.signal(Signal::STOP);
        // Threads that the signal has not reached yet still answer.
        while !refit_sys::process::stands(self.child.id()) {
            std::thread::yield_now();
        }
    }

    /// Continues the process.
    ///
    /// # Panics
    ///
    /// The process cannot be signalled.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process, as a crash would, and waits for its end. The dead mount stays.
    ///
    /// # Panics
    ///
    /// The process cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("the child is ours");
        self.child.wait().expect("the child is ours");
    }

    /// Removes the mount of a dead server.
    pub fn remove_mount(&self) {
        let _ = rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH);
    }
}

impl Drop for ServedElsewhere {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.remove_mount();
    }
}
