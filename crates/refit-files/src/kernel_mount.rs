//! The mount in the kernel's tree, created without a library, and unmounted by its identity.
//!
//! A path refers to the mount that is there at the moment. Between the end of a mount and the
//! moment at which its server learns of it, another process can mount a file system at the same
//! path. A mount is therefore identified by its mount ID and by its connection to the kernel: a
//! connection that has ended needs no unmount, and another mount ID at the path means another
//! mount. (fuser 0.18 takes an ended connection for a live one and unmounts the path; see
//! `docs/upstream/`.)
//!
//! The system call takes a path nevertheless. If a mount is both unmounted *and* replaced between
//! the check of the mount ID and the system call that immediately follows it, the replacement is
//! unmounted; the kernel provides no unmount by ID.
//!
//! With the right to mount, the file system is created first, answered by the server, and attached
//! to its path last. Without it, `fusermount3` mounts and passes the connection to this process.

use crate::image::header::MountIdentity;
use crate::mount_table;
use crate::options::Users;
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
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The subtype of the file system; programs see the type `fuse.refit`.
const SUBTYPE: &str = "refit";
const HELPER: &str = "fusermount3";
/// `STATX_MNT_ID_UNIQUE`: a mount ID that is never reused (Linux 6.8).
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The time for which an unmount waits for copies of the mount in other mount namespaces to
/// disappear.
const COPIES_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// The parameters of a mount.
#[derive(Debug)]
pub(crate) struct MountParameters<'a> {
    pub(crate) mountpoint: &'a Path,
    /// The source that the table of mounts shows.
    pub(crate) source_name: String,
    pub(crate) users: Users,
    pub(crate) read_only: bool,
    /// The flags of the mount on which the source lies. Without privileges the helper chooses the
    /// flags.
    pub(crate) inherited: StatVfsMountFlags,
}

/// A file system that is connected to the kernel but not yet attached to a path.
#[derive(Debug)]
pub(crate) struct UnattachedMount {
    /// The device from which requests are read.
    pub(crate) device: OwnedFd,
    /// The mount, which is at no path yet; `None` if the helper has attached it.
    detached: Option<OwnedFd>,
}

/// The ID of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MountId {
    Unique(u64),
    /// An ID that may be reused for another mount after the end of this one (before Linux 6.8).
    Reused(u64),
}

/// A FUSE mount of this process.
#[derive(Debug)]
pub(crate) struct KernelMount {
    mountpoint: PathBuf,
    id: MountId,
    /// The device number of its file system, as tables of mounts show it.
    number: (u32, u32),
    /// A descriptor of the connection, which shows whether it has ended.
    device: OwnedFd,
}

impl UnattachedMount {
    /// Makes the kernel create the file system.
    pub(crate) fn new(parameters: &MountParameters<'_>) -> io::Result<Self> {
        match create(parameters) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => mount_by_helper(parameters),
            outcome => outcome,
        }
    }

    /// Attaches the mount to its path, after which programs can reach it. `device` is another
    /// descriptor of the same connection.
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

    /// Returns the device from which requests are read, and the mount for [`attach`](Self::attach).
    pub(crate) fn into_parts(self) -> (OwnedFd, Option<OwnedFd>) {
        (self.device, self.detached)
    }
}

fn create(parameters: &MountParameters<'_>) -> io::Result<UnattachedMount> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let root = std::fs::metadata(parameters.mountpoint)?.mode() & libc::S_IFMT;
    let set = |key: &str, value: &str| fsconfig_set_string(context.as_fd(), key, value);
    set("fd", &device.as_raw_fd().to_string())?;
    set("rootmode", &format!("{root:o}"))?;
    set("user_id", &rustix::process::getuid().as_raw().to_string())?;
    set("group_id", &rustix::process::getgid().as_raw().to_string())?;
    set("source", &parameters.source_name)?;
    set("subtype", SUBTYPE)?;
    if parameters.users != Users::RootUnchecked {
        fsconfig_set_flag(context.as_fd(), "default_permissions")?;
    }
    if allows_others(parameters.users) {
        fsconfig_set_flag(context.as_fd(), "allow_other")?;
    }
    if parameters.read_only {
        fsconfig_set_flag(context.as_fd(), "ro")?;
    }
    fsconfig_create(context.as_fd())?;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes(parameters))?;
    Ok(UnattachedMount { device, detached: Some(mount) })
}

/// Returns whether users other than the one who mounts may use the mount.
pub(crate) fn allows_others(users: Users) -> bool {
    match users {
        Users::Owner => rustix::process::geteuid().is_root(),
        Users::All => true,
        Users::RootUnchecked => false,
    }
}

/// Returns the attributes of the mount: set-user-ID programs and device files work on it as they do
/// on the mount of the source.
fn attributes(parameters: &MountParameters<'_>) -> MountAttrFlags {
    let nodev = StatVfsMountFlags::from_bits_retain(libc::ST_NODEV);
    let noexec = StatVfsMountFlags::from_bits_retain(libc::ST_NOEXEC);
    let all = [
        (
            parameters.inherited.contains(StatVfsMountFlags::NOSUID),
            MountAttrFlags::MOUNT_ATTR_NOSUID,
        ),
        (parameters.inherited.contains(nodev), MountAttrFlags::MOUNT_ATTR_NODEV),
        (parameters.inherited.contains(noexec), MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (parameters.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
    ];
    let set = all.into_iter().filter(|(set, _)| *set);
    set.fold(MountAttrFlags::empty(), |flags, (_, flag)| flags | flag)
}

/// Mounts with `fusermount3`, which has the right to mount and sends the connection over the socket
/// that is its standard input.
fn mount_by_helper(parameters: &MountParameters<'_>) -> io::Result<UnattachedMount> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut options =
        format!("fsname={},subtype={SUBTYPE},default_permissions", parameters.source_name);
    for (set, option) in
        [(allows_others(parameters.users), ",allow_other"), (parameters.read_only, ",ro")]
    {
        if set {
            options.push_str(option);
        }
    }
    let helper = Command::new(HELPER)
        .args(["-o", &options, "--"])
        .arg(parameters.mountpoint)
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
    Ok(UnattachedMount { device, detached: None })
}

/// Receives the descriptor that the helper sends. Returns `None` if it ends without sending one.
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

/// Returns the ID of the topmost mount at a path and the device number of its file system, without
/// sending a request to the file system.
fn look(directory: impl AsFd, path: &Path, flags: AtFlags) -> io::Result<(MountId, (u32, u32))> {
    // Without AT_STATX_DONT_SYNC a hanging server would block this thread, too.
    let flags = flags | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let status = rustix::fs::statx(directory, path, flags, StatxFlags::MNT_ID | MNT_ID_UNIQUE)?;
    let unique = status.stx_mask & MNT_ID_UNIQUE.bits() != 0;
    let kind = if unique { MountId::Unique } else { MountId::Reused };
    Ok((kind(status.stx_mnt_id), (status.stx_dev_major, status.stx_dev_minor)))
}

impl KernelMount {
    /// Continues a mount that another server has made. `device` is a descriptor of its connection.
    pub(crate) fn continued(mountpoint: &Path, identity: MountIdentity, device: OwnedFd) -> Self {
        let MountIdentity { id, unique, file_system } = identity;
        let id = if unique { MountId::Unique(id) } else { MountId::Reused(id) };
        Self { mountpoint: mountpoint.to_owned(), id, number: file_system, device }
    }

    /// Returns the identity of the mount, for the server that continues it.
    pub(crate) fn identity(&self) -> MountIdentity {
        let (id, unique) = match self.id {
            MountId::Unique(id) => (id, true),
            MountId::Reused(id) => (id, false),
        };
        MountIdentity { id, unique, file_system: self.number }
    }

    /// Returns the number of a descriptor of the connection.
    pub(crate) fn device_number(&self) -> RawFd {
        self.device.as_raw_fd()
    }

    /// Returns whether the kernel still sends requests. It no longer does once the file system
    /// cannot be reached any more.
    pub(crate) fn connected(&self) -> bool {
        self.connected_after(Timespec { tv_sec: 0, tv_nsec: 0 })
    }

    /// Waits up to `time` for the connection to end, and returns whether it still exists.
    fn connected_after(&self, time: Timespec) -> bool {
        let mut device = [PollFd::new(&self.device, PollFlags::empty())];
        loop {
            match poll(&mut device, Some(&time)) {
                Err(Errno::INTR) => {}
                _ => return !device[0].revents().contains(PollFlags::ERR),
            }
        }
    }

    /// Returns whether this mount is the one that its path leads to.
    fn is_topmost(&self) -> bool {
        let found = look(CWD, &self.mountpoint, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|(id, _)| id == self.id)
    }

    /// Returns a process in another mount namespace in which the file system is still mounted, if
    /// it is not mounted in this one.
    pub(crate) fn holder_elsewhere(&self) -> Option<u32> {
        let has = |process: &str| {
            let table = std::fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
            mount_table::has_file_system(&table, self.number)
        };
        if has("self") {
            return None;
        }
        refit_sys::process::all().find(|process| has(&process.to_string()))
    }

    /// Unmounts this mount and no other.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the mount is in use, is also mounted elsewhere, or is covered by another mount.
    pub(crate) fn unmount(&self, flags: UnmountFlags) -> io::Result<()> {
        if !self.connected() {
            return Ok(());
        }
        if !self.is_topmost() {
            // It was detached while in use, or it is covered.
            return if self.connected() { Err(Errno::BUSY.into()) } else { Ok(()) };
        }
        match rustix::mount::unmount(&self.mountpoint, flags | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            // Another process has just unmounted it.
            Err(Errno::INVAL | Errno::NOENT) if !self.connected() => return Ok(()),
            Err(Errno::PERM) => unmount_by_helper(&self.mountpoint, flags)?,
            Err(errno) => return Err(errno.into()),
        }
        // If there are no copies of the mount, the kernel has ended the connection before the call
        // returned. A mount namespace that was created meanwhile has a copy; most exist only
        // briefly.
        if !flags.contains(UnmountFlags::DETACH) && self.connected_after(COPIES_TIMEOUT) {
            return Err(Errno::BUSY.into());
        }
        Ok(())
    }
}

/// Unmounts what a user without privileges mounted, which only the helper can do.
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
