//! Requests that depend on the kernel's cached pages of a file: opens, which decide whether the
//! kernel caches the file; and reads, searches and copies, before which the kernel must write its
//! pages back.

use std::cell::RefCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fuser::{
    Errno as Answer, INodeNo, OpenFlags, ReplyData, ReplyLseek, ReplyOpen, ReplyWrite, Request,
};
use rustix::io::Errno;

use crate::answer::Fuse;
use crate::files::COPY_PART;
use crate::passthrough;
use crate::server::{Caller, Server};

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Fuse {
    /// Opens a file, after the kernel has been notified if it was changed beside the mount.
    pub(crate) fn open_current(
        &self,
        req: &Request,
        ino: INodeNo,
        flags: OpenFlags,
        reply: ReplyOpen,
    ) {
        if !self.server.sees_opens() {
            // The kernel then opens every file without a request.
            return self.serve(
                req,
                |_, _| Err::<(), _>(Errno::NOSYS),
                |_| reply.error(Answer::ENOSYS),
            );
        }
        let (caller, flags) = (Caller::of(req), flags.0);
        let answer = move |outcome| match outcome {
            Ok(mode) => passthrough::reply_open(reply, mode, flags),
            Err(errno) => reply.error(errno),
        };
        let look = || {
            let looking = self.begin(req);
            looking.permit()?;
            self.server.look_before_open(caller, ino.0)
        };
        match catch_unwind(AssertUnwindSafe(look)).unwrap_or(Err(Errno::IO)) {
            Ok(false) => {
                self.serve(req, |server, _| server.open(caller, ino.0, flags), answer);
            }
            Ok(true) => {
                let open = move |server: &Server| server.open_behind(caller, ino.0, flags);
                self.after_write_back(req, ino, open, answer);
            }
            Err(errno) => self.serve(req, |_, _| Err(errno), answer),
        }
    }

    /// Reads; a read past the kernel's cache is answered after the kernel has written back what it
    /// may hold of the range.
    pub(crate) fn read_current(
        &self,
        req: &Request,
        ino: INodeNo,
        range: Range<u64>,
        flags: OpenFlags,
        past_the_kernels_cache: bool,
        reply: ReplyData,
    ) {
        // For other reads, the kernel keeps the pages that a fault fills locked until the reply, so
        // invalidating them first would deadlock.
        let (offset, size) = (range.start, (range.end - range.start) as usize);
        if past_the_kernels_cache && self.server.kernel_may_know_more(ino.0, range.end) {
            let work = move |server: &Server| {
                let mut buffer = vec![0; size];
                let n = server.read(ino.0, offset, &mut buffer, flags.0)?;
                buffer.truncate(n);
                Ok(buffer)
            };
            return self.after_write_back(req, ino, work, |outcome| match outcome {
                Ok(data) => reply.data(&data),
                Err(errno) => reply.error(errno),
            });
        }
        let request = self.begin(req);
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let read =
                |server: &Server, _| server.read(ino.0, offset, &mut buffer[..size], flags.0);
            match self.carry_out(req, &request, read) {
                Ok(n) => reply.data(&buffer[..n]),
                Err(errno) => reply.error(errno),
            }
        });
        drop(request);
        self.server.spin.wait();
    }

    /// Searches for data or a hole, after the kernel has written back what it may hold of the file.
    pub(crate) fn seek_current(
        &self,
        req: &Request,
        ino: INodeNo,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let answer = |outcome, reply: ReplyLseek| match outcome {
            Ok(at) => reply.offset(at),
            Err(errno) => reply.error(errno),
        };
        if !self.server.kernel_may_hold_data(ino.0) {
            let work = |server: &Server, _| server.lseek(ino.0, offset, whence);
            return self.serve(req, work, |outcome| answer(outcome, reply));
        }
        // The kernel searches for holes without having written back its pages, so what looks like a
        // hole may be data.
        let work = move |server: &Server| server.lseek(ino.0, offset, whence);
        self.after_write_back(req, ino, work, move |outcome| answer(outcome, reply));
    }

    /// Copies from one file and offset to another, after the kernel has written back what it may
    /// hold of the first.
    pub(crate) fn copy_current(
        &self,
        req: &Request,
        from: (INodeNo, u64),
        to: (INodeNo, u64),
        len: u64,
        reply: ReplyWrite,
    ) {
        let ((ino_in, offset_in), (ino_out, offset_out)) = (from, to);
        let answer = |outcome, reply: ReplyWrite| match outcome {
            Ok(n) => reply.written(n),
            Err(errno) => reply.error(errno),
        };
        let caller = Caller::of(req);
        let copy = move |server: &Server| {
            let (from, to) = ((ino_in.0, offset_in), (ino_out.0, offset_out));
            server.copy_file_range(caller, from, to, len)
        };
        // The kernel has written back its pages of the copied range, but the file may end after it.
        let end = offset_in.saturating_add(len.min(COPY_PART));
        if self.server.kernel_may_know_more(ino_in.0, end) {
            self.after_write_back(req, ino_in, copy, move |outcome| answer(outcome, reply));
        } else {
            self.serve(req, |server, _| copy(server), |outcome| answer(outcome, reply));
        }
    }
}
