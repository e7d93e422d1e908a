//! The instance that the tour watches: `refit mount` as a process of its own, as a user would start
//! it.
//!
//! It ends with the tour, however the tour ends: its standard input is a pipe that only the tour
//! holds.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use refit_instance::{Client, SocketDirectory};

use crate::failure::Failure;

/// The served scratch directory.
pub(super) struct Server {
    child: Child,
    source: PathBuf,
    mountpoint: PathBuf,
    client: Client,
}

impl Server {
    /// Serves `source` on `mnt`, both within the scratch directory.
    pub(super) fn start(scratch: &Path) -> Result<Self, Failure> {
        let (source, mountpoint) = (scratch.join("source"), scratch.join("mnt"));
        let cannot = |e: std::io::Error| {
            Failure::new("serve a scratch directory", e.to_string(), "see `refit doctor`")
        };
        std::fs::create_dir(&source).map_err(cannot)?;
        std::fs::create_dir(&mountpoint).map_err(cannot)?;
        let mut child = Command::new(std::env::current_exe().map_err(cannot)?)
            .args(["mount", "--json", "--until-eof", "--cache", "direct", "--"])
            .args([&source, &mountpoint])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the tour, which then ends the server in good order.
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(cannot)?;
        }
        if line.is_empty() {
            // It has said why on standard error, which it shares with us.
            let _ = child.wait();
            return Err(Failure::Said);
        }
        let client = Client::new(&SocketDirectory::open()?.socket(child.id()))?;
        Ok(Server { child, source, mountpoint, client })
    }

    pub(super) fn source(&self) -> &Path {
        &self.source
    }

    pub(super) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// A client of its own, for another thread.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(&SocketDirectory::open()?.socket(self.child.id()))?)
    }

    /// Requests that it has answered so far.
    pub(super) fn requests(&self) -> u64 {
        let mounts = self.client.mounts().unwrap_or_default();
        mounts.iter().filter_map(|mount| mount.stats.get("requests")).sum()
    }

    /// Unmounts; everything is in the source directory then.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        for mount in self.client.mounts()? {
            self.client.unmount(mount.id, false)?;
        }
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
