//! The threads of another process, read from `/proc` without allocating memory.

use std::fmt::Write;
use std::io;

use rustix::fs::{Mode, OFlags};

/// A line of text in fixed memory.
struct Text {
    bytes: [u8; 64],
    length: usize,
}

impl Text {
    fn as_str(&self) -> &str {
        // Only whole strings are written.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        self.bytes
            .get_mut(self.length..end)
            .ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

fn path(parts: std::fmt::Arguments<'_>) -> Text {
    let mut text = Text { bytes: [0; 64], length: 0 };
    // It cannot fail: the longest of these paths has 42 bytes.
    let _ = text.write_fmt(parts);
    text
}

/// Calls `each` for every thread of a process.
fn each(process: u32, mut each: impl FnMut(u32)) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(
        path(format_args!("/proc/{process}/task")).as_str(),
        flags,
        Mode::empty(),
    )?;
    let mut buffer = [std::mem::MaybeUninit::uninit(); 2048];
    let mut entries = rustix::fs::RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        if let Some(thread) = entry?.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
            each(thread);
        }
    }
    Ok(())
}

/// Returns the number of threads of a process.
pub(super) fn count(process: u32) -> io::Result<usize> {
    let mut count = 0;
    each(process, |_| count += 1)?;
    Ok(count)
}

/// Returns whether every thread of a process has exited, or waits, not interruptible, in the call
/// by which a file server notifies the kernel (`writev`). False if that cannot be found out.
pub(super) fn stuck(process: u32) -> bool {
    let mut stuck = true;
    let looked = each(process, |thread| {
        stuck &= match state(process, thread) {
            None | Some(b'Z' | b'X') => true,
            Some(b'D') => call(process, thread) == Some(libc::SYS_writev),
            Some(_) => false,
        };
    });
    looked.is_ok() && stuck
}

/// Returns the letter of a thread's state; `None` if the thread is gone.
fn state(process: u32, thread: u32) -> Option<u8> {
    let mut line = [0; 256];
    let line = read(&path(format_args!("/proc/{process}/task/{thread}/stat")), &mut line)?;
    // The name, in parentheses, may contain any character; the state follows the last one.
    let end = line.iter().rposition(|byte| *byte == b')')?;
    line.get(end + 2).copied()
}

/// Returns the number of the system call that a thread waits in.
fn call(process: u32, thread: u32) -> Option<libc::c_long> {
    let mut line = [0; 256];
    let line = read(&path(format_args!("/proc/{process}/task/{thread}/syscall")), &mut line)?;
    std::str::from_utf8(line).ok()?.split_whitespace().next()?.parse().ok()
}

fn read<'a>(path: &Text, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path.as_str(), flags, Mode::empty()).ok()?;
    let length = rustix::io::read(&file, &mut *buffer).ok()?;
    Some(&buffer[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_runs_and_is_not_stuck() {
        let own = std::process::id();
        assert!(count(own).unwrap() >= 1);
        assert!(!stuck(own));
        assert_eq!(state(own, rustix::thread::gettid().as_raw_nonzero().get() as u32), Some(b'R'));
        assert_eq!(state(own, 1), None);
    }
}
