//! A mount that another mount namespace has, too. Alone in its program: the namespace would have
//! the mounts of other tests as well.

mod common;

use common::{Served, is_mounted};
use refit_files::{CacheMode, UnmountError};
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// A program that has a mount namespace of its own, and with it copies of all mounts.
struct Secluded(Child);

impl Secluded {
    fn start() -> Self {
        let mut command = Command::new("unshare");
        let sleeps = ["--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 1000"];
        let mut child = command.args(sleeps).stdout(Stdio::piped()).spawn().unwrap();
        let mut begun = [0];
        child.stdout.take().unwrap().read_exact(&mut begun).unwrap();
        Self(child)
    }
}

impl Drop for Secluded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_copy_in_another_namespace_is_told() {
    let Some(mut served) = Served::new(CacheMode::Kernel) else { return };
    fs::write(served.path("f"), "data").unwrap();
    let secluded = Secluded::start();
    let error = served.take_mount().unmount().unwrap_err();
    let UnmountError::Elsewhere { mount, process } = error else { panic!("{error}") };
    assert_eq!(process, secluded.0.id());
    assert!(!is_mounted(&served.mountpoint), "it is unmounted here");
    assert_eq!(fs::read(served.host("f")).unwrap(), b"data", "it is stored");
    drop(secluded);
    mount.unmount().unwrap();
}
