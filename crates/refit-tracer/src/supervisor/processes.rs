//! The table of a supervisor's processes: what is known of each besides what the kernel reports.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use refit_sys::status::Status;

use crate::process;

/// The facts that are known of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessState {
    /// Whether it limits its own calls, or has tried to
    /// ([`sandbox`](crate::supervisor::sandbox)).
    pub(super) limits_itself: bool,
    /// Whether it belongs to a movable program and holds something of the kernel that runs it all
    /// the same.
    pub(super) bound: bool,
    /// Whether refit gave it a filter after its start, or it was made by such a process.
    pub(super) managed: bool,
    /// Whether refit watches how it changes its memory, by another filter, or it was made by such a
    /// process.
    pub(super) watched: bool,
    /// The loan, if it uses the memory of another process.
    pub(super) loan: Option<Loan>,
}

/// The memory of another process that a process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loan {
    /// The process whose memory it is.
    pub(super) lender: u32,
    /// The thread of that process which is blocked in `vfork` until the borrower execs or exits.
    pub(super) blocked: Option<u32>,
}

/// All processes that something is known of, by number.
///
/// # Locks
/// One, which no other is taken under. It is held only inside the methods here.
#[derive(Debug, Default)]
pub(super) struct ProcessTable(Mutex<BTreeMap<u32, ProcessState>>);

impl ProcessTable {
    /// Does `work` with what is known of a process, which may be nothing yet, or nothing any more.
    pub(super) fn entry<R>(&self, process: u32, work: impl FnOnce(&mut ProcessState) -> R) -> R {
        let mut processes = self.0.lock();
        let mut state = processes.get(&process).copied().unwrap_or_default();
        let done = work(&mut state);
        if state == ProcessState::default() {
            processes.remove(&process);
        } else {
            processes.insert(process, state);
        }
        done
    }

    /// Returns what is known of a process.
    pub(super) fn state(&self, process: u32) -> ProcessState {
        self.0.lock().get(&process).copied().unwrap_or_default()
    }

    /// Removes a process that has ended.
    pub(super) fn remove(&self, process: u32) {
        self.0.lock().remove(&process);
    }

    /// Gives a new process what its parent has: filters, limits, and what binds it to this kernel.
    pub(super) fn inherit(&self, process: u32) {
        // Usually there is nothing to inherit, and the parent is read from /proc.
        let inherited =
            |one: &ProcessState| one.limits_itself || one.bound || one.managed || one.watched;
        if !self.0.lock().values().any(inherited) {
            return;
        }
        let Some(parent) = process::parent_of(process).map(|parent| self.state(parent)) else {
            return;
        };
        // It may have been made before its parent had the filter.
        let has_more_than = |least: u32| {
            let filters = Status::of(process).ok().and_then(|status| status.filters());
            filters.is_some_and(|count| count > least)
        };
        let managed = parent.managed && has_more_than(0);
        // Programs that move have begun with a filter.
        let watched = parent.watched && has_more_than(1);
        self.entry(process, |state| {
            state.limits_itself |= parent.limits_itself;
            state.bound |= parent.bound;
            state.managed |= managed;
            state.watched |= watched;
        });
    }

    /// Returns the processes that use the memory of this one.
    pub(super) fn borrowers(&self, lender: u32) -> Vec<u32> {
        let processes = self.0.lock();
        let of_this = |state: &ProcessState| state.loan.is_some_and(|loan| loan.lender == lender);
        processes.iter().filter(|(_, state)| of_this(state)).map(|(&id, _)| id).collect()
    }

    /// Returns whether a thread is blocked in `vfork` while a child uses its memory.
    pub(super) fn is_in_vfork(&self, thread: u32) -> bool {
        let blocks =
            |state: &ProcessState| state.loan.and_then(|loan| loan.blocked) == Some(thread);
        self.0.lock().values().any(blocks)
    }
}
