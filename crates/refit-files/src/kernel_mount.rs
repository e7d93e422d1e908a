//! The mount in the kernel's tree: made without a library, and unmounted as itself.
//!
//! A path names whatever is mounted there at the moment. Between the end of a mount and the moment at which its server
//! learns of it, somebody else can mount something at the same path. So a mount is known by its mount id, and by its
//! connection to the kernel: a connection that has ended needs no unmount, and another mount id at the path is another
//! mount. (fuser 0.18 takes an ended connection for a live one, and unmounts the path: `docs/upstream/`.)
//!
//! The system call takes a path all the same. A mount that somebody unmounts *and* replaces between the look at the
//! mount id and the system call, which follows at once, cannot be told apart; the kernel offers no unmount by id.
//!
//! With the right to mount, the file system is created first, answered by the server, and appears at its path last.
//! Without it, `fusermount3` mounts, and hands the connection over.

use crate::check;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatVfsMountFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What programs see as the kind of file system: `fuse.refit`.
const SUBTYPE: &str = "refit";
const HELPER: &str = "fusermount3";
/// `STATX_MNT_ID_UNIQUE`: a mount id that is never given to another mount (Linux 6.8).
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// How long copies of a mount in other mount namespaces may outlast it.
const COPIES_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// What to mount.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) mountpoint: &'a Path,
    /// What the table of mounts shows as its source.
    pub(crate) source_name: String,
    pub(crate) allow_other: bool,
    pub(crate) read_only: bool,
    /// Flags of the mount that has the source. Without privileges the helper chooses.
    pub(crate) inherited: StatVfsMountFlags,
}

/// A file system that the kernel has begun to ask for its first answer.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Where requests come in.
    pub(crate) device: OwnedFd,
    /// The mount, which is at no path yet; `None` if the helper has put it there.
    detached: Option<OwnedFd>,
}

/// A mount id as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MountId {
    Unique(u64),
    /// May be given to another mount after the end of this one (before Linux 6.8).
    Reused(u64),
}

/// A FUSE mount of this process.
#[derive(Debug)]
pub(crate) struct KernelMount {
    mountpoint: PathBuf,
    id: MountId,
    /// The number of its file system, as tables of mounts have it.
    number: (u32, u32),
    /// Tells whether the connection lives.
    device: OwnedFd,
}

impl Prepared {
    /// Has the kernel create the file system.
    pub(crate) fn new(wanted: &Wanted<'_>) -> io::Result<Self> {
        match create(wanted) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => mount_by_helper(wanted),
            outcome => outcome,
        }
    }

    /// Puts it at its path, with another descriptor of the same connection. From then on programs reach it.
    pub(crate) fn attach(
        detached: Option<&OwnedFd>,
        mountpoint: &Path,
        device: OwnedFd,
    ) -> io::Result<KernelMount> {
        let (id, number) = match detached {
            Some(mount) => {
                let found = look(mount, Path::new(""), AtFlags::EMPTY_PATH)?;
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                move_mount(mount, c"", CWD, mountpoint, flags)?;
                found
            }
            None => look(CWD, mountpoint, AtFlags::SYMLINK_NOFOLLOW)?,
        };
        Ok(KernelMount { mountpoint: mountpoint.to_owned(), id, number, device })
    }

    /// Takes the parts apart: where requests come in, and what [`attach`](Self::attach) wants.
    pub(crate) fn into_parts(self) -> (OwnedFd, Option<OwnedFd>) {
        (self.device, self.detached)
    }
}

fn create(wanted: &Wanted<'_>) -> io::Result<Prepared> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let root = std::fs::metadata(wanted.mountpoint)?.mode() & libc::S_IFMT;
    let set = |key: &str, value: &str| fsconfig_set_string(context.as_fd(), key, value);
    set("fd", &device.as_raw_fd().to_string())?;
    set("rootmode", &format!("{root:o}"))?;
    set("user_id", &rustix::process::getuid().as_raw().to_string())?;
    set("group_id", &rustix::process::getgid().as_raw().to_string())?;
    set("source", &wanted.source_name)?;
    set("subtype", SUBTYPE)?;
    fsconfig_set_flag(context.as_fd(), "default_permissions")?;
    if wanted.allow_other {
        fsconfig_set_flag(context.as_fd(), "allow_other")?;
    }
    if wanted.read_only {
        fsconfig_set_flag(context.as_fd(), "ro")?;
    }
    fsconfig_create(context.as_fd())?;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes(wanted))?;
    Ok(Prepared { device, detached: Some(mount) })
}

/// Programs with set-user-id and device files are as good here as on the source's own mount.
fn attributes(wanted: &Wanted<'_>) -> MountAttrFlags {
    let nodev = StatVfsMountFlags::from_bits_retain(libc::ST_NODEV);
    let noexec = StatVfsMountFlags::from_bits_retain(libc::ST_NOEXEC);
    let all = [
        (wanted.inherited.contains(StatVfsMountFlags::NOSUID), MountAttrFlags::MOUNT_ATTR_NOSUID),
        (wanted.inherited.contains(nodev), MountAttrFlags::MOUNT_ATTR_NODEV),
        (wanted.inherited.contains(noexec), MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (wanted.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
    ];
    let set = all.into_iter().filter(|(set, _)| *set);
    set.fold(MountAttrFlags::empty(), |flags, (_, flag)| flags | flag)
}

/// The helper has the right to mount. It sends the connection over the socket that is its standard input.
fn mount_by_helper(wanted: &Wanted<'_>) -> io::Result<Prepared> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut options =
        format!("fsname={},subtype={SUBTYPE},default_permissions", wanted.source_name);
    for (set, option) in [(wanted.allow_other, ",allow_other"), (wanted.read_only, ",ro")] {
        if set {
            options.push_str(option);
        }
    }
    let helper = Command::new(HELPER)
        .args(["-o", &options, "--"])
        .arg(wanted.mountpoint)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let device = receive(&ours);
    drop(ours);
    let output = helper.wait_with_output()?;
    let device = match device? {
        Some(device) if output.status.success() => device,
        _ => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, said));
        }
    };
    Ok(Prepared { device, detached: None })
}

/// The descriptor that the helper sends; none if it ends without one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [io::IoSliceMut::new(&mut byte)];
    loop {
        let flags = RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(socket, &mut data, &mut control, flags) {
            Err(Errno::INTR) => {}
            outcome => {
                outcome?;
                break;
            }
        }
    }
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    };
    Ok(control.drain().find_map(rights))
}

/// The id of the topmost mount at a path, and the number of its file system, which is not asked.
fn look(directory: impl AsFd, path: &Path, flags: AtFlags) -> io::Result<(MountId, (u32, u32))> {
    // Without STATX_DONT_SYNC a server that hangs would have whoever looks hang, too.
    let flags = flags | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let status = rustix::fs::statx(directory, path, flags, StatxFlags::MNT_ID | MNT_ID_UNIQUE)?;
    let unique = status.stx_mask & MNT_ID_UNIQUE.bits() != 0;
    let kind = if unique { MountId::Unique } else { MountId::Reused };
    Ok((kind(status.stx_mnt_id), (status.stx_dev_major, status.stx_dev_minor)))
}

impl KernelMount {
    /// Whether the kernel still sends requests. It does not once nobody can reach the file system any more.
    pub(crate) fn connected(&self) -> bool {
        self.connected_after(Timespec { tv_sec: 0, tv_nsec: 0 })
    }

    /// As [`connected`](Self::connected), once it is not or that time has passed.
    fn connected_after(&self, time: Timespec) -> bool {
        let mut device = [PollFd::new(&self.device, PollFlags::empty())];
        loop {
            match poll(&mut device, Some(&time)) {
                Err(Errno::INTR) => {}
                _ => return !device[0].revents().contains(PollFlags::ERR),
            }
        }
    }

    /// Whether it is what its path leads to.
    fn is_topmost(&self) -> bool {
        let found = look(CWD, &self.mountpoint, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|(id, _)| id == self.id)
    }

    /// A process for which it is mounted still, in a mount namespace of its own, though it is not
    /// for this one.
    pub(crate) fn holder_elsewhere(&self) -> Option<u32> {
        let has = |process: &str| {
            let table = std::fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
            check::has_file_system(&table, self.number)
        };
        if has("self") {
            return None;
        }
        refit_sys::process::all().find(|process| has(&process.to_string()))
    }

    /// Unmounts this mount, and no other.
    ///
    /// # Errors
    /// `EBUSY`: it is in use; or it is mounted elsewhere, too, or covered by another mount.
    pub(crate) fn unmount(&self, flags: UnmountFlags) -> io::Result<()> {
        if !self.connected() {
            return Ok(());
        }
        if !self.is_topmost() {
            // Taken out of sight while it is used, or covered.
            return if self.connected() { Err(Errno::BUSY.into()) } else { Ok(()) };
        }
        match rustix::mount::unmount(&self.mountpoint, flags | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            // Somebody else has unmounted it just now.
            Err(Errno::INVAL | Errno::NOENT) if !self.connected() => return Ok(()),
            Err(Errno::PERM) => unmount_by_helper(&self.mountpoint, flags)?,
            Err(errno) => return Err(errno.into()),
        }
        // Without other mounts of it the kernel has ended the connection before the call returned. A mount namespace
        // that was made meanwhile has a copy; most do not last.
        if !flags.contains(UnmountFlags::DETACH) && self.connected_after(COPIES_TIMEOUT) {
            return Err(Errno::BUSY.into());
        }
        Ok(())
    }
}

/// What a user without privileges mounted, only the helper can unmount.
fn unmount_by_helper(mountpoint: &Path, flags: UnmountFlags) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u").args(flags.contains(UnmountFlags::DETACH).then_some("-z"));
    let output = command.arg("--").arg(mountpoint).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if said.contains("busy") {
        return Err(Errno::BUSY.into());
    }
    Err(io::Error::other(said))
}
