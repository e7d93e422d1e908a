//! Checks whether a thread of a program may do exactly what a thread here may, as far as open files
//! are concerned.
//!
//! This matters for writes, which clear set-user-ID bits, and take reserved room, for some callers
//! and not for others; for user ids, which depend on the user namespace; and for filters that look
//! at system calls. The check is the same for all calls, so it is made for all.

use std::fs;
use std::os::unix::fs::MetadataExt;

use refit_sys::status::Status;

/// The number of refit's own filters in a program that has moved: for what it holds of the kernel
/// (`refit_sys::launch`), and for what it changes (`origin::setup`).
const OURS: u32 = 2;

/// Lines of `/proc/PID/status`.
const LINES: [&str; 4] = ["Uid", "Gid", "Groups", "CapEff"];

#[derive(Debug, PartialEq, Eq)]
struct Rights {
    lines: [String; LINES.len()],
    filters: u32,
    /// The user namespace.
    users: (u64, u64),
}

/// Returns whether a thread has exactly the rights of the calling one.
pub(super) fn equivalent(thread: u32) -> bool {
    let both = of(&thread.to_string()).zip(of("thread-self"));
    both.is_some_and(|(theirs, ours)| {
        // The filters under which this instance was started are the program's, too.
        let filters = ours.filters + OURS;
        theirs == Rights { filters, ..ours }
    })
}

fn of(task: &str) -> Option<Rights> {
    let users = fs::metadata(format!("/proc/{task}/ns/user")).ok()?;
    parse(&Status::of(task).ok()?, (users.dev(), users.ino()))
}

fn parse(status: &Status, users: (u64, u64)) -> Option<Rights> {
    let mut lines: [String; LINES.len()] = Default::default();
    for (text, name) in lines.iter_mut().zip(LINES) {
        status.line(name)?.clone_into(text);
    }
    Some(Rights { lines, filters: status.filters()?, users })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nUid:\t0\t0\t0\t0\nGid:\t5\t5\t5\t5\nGroups:\t5 7 \n\
        CapPrm:\t1\nCapEff:\t000001ffffffffff\nSeccomp:\t2\nSeccomp_filters:\t3\n";

    #[test]
    fn any_difference_is_found() {
        let read = |status: &str| parse(&Status::from(status), (1, 2));
        let found = read(STATUS).expect("all lines");
        assert_eq!((found.filters, found.lines[1].as_str()), (3, "5\t5\t5\t5"));
        let others = [
            ("Uid:\t0\t0", "Uid:\t0\t9"),
            ("Gid:\t5\t5\t5\t5", "Gid:\t5\t5\t5\t6"),
            ("5 7", "5"),
            ("1ff", "0ff"),
            ("filters:\t3", "filters:\t4"),
        ];
        for (from, to) in others {
            let other = read(&STATUS.replace(from, to)).expect("all lines");
            assert_ne!(other, found, "{from}");
        }
        assert_ne!(parse(&Status::from(STATUS), (1, 3)), Some(found));
        assert_eq!(read(&STATUS.replace("Seccomp:\t2", "Seccomp:\t1")), None);
        assert_eq!(read(&STATUS.replace("CapEff", "Cap")), None);
    }

    #[test]
    fn a_program_without_filters_of_refits_is_another() {
        assert!(!equivalent(std::process::id()));
        assert!(!equivalent(u32::MAX));
    }
}
