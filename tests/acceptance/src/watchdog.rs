//! Ends a test that hangs.
//!
//! The threads of a test that waits for its own mount cannot be killed, not even with the whole
//! process: the kernel waits for a reply as long as the process has the connection open, which ends
//! only when its threads have. The connection is therefore aborted from inside, and all calls that
//! wait for it fail.

use rustix::mount::UnmountFlags;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Longer than any test takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Aborts the connection of a mount, unless it is dropped in time.
#[derive(Debug)]
pub(crate) struct Watchdog(#[expect(dead_code, reason = "its end is the message")] Sender<()>);

impl Watchdog {
    pub(crate) fn of(mountpoint: PathBuf) -> Self {
        let (alive, dropped) = channel();
        thread::spawn(move || {
            if dropped.recv_timeout(TEST_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{} hangs: its connection is cut", mountpoint.display());
                let _ = rustix::mount::unmount(&mountpoint, UnmountFlags::FORCE);
            }
        });
        Self(alive)
    }
}
