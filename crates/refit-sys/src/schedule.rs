//! Scheduling policy, priority and affinity of threads: sched(7).

use std::io;
use std::mem::MaybeUninit;

/// The scheduling parameters of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Urgency {
    /// `SCHED_OTHER`, `SCHED_FIFO`, …
    pub policy: i32,
    /// The priority of a real-time policy; 0 with others.
    pub priority: i32,
    /// The nice value, from -20, the most urgent, to 19.
    pub nice: i32,
}

/// Returns the scheduling parameters of a thread; `None` if it does not exist or the caller may not
/// see it.
pub fn urgency(thread: u32) -> Option<Urgency> {
    let id = libc::pid_t::try_from(thread).ok()?;
    let number = rustix::process::Pid::from_raw(id);
    let nice = rustix::process::getpriority_process(number).ok()?;
    // SAFETY: no memory.
    let policy = unsafe { libc::sched_getscheduler(id) };
    let mut parameters = MaybeUninit::<libc::sched_param>::uninit();
    // SAFETY: the kernel writes the structure, which is read only if it has.
    let result = unsafe { libc::sched_getparam(id, parameters.as_mut_ptr()) };
    if policy < 0 || result < 0 {
        return None;
    }
    // SAFETY: written above.
    let priority = unsafe { parameters.assume_init() }.sched_priority;
    Some(Urgency { policy: policy & !libc::SCHED_RESET_ON_FORK, priority, nice })
}

/// Sets the scheduling parameters of a thread, as far as that is permitted. Returns whether all of
/// them are set.
pub fn set_urgency(thread: u32, urgency: Urgency) -> bool {
    let Ok(id) = libc::pid_t::try_from(thread) else { return false };
    let Urgency { policy, priority, nice } = urgency;
    let number = rustix::process::Pid::from_raw(id);
    let nicely = rustix::process::setpriority_process(number, nice).is_ok();
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads the structure.
    let set = unsafe { libc::sched_setscheduler(id, policy, &raw const parameters) };
    nicely && set == 0
}

/// Bytes of the largest set of processors: 8192 of them, the maximum that Linux can be built for.
pub const SET: usize = 1024;

/// Stores the processors that a thread may use in `into`, one bit each. Returns the number of bytes
/// that takes.
///
/// # Errors
/// `ESRCH`: no such thread. `EINVAL`: `into` is shorter than the sets of this kernel, or not a
/// whole number of words.
pub fn processors(thread: u32, into: &mut [u8]) -> io::Result<usize> {
    let (of, length, set) = (thread as libc::pid_t, into.len(), into.as_mut_ptr());
    // SAFETY: the kernel writes at most that many bytes.
    let result = unsafe { libc::syscall(libc::SYS_sched_getaffinity, of, length, set) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A set of processors that a thread may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors(Vec<u8>);

impl Processors {
    /// Returns the processors that a thread may use.
    ///
    /// # Errors
    /// `ESRCH`: no such thread.
    pub fn of(thread: u32) -> io::Result<Self> {
        let mut set = vec![0; SET];
        let length = processors(thread, &mut set)?;
        set.truncate(length);
        Ok(Self(set))
    }

    /// Restricts a thread to these processors.
    ///
    /// # Errors
    /// `ESRCH`: no such thread. `EPERM`: it belongs to another user. `EINVAL`: none of the
    /// processors can be used.
    pub fn give(&self, thread: u32) -> io::Result<()> {
        let (of, length, set) = (thread as libc::pid_t, self.0.len(), self.0.as_ptr());
        // SAFETY: the kernel reads that many bytes.
        match unsafe { libc::syscall(libc::SYS_sched_setaffinity, of, length, set) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_as_urgent_as_it_was_told_to_be() {
        let ask = || {
            let own = crate::thread::id();
            let before = urgency(own).expect("our own");
            let after = Urgency { policy: libc::SCHED_BATCH, nice: 19, ..before };
            assert!(set_urgency(own, after));
            assert_eq!(urgency(own), Some(after));
        };
        std::thread::spawn(ask).join().expect("no panic");
    }

    #[test]
    fn the_processors_that_a_thread_may_use_are_told() {
        let mut set = [0; 1024];
        let length = processors(crate::thread::id(), &mut set).expect("our own");
        assert!(length >= 8 && length.is_multiple_of(8), "{length}");
        assert!(
            set[..length].iter().any(|&byte| byte != 0) && set[length..] == [0; 1024][length..]
        );
        let no = |error: io::Error| error.raw_os_error();
        assert_eq!(processors(u32::MAX, &mut set).map_err(no), Err(Some(libc::ESRCH)));
        assert_eq!(processors(0, &mut set[..1]).map_err(no), Err(Some(libc::EINVAL)));
    }

    #[test]
    fn a_thread_is_given_processors() {
        let ask = || {
            let own = crate::thread::id();
            let before = Processors::of(own).expect("our own");
            let last = before.0.iter().rposition(|&byte| byte != 0).expect("one at least");
            let mut one = Processors(vec![0; before.0.len()]);
            one.0[last] = 1 << before.0[last].ilog2();
            one.give(own).expect("one that it may use");
            assert_eq!(Processors::of(own).expect("our own"), one);
            let none = Processors(vec![0; before.0.len()]).give(own);
            assert_eq!(none.map_err(|error| error.raw_os_error()), Err(Some(libc::EINVAL)));
        };
        std::thread::spawn(ask).join().expect("no panic");
    }

    #[test]
    fn who_is_not_there_has_none() {
        assert_eq!(urgency(u32::MAX), None);
        assert!(!set_urgency(u32::MAX, Urgency::default()));
    }
}
