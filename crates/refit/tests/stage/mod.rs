//! The environment in which the command is tested.

#![allow(dead_code, clippy::allow_attributes, reason = "each test uses some of it")]

pub(crate) mod running;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A world of its own: sockets and directories that no other test sees.
pub(crate) struct Stage {
    pub(crate) top: TempDir,
}

/// `refit mount` in the background; killed and removed if a test fails half-way.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) mountpoint: PathBuf,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let top = tempfile::tempdir().expect("a temporary directory");
        for name in ["source", "mnt"] {
            fs::create_dir(top.path().join(name)).expect("made");
        }
        Stage { top }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    pub(crate) fn refit(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
        command.args(args).env("REFIT_RUNTIME_DIR", self.path("sockets"));
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    /// Runs the command to its end; returns exit code, standard output, standard error.
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.refit(args).output().expect("it starts");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (status.code().unwrap_or(-1), text(stdout), text(stderr))
    }

    /// Asserts a refusal: exit code 1, nothing on standard output, one line that contains `says`.
    pub(crate) fn refuses(&self, args: &[&str], says: &str) {
        let (code, stdout, stderr) = self.run(args);
        assert_eq!(code, 1, "{args:?}: {stdout}{stderr}");
        assert_eq!(stdout, "", "{args:?}");
        assert!(stderr.starts_with("refit: ") && stderr.contains(says), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    }

    /// Asserts a refusal before which something may have been printed.
    pub(crate) fn refuses_after_output(&self, args: &[&str], says: &str) {
        let (code, stdout, stderr) = self.run(args);
        assert_eq!(code, 1, "{args:?}: {stdout}{stderr}");
        assert!(stderr.lines().any(|l| l.starts_with("refit: ") && l.contains(says)), "{stderr}");
    }

    pub(crate) fn sockets(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("sockets")) else { return Vec::new() };
        entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Removes the logs that contain nothing but losses. Instances that are shut down one after the
    /// other may log which others they have lost, and which they had again before.
    pub(crate) fn forget_losses(&self) {
        for log in self.sockets().into_iter().filter(|name| name.ends_with(".log")) {
            let log = self.path("sockets").join(log);
            let text = fs::read_to_string(&log).unwrap_or_default();
            let of_losses = |line: &str| {
                line.contains(" has lost instance ") || line.contains(" again, after ")
            };
            if text.lines().all(of_losses) {
                let _ = fs::remove_file(log);
            }
        }
    }

    /// Serves `source` on `mnt`, and waits until it reports that. `None` where nothing can be
    /// mounted.
    pub(crate) fn serve(&self) -> Option<Serving> {
        self.serve_with(&[])
    }

    /// As [`Self::serve`], with more arguments.
    pub(crate) fn serve_with(&self, arguments: &[&str]) -> Option<Serving> {
        if !can_mount() {
            println!("skipped: no /dev/fuse, or no permission to mount");
            return None;
        }
        let (source, mountpoint) = (self.path("source"), self.path("mnt"));
        let mut child = self
            .refit(&["--json", "mount"])
            .args([&source, &mountpoint])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it can be read");
        assert!(line.contains("\"serving\""), "{line}");
        Some(Serving { child, mountpoint })
    }
}

/// Asserts that no instance has logged an error of its own.
impl Drop for Stage {
    fn drop(&mut self) {
        for log in self.sockets().into_iter().filter(|name| name.ends_with(".log")) {
            let text = fs::read_to_string(self.path("sockets").join(&log)).unwrap_or_default();
            assert!(text.is_empty() || std::thread::panicking(), "{log}: {text}");
        }
    }
}

impl Serving {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Waits for its end; returns the exit code, or -1 if it was killed.
    pub(crate) fn wait(&mut self) -> i32 {
        self.child.wait().expect("it is our child").code().unwrap_or(-1)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if mounted(&self.mountpoint) {
            let _ = Command::new("umount").arg("-l").arg(&self.mountpoint).status();
        }
    }
}

pub(crate) fn can_mount() -> bool {
    let fuse = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    fuse && rustix::process::geteuid().is_root()
}

pub(crate) fn mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("Linux has it");
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // The kernel writes spaces in octal.
    let at = |line: &str| line.split(' ').nth(1).map(|at| at.replace("\\040", " "));
    mounts.lines().any(|line| at(line).as_deref() == path.to_str())
}
