//! The fields of a thread's `/proc/PID/status`, by name (proc_pid_status(5)).

use std::fmt::Display;
use std::io;

use crate::text;

/// The text at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status(String);

impl Status {
    /// Reads the status of a thread, or of a process by its first thread: by number, or as
    /// `thread-self`.
    ///
    /// # Errors
    /// There is no such thread, or it may not be seen.
    pub fn of(thread: impl Display) -> io::Result<Self> {
        let text = text::read(format!("/proc/{thread}/status"))?;
        // The program chooses its name, in any bytes.
        Ok(Self(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Returns the value of the field `name`; `None` if this kernel lacks it.
    pub fn line(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
    }

    /// Returns a field that is a number.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.line(name)?.parse().ok()
    }

    /// Returns a field that is an amount of memory, in bytes.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        let kibibytes: u64 = self.line(name)?.strip_suffix("kB")?.trim_end().parse().ok()?;
        kibibytes.checked_mul(1024)
    }

    /// Returns a field that is a set: of signals, where signal `n` is bit `n - 1`, or of
    /// capabilities.
    pub fn set(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.line(name)?, 16).ok()
    }

    /// Returns the number of filters on the thread's system calls; `None` if the kernel does not
    /// report it, or the thread is in strict mode (seccomp(2)).
    pub fn filters(&self) -> Option<u32> {
        match self.number("Seccomp") {
            // Without the field, the kernel has no filters.
            None | Some(0) => Some(0),
            Some(2) => self.number("Seccomp_filters"),
            Some(_) => None,
        }
    }
}

impl From<&str> for Status {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_by_their_whole_names() {
        let status =
            Status::from("Seccomp_filters:\t3\nSeccomp:\t2\nGroups:\t5 7 \nSigCgt:\t8001\n");
        assert_eq!(status.line("Groups"), Some("5 7"));
        assert_eq!((status.number("Seccomp"), status.number("Group")), (Some(2), None));
        assert_eq!((status.set("SigCgt"), status.filters()), (Some(0x8001), Some(3)));
    }

    #[test]
    fn strict_and_filters_that_are_not_counted_are_not_told() {
        assert_eq!(Status::from("Seccomp:\t1\n").filters(), None);
        assert_eq!(Status::from("Seccomp:\t2\n").filters(), None);
        assert_eq!(Status::from("Seccomp:\t0\n").filters(), Some(0));
        assert_eq!(Status::from("Name:\tx\n").filters(), Some(0));
    }

    #[test]
    fn a_name_that_is_no_text_hides_nothing() {
        let named = || {
            std::fs::write("/proc/thread-self/comm", b"\xff\xfe")?;
            let status = Status::of("thread-self")?;
            Ok((status.number("Pid"), crate::thread::name(crate::thread::id())))
        };
        let named = std::thread::spawn(move || named().map_err(|error: io::Error| error.kind()));
        let (id, name) = named.join().expect("no panic").expect("there is a /proc");
        assert!(id.is_some());
        assert_eq!(name, "\u{fffd}\u{fffd}");
    }

    #[test]
    fn it_is_read_of_this_thread() {
        let own = Status::of("thread-self").expect("there is a /proc");
        assert_eq!(own.number("Pid"), Some(crate::thread::id()));
    }
}
