//! The end of a holder whose server has handed over.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

use super::calls::end_as;
use super::children::Child;
use super::handover::Phase;
use super::{HANDOVER_INTERVAL, Holder, WATCHED};

/// The time that a new server, and those after it of its holder, may take to have requests sent
/// again.
const RESEND_TIMEOUT: Duration = Duration::from_secs(60);

impl Holder {
    /// Waits until the kernel has sent the requests of the server again, of which this holder has
    /// the descriptors.
    pub(super) fn wait_until_done(&self, number: u64, successor: &mut Option<Child>) {
        let began = Instant::now();
        while self.handover.phase() == (number, Phase::Committed) {
            let _ = self.poll(None, successor, HANDOVER_INTERVAL);
            let ended = successor.as_ref().is_some_and(Child::has_ended);
            if ended || began.elapsed() > RESEND_TIMEOUT {
                return;
            }
        }
    }

    /// Ends this holder, whose server has handed over. The first holder remains without
    /// descriptors.
    pub(super) fn retire(&self, successor: Option<Child>) -> ! {
        let Some(mut current) = successor.filter(|_| self.is_first) else {
            // Signals that have come since the last look; each is reported once.
            for _ in 0..WATCHED {
                let _ = self.poll(None, &mut None, 0);
            }
            if let Some(successor) = self.handover.successor() {
                self.deliver(successor.cast_signed());
            }
            // SAFETY: the process ends.
            unsafe { libc::_exit(0) }
        };
        self.close_all_but(current.watch.as_fd().as_raw_fd());
        self.handover.no_successor();
        self.deliver(current.process);
        let mut successor = None;
        loop {
            match self.poll(Some(&current), &mut successor, -1) {
                Ok(false) => {}
                Ok(true) if self.has_successor(successor.as_ref()) => {
                    current.reap();
                    current = successor.take().expect("it is some");
                    self.handover.no_successor();
                }
                Ok(true) | Err(_) => {
                    self.handover.end_successor();
                    end_as(Some(current.reap()));
                }
            }
        }
    }

    /// Returns whether another holder has taken over.
    pub(super) fn has_successor(&self, successor: Option<&Child>) -> bool {
        let phase = self.handover.phase().1;
        successor.is_some() && matches!(phase, Phase::Committed | Phase::Done)
    }

    /// Closes the descriptors that were opened after the first server was started, but not `kept`.
    fn close_all_but(&self, kept: RawFd) {
        let close = |first: RawFd, last: RawFd| {
            if first <= last {
                // SAFETY: no value of this process that is still used owns these descriptors.
                unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
            }
        };
        let mut first = 0;
        for own in self.own.iter().copied().chain([RawFd::MAX]) {
            if (first..own).contains(&kept) {
                close(first, kept - 1);
                close(kept + 1, own - 1);
            } else {
                close(first, own - 1);
            }
            first = own.saturating_add(1);
        }
    }
}
