//! The FUSE operations: negotiation with the kernel, and the decoding of each request for the
//! server.
use crate::answer::Fuse;
use crate::attributes;
use crate::first_request::MAX_REQUEST_SIZE;
use crate::modes::CacheMode;
use crate::open_mode::DIRECT;
use crate::options::Users;
use crate::passthrough;
use crate::server::Caller;
use crate::status::NewStatus;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno as Answer, FileHandle, Filesystem, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use refit_sys::credentials;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

impl Filesystem for Fuse {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // FUSE_ATOMIC_O_TRUNC is not requested: with it the kernel makes the server truncate before
        // it finds that the file is a running program, and returns ETXTBSY when the program has
        // already lost its code.
        let mut wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        if self.server.write_back {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        if self.server.modes.default == CacheMode::Passthrough {
            wanted |= InitFlags::FUSE_PASSTHROUGH;
            // The host's files are not on a stacked file system. What is stacked on this one may
            // be.
            let _ = config.set_max_stack_depth(1);
        }
        // Without privileges there are directories whose names can be listed but not looked up.
        if self.server.own.0 == 0 {
            wanted |= InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        let mut acls = InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        if self.server.users == Users::RootUnchecked {
            // With it, the kernel checks permissions.
            acls -= InitFlags::FUSE_POSIX_ACL;
        }
        if config.capabilities().contains(acls) && credentials::threads_have_own_umask() {
            wanted |= acls;
        }
        let _ = config.add_capabilities(wanted & config.capabilities()); // older kernels have fewer
        let _ = config.set_max_write(MAX_REQUEST_SIZE);
        let _ = config.set_max_readahead(MAX_REQUEST_SIZE);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.serve_entry(req, reply, |server, caller| {
            Ok(server.lookup(caller, parent.0, name)?.unwrap_or_else(attributes::absent))
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.server.forget(ino.0, nlookup);
        self.server.spin.wait();
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.serve_attr(req, reply, |server, _| server.getattr(ino.0));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let new = NewStatus { mode, uid, gid, size, atime, mtime };
        self.serve_attr(req, reply, |server, caller| server.setattr(caller, ino.0, new));
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        self.serve(
            req,
            |server, _| server.readlink(ino.0),
            |outcome| match outcome {
                Ok(target) => reply.data(&target),
                Err(errno) => reply.error(errno),
            },
        );
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.serve_entry(req, reply, |server, caller| {
            server.mknod(Caller { umask, ..caller }, parent.0, name, mode, rdev)
        });
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.serve_entry(req, reply, |server, caller| {
            server.mkdir(Caller { umask, ..caller }, parent.0, name, mode)
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.serve_empty(req, reply, |server, _| server.unlink(parent.0, name, AtFlags::empty()));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.serve_empty(req, reply, |server, _| server.unlink(parent.0, name, AtFlags::REMOVEDIR));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.serve_entry(req, reply, |server, caller| {
            server.symlink(caller, parent.0, link_name, target)
        });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.serve_empty(req, reply, |server, _| {
            server.rename((parent.0, name), (newparent.0, newname), flags.bits())
        });
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        self.serve_entry(req, reply, |server, _| server.link(ino.0, newparent.0, newname));
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.open_current(req, ino, flags, reply);
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // Only reads past the kernel's cache carry a lock owner. `O_DIRECT` and the handle do not
        // show it, since a file opened for direct reads can be mapped.
        let range = offset..offset.saturating_add(size.into());
        self.read_current(req, ino, range, flags, lock_owner.is_some(), reply);
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.serve(
            req,
            |server, caller| {
                server.write(caller, ino.0, offset, data, write_flags, (flags.0, fh == DIRECT))
            },
            |outcome| match outcome {
                Ok(n) => reply.written(n as u32),
                Err(errno) => reply.error(errno),
            },
        );
    }

    fn flush(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        if !self.server.flushes {
            // All data is stored already. The kernel does not send this request again.
            return self.serve_empty(req, reply, |_, _| Err(Errno::NOSYS));
        }
        self.serve_empty(req, reply, |server, _| {
            server.inode(ino.0).and_then(|inode| server.write_back(&inode))
        });
    }

    fn release(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let request = self.begin(req);
        match self.carry_out(req, &request, |server, _| server.release(ino.0, flags.0, fh)) {
            Ok(()) => {
                reply.ok();
                self.server.released(ino.0);
            }
            Err(errno) => reply.error(errno),
        }
        drop(request);
    }

    fn fsync(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.serve_empty(req, reply, |server, _| server.fsync(ino.0, datasync));
    }

    fn opendir(&self, req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // The kernel neither sends this request again nor reports the closing of directories.
        self.serve(req, |_, _| Err::<(), _>(Errno::NOSYS), |_| reply.error(Answer::ENOSYS));
    }

    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let request = self.begin(req);
        match self.carry_out(req, &request, |server, _| server.list(ino.0, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
        drop(request);
        self.server.spin.wait();
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let request = self.begin(req);
        match self.carry_out(req, &request, |server, _| server.list(ino.0, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
        drop(request);
        self.server.spin.wait();
    }

    fn fsyncdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.serve_empty(req, reply, |server, _| server.fsyncdir(ino.0));
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.serve(
            req,
            |server, _| server.statfs(ino.0),
            |outcome| match outcome {
                Ok(s) => reply.statfs(
                    s.f_blocks,
                    s.f_bfree,
                    s.f_bavail,
                    s.f_files,
                    s.f_ffree,
                    s.f_bsize as u32,
                    s.f_namemax as u32,
                    s.f_frsize as u32,
                ),
                Err(errno) => reply.error(errno),
            },
        );
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        self.serve_empty(req, reply, |server, caller| {
            server.setxattr(caller, ino.0, name, value, flags)
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.serve_xattr(req, reply, |server, _| server.getxattr(ino.0, name, size));
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.serve_xattr(req, reply, |server, _| server.listxattr(ino.0, size));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.serve_empty(req, reply, |server, _| server.removexattr(ino.0, name));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.serve(
            req,
            |server, caller| server.create(Caller { umask, ..caller }, parent.0, name, mode, flags),
            |outcome| match outcome {
                Ok((attr, mode)) => passthrough::reply_create(reply, &attr, mode, flags),
                Err(errno) => reply.error(errno),
            },
        );
    }

    /// Only the first request of a worker is of this kind (`workers`): the kernel sends it for file
    /// systems on block devices only.
    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.bmap(0);
        self.awaited.connect();
    }

    fn ioctl(
        &self,
        req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        self.serve(req, |_, _| Err::<(), _>(Errno::NOTTY), |_| reply.error(Answer::ENOTTY));
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.serve_empty(req, reply, |server, caller| {
            server.fallocate(caller, ino.0, offset, length, mode)
        });
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.seek_current(req, ino, offset, whence, reply);
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.copy_current(req, (ino_in, offset_in), (ino_out, offset_out), len, reply);
    }
}
