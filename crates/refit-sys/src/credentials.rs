//! The file-system identity of one thread.
//!
//! A file server works for many callers at once, so that what it makes on the host has to belong to the caller and
//! not to the server. On Linux the identity used for files (`fsuid`, `fsgid`), the file creation mask and the
//! "secure bits" all belong to a *thread*; the C library hides that, because POSIX wants them per process, and
//! changes them in all threads at once. So this module makes the raw system calls.
//!
//! Changing `fsuid` away from 0 normally takes the file capabilities away too. A server whose kernel side has
//! checked the caller's permissions already must keep them, or the check would be made twice, and the second time
//! without the caller's supplementary groups: [`prepare_thread`] sets `SECBIT_NO_SETUID_FIXUP` for that.

use std::io;

use crate::status::Status;

const SECBIT_NO_SETUID_FIXUP: libc::c_int = 1 << 2;

/// What [`prepare_thread`] could get for the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRights {
    /// The thread has a file creation mask of its own.
    pub own_umask: bool,
    /// The thread keeps its capabilities while it acts as somebody else.
    pub keeps_capabilities: bool,
}

/// Gives the calling thread a file creation mask (0), working directory and root directory of its own, and lets it
/// keep its capabilities when its `fsuid` changes. Without the privilege for the latter it says so in the answer.
pub fn prepare_thread() -> ThreadRights {
    // SAFETY: unshare(CLONE_FS) takes no pointers; it only copies this thread's umask, cwd and root.
    let own_umask = unsafe { libc::unshare(libc::CLONE_FS) } == 0;
    if own_umask {
        set_umask(0);
    }
    // SAFETY: these prctl operations take integers only and concern the calling thread alone.
    let keeps_capabilities = unsafe {
        let bits = libc::prctl(libc::PR_GET_SECUREBITS);
        bits >= 0 && libc::prctl(libc::PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP) == 0
    };
    ThreadRights { own_umask, keeps_capabilities }
}

/// Whether threads of this process can have file creation masks of their own; a sandbox may refuse it.
pub fn threads_have_own_umask() -> bool {
    // On a thread that ends: the answer is got by trying.
    std::thread::spawn(prepare_thread).join().is_ok_and(|rights| rights.own_umask)
}

/// Whether users other than the owner can get as far as into a directory: all of those above it let everybody pass.
pub fn anybody_reaches(directory: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    const PASS: u32 = 0o001;
    directory.ancestors().all(|above| {
        std::fs::metadata(above).is_ok_and(|data| data.permissions().mode() & PASS != 0)
    })
}

/// Sets the file creation mask of the calling thread (see [`prepare_thread`]); returns the old one.
pub fn set_umask(mask: u32) -> u32 {
    // SAFETY: umask takes an integer and cannot fail.
    unsafe { libc::umask(mask) }
}

/// The calling thread acts on files as somebody else until this is dropped, also when that is by a panic.
#[derive(Debug)]
pub struct ActingAs {
    uid: Option<u32>,
    gid: Option<u32>,
    // The identity belongs to the thread, so the guard must not leave it.
    _this_thread: std::marker::PhantomData<*const ()>,
}

impl ActingAs {
    /// Takes on `uid` and `gid` for file accesses of this thread. Costs no system call when `own`, the identity
    /// that the thread has now, is the same.
    ///
    /// # Errors
    /// `EPERM` when the thread may not take on that identity; it then has its own again.
    pub fn new(own: (u32, u32), uid: u32, gid: u32) -> io::Result<Self> {
        let mut guard = Self { uid: None, gid: None, _this_thread: std::marker::PhantomData };
        if gid != own.1 {
            guard.gid = Some(own.1);
            set_fsgid(gid)?;
        }
        if uid != own.0 {
            guard.uid = Some(own.0);
            set_fsuid(uid)?;
        }
        Ok(guard)
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        // Back to an identity that this thread had: the kernel allows that always (it is the real one).
        if let Some(uid) = self.uid {
            let _ = set_fsuid(uid);
        }
        if let Some(gid) = self.gid {
            let _ = set_fsgid(gid);
        }
    }
}

fn set_fsuid(uid: u32) -> io::Result<()> {
    // SAFETY: setfsuid takes an integer. It answers the previous id and tells nothing about success, which is why
    // it is asked a second time with an id that is never valid.
    let now = unsafe {
        libc::syscall(libc::SYS_setfsuid, uid);
        libc::syscall(libc::SYS_setfsuid, u32::MAX)
    };
    if now as u32 == uid { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

fn set_fsgid(gid: u32) -> io::Result<()> {
    // SAFETY: as in `set_fsuid`.
    let now = unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsgid, u32::MAX)
    };
    if now as u32 == gid { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

/// Whether the thread `pid` has the capability number `capability` in effect; `None` when it cannot be seen.
pub fn has_capability(pid: u32, capability: u32) -> Option<bool> {
    let set = Status::of(pid).ok()?.set("CapEff")?;
    Some(set >> capability & 1 == 1)
}

/// Whether the thread `pid` is in a group, as far as files are concerned; `None` when it cannot be seen.
pub fn in_group(pid: u32, group: u32) -> Option<bool> {
    let status = Status::of(pid).ok()?;
    let is = |id: &str| id.parse() == Ok(group);
    // The fourth is the one for files.
    let own = status.line("Gid")?.split_whitespace().nth(3).is_some_and(is);
    Some(own || status.line("Groups")?.split_whitespace().any(is))
}

/// Capability number of `CAP_FSETID`: the set-user-id and set-group-id bits survive a write.
pub const CAP_FSETID: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn files_belong_to_whom_the_thread_acts_as() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root to act as somebody else");
            return;
        }
        std::thread::spawn(|| {
            let rights = prepare_thread();
            assert!(rights.own_umask && rights.keeps_capabilities);
            let dir =
                std::env::temp_dir().join(format!("refit-credentials-{}", std::process::id()));
            std::fs::create_dir(&dir).unwrap();
            {
                let _guard = ActingAs::new((0, 0), 1234, 4321).unwrap();
                // Only root may write into this directory: the capability is what lets the thread in.
                std::fs::write(dir.join("theirs"), b"x").unwrap();
            }
            let panicked = std::panic::catch_unwind(|| {
                let _guard = ActingAs::new((0, 0), 1234, 4321).unwrap();
                panic!("in the middle of it");
            });
            assert!(panicked.is_err());
            std::fs::write(dir.join("ours"), b"x").unwrap();
            let theirs = std::fs::metadata(dir.join("theirs")).unwrap();
            let ours = std::fs::metadata(dir.join("ours")).unwrap();
            std::fs::remove_dir_all(&dir).unwrap();
            assert_eq!((theirs.uid(), theirs.gid(), theirs.mode() & 0o777), (1234, 4321, 0o666));
            assert_eq!((ours.uid(), ours.gid()), (0, 0));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn capabilities_are_read_from_proc() {
        let root = rustix::process::geteuid().is_root();
        let seen = has_capability(std::process::id(), CAP_FSETID);
        assert!(seen.is_some());
        if !root {
            assert_eq!(seen, Some(false));
        }
        assert_eq!(has_capability(0, CAP_FSETID), None);
        let own = rustix::process::getegid().as_raw();
        assert_eq!(in_group(std::process::id(), own), Some(true));
        assert_eq!(in_group(std::process::id(), u32::MAX), Some(false));
        assert_eq!(in_group(0, own), None);
    }
}
