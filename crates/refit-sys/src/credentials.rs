//! The file-system identity of one thread.
//!
//! A file server works for many callers at once, and the files that it makes on the host have to
//! belong to the caller, not to the server. On Linux the identity used for files (`fsuid`,
//! `fsgid`), the file creation mask and the "secure bits" all belong to a *thread*. The C library
//! hides that, because POSIX wants them per process, and changes them in all threads at once. So
//! this module makes the raw system calls.
//!
//! Changing `fsuid` away from 0 normally drops the file capabilities. A server whose kernel side
//! has already checked the caller's permissions must keep them; otherwise the check would be made
//! twice, the second time without the caller's supplementary groups. [`prepare_thread`] sets
//! `SECBIT_NO_SETUID_FIXUP` for that.

use std::io;

use crate::status::Status;
use rustix::thread::{CapabilitySet, CapabilitySets};

const SECBIT_NO_SETUID_FIXUP: libc::c_int = 1 << 2;

/// The rights that [`prepare_thread`] has obtained for the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRights {
    /// The thread has a file creation mask of its own.
    pub own_umask: bool,
    /// The thread keeps its capabilities while it acts as another user.
    pub keeps_capabilities: bool,
}

/// Gives the calling thread its own file creation mask (0), working directory and root directory,
/// and makes it keep its capabilities when its `fsuid` changes. The result says which of the two
/// succeeded; the second needs privileges.
pub fn prepare_thread() -> ThreadRights {
    // SAFETY: unshare(CLONE_FS) takes no pointers; it only copies this thread's umask, working
    // directory and root.
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

/// Returns whether threads of this process can have their own file creation masks; a sandbox may
/// refuse that.
pub fn threads_have_own_umask() -> bool {
    // Tried on a thread that ends right afterwards.
    std::thread::spawn(prepare_thread).join().is_ok_and(|rights| rights.own_umask)
}

/// Returns whether users other than the owner can reach a directory: whether it and all of its
/// ancestors have the search permission for others.
pub fn anybody_reaches(directory: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    const PASS: u32 = 0o001;
    directory.ancestors().all(|above| {
        std::fs::metadata(above).is_ok_and(|data| data.permissions().mode() & PASS != 0)
    })
}

/// Sets the file creation mask of the calling thread (see [`prepare_thread`]). Returns the old one.
pub fn set_umask(mask: u32) -> u32 {
    // SAFETY: umask takes an integer and cannot fail.
    unsafe { libc::umask(mask) }
}

/// A guard: the calling thread acts on files as another user until it is dropped, also during a
/// panic.
#[derive(Debug)]
pub struct ActingAs {
    uid: Option<u32>,
    gid: Option<u32>,
    // The identity belongs to the thread, so the guard must not leave it.
    _this_thread: std::marker::PhantomData<*const ()>,
}

impl ActingAs {
    /// Takes on `uid` and `gid` for the file accesses of this thread. Makes no system call if they
    /// equal `own`, the identity that the thread has now.
    ///
    /// # Errors
    /// `EPERM`: the thread may not take on that identity; it has its own again.
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
        // Back to the real identity of this thread, which the kernel always allows.
        if let Some(uid) = self.uid {
            let _ = set_fsuid(uid);
        }
        if let Some(gid) = self.gid {
            let _ = set_fsgid(gid);
        }
    }
}

fn set_fsuid(uid: u32) -> io::Result<()> {
    // SAFETY: setfsuid takes an integer. It returns the previous id and never reports failure,
    // which is why a second call with an invalid id asks for the current one.
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

/// Returns whether the thread `pid` has a capability in its effective set; `None` if the thread
/// cannot be seen.
pub fn has_capability(pid: u32, capability: u32) -> Option<bool> {
    let set = Status::of(pid).ok()?.set("CapEff")?;
    Some(set >> capability & 1 == 1)
}

/// Returns whether the thread `pid` is in a group, as far as files are concerned; `None` if the
/// thread cannot be seen.
pub fn in_group(pid: u32, group: u32) -> Option<bool> {
    let status = Status::of(pid).ok()?;
    let is = |id: &str| id.parse() == Ok(group);
    // The fourth id is the one used for files.
    let own = status.line("Gid")?.split_whitespace().nth(3).is_some_and(is);
    Some(own || status.line("Groups")?.split_whitespace().any(is))
}

/// Calls `work` on this thread without a capability. If the capability cannot be removed, the
/// thread does not have it.
pub fn without_capability<T>(capability: u32, work: impl FnOnce() -> T) -> T {
    let Ok(all) = rustix::thread::capabilities(None) else { return work() };
    let bit = CapabilitySet::from_bits_retain(1 << capability);
    if !all.effective.contains(bit) {
        return work();
    }
    let fewer = CapabilitySets { effective: all.effective - bit, ..all };
    let removed = rustix::thread::set_capabilities(None, fewer).is_ok();
    let outcome = work();
    if removed {
        let _ = rustix::thread::set_capabilities(None, all);
    }
    outcome
}

/// The number of the capability `CAP_FSETID`: a write by its holder preserves the set-user-id and
/// set-group-id bits.
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
                // Only root may write into this directory, so only the capability lets the thread
                // in.
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
