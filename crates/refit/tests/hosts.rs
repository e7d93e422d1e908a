//! Tests of hosts that lack a facility: one clear line, exit code 1, nothing left behind.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const NOBODY: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Creates a scratch directory that every user can use, with `src` and `mnt` in it, and a socket
/// directory of `uid`.
fn scratch(uid: u32) -> tempfile::TempDir {
    let scratch = tempfile::tempdir().expect("a scratch directory can be made");
    for (name, mode) in [("", 0o755), ("src", 0o777), ("mnt", 0o777), ("run", 0o700)] {
        let path = scratch.path().join(name);
        std::fs::create_dir_all(&path).expect("it can be made");
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).expect("it is ours");
    }
    let run = scratch.path().join("run");
    std::os::unix::fs::chown(run, Some(uid), None).expect("root may give it away");
    scratch
}

/// Asserts that the command failed with one line that contains one of these texts, and that nothing
/// is left.
fn one_line(output: &Output, says: &[&str], scratch: &Path) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("refit: "), "{stderr}");
    assert!(says.iter().any(|says| stderr.contains(says)), "{stderr}");
    let sockets = std::fs::read_dir(scratch.join("run")).expect("it is there").count();
    assert_eq!(sockets, 0, "no socket is left");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("it can be read");
    assert!(!mounts.contains(&*scratch.to_string_lossy()), "no mount is left");
}

/// The command that hides `/dev/fuse`. The mount over `/dev` must be visible in this namespace
/// only. The root of a changed root directory is no mount, so `/dev` is made private instead of
/// everything.
const HIDE: &str = "mount --make-private /dev && mount -t tmpfs none /dev && exec \"$0\" \"$@\"";

#[test]
fn without_the_fuse_device() {
    if !is_root() {
        println!("skipped: only root can take the device away in a mount namespace");
        return;
    }
    let scratch = scratch(0);
    let output = Command::new("unshare")
        .args(["--mount", "--propagation=unchanged", "sh", "-c", HIDE])
        .args([env!("CARGO_BIN_EXE_refit"), "mount"])
        .args([scratch.path().join("src"), scratch.path().join("mnt")])
        .env("REFIT_RUNTIME_DIR", scratch.path().join("run"))
        .output()
        .expect("unshare is there");
    one_line(&output, &["/dev/fuse is missing"], scratch.path());
}

#[test]
fn without_permission_to_mount() {
    if !is_root() {
        println!("skipped: only root can become somebody without permission");
        return;
    }
    if !refit_sys::credentials::anybody_reaches(&std::env::temp_dir()) {
        println!("skipped: other users may not pass through the directories above");
        return;
    }
    let scratch = scratch(NOBODY);
    // The binary is copied, because the user nobody may not access its build directory.
    let binary = scratch.path().join("refit");
    std::fs::copy(env!("CARGO_BIN_EXE_refit"), &binary).expect("there is room for it");
    let output = Command::new("/usr/bin/setpriv")
        .args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()])
        .arg(binary)
        .arg("mount")
        .args([scratch.path().join("src"), scratch.path().join("mnt")])
        .env("REFIT_RUNTIME_DIR", scratch.path().join("run"))
        .env("PATH", "/nonexistent") // no fusermount3 to help
        .output()
        .expect("setpriv is there");
    // The message depends on the device's mode on this host.
    one_line(&output, &["not permitted", "may not open /dev/fuse"], scratch.path());
}
