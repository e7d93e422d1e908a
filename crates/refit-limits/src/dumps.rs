//! Completes core dumps (core(5)). When the kernel dumps a program's memory, it waits for no page,
//! and leaves out pages that are absent. So refit brings all evicted pages back first, whatever the
//! limit is, and holds back the signal that ends the program until then.

use std::io;
use std::sync::Arc;
use std::thread;

use refit_memory::PAGE_SIZE;
use refit_memory::program::Pager;
use refit_tracer::Resume;
use refit_tracer::process::process_of;

use crate::shared::Shared;

/// Why a program is not served that is about to dump core.
const WHY: &str = "an image of its memory is written";

/// The number of attempts: pages that the disk does not give back are left out.
const MAX_ATTEMPTS: u32 = 100;

impl Shared {
    /// Handles a task that is about to receive a signal which ends its process with a core dump.
    /// Returns whether the task stays stopped until its memory is complete.
    pub(crate) fn on_core_dump(self: &Arc<Self>, task: u32, signal: i32) -> bool {
        let Some(process) = process_of(task).filter(|&process| is_written(process)) else {
            return false;
        };
        let mut state = self.state();
        let served = state.served.iter().find(|one| one.process == Some(process));
        let Some(pager) =
            served.filter(|one| one.pager.can_evict()).map(|one| Arc::clone(&one.pager))
        else {
            return false;
        };
        // From here on no page of it is evicted again.
        state.refused.insert(process, WHY.to_owned());
        drop(state);
        let this = Arc::clone(self);
        let give_back = move || {
            this.give_back(&pager);
            this.supervisor.order_kept(task, move |_| Resume::Once(signal));
        };
        // Without a thread, the dump has the pages that are resident.
        thread::Builder::new().name("refit-dump".to_owned()).spawn(give_back).is_ok()
    }

    fn give_back(&self, pager: &Arc<Pager>) {
        for _ in 0..MAX_ATTEMPTS {
            // Another thread may set the limit again in between.
            self.commons.budget.allow(u64::MAX / PAGE_SIZE as u64);
            if pager.release() {
                break;
            }
        }
        self.state().end(|one| Arc::ptr_eq(&one.pager, pager));
    }
}

/// The file that says where core dumps go: to a file, or, with `|`, to a program.
const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";

/// Returns whether the kernel writes a core dump of a process at all.
fn is_written(process: u32) -> bool {
    let piped = || {
        let pattern = std::fs::read_to_string(CORE_PATTERN);
        pattern.is_ok_and(|pattern| pattern.starts_with('|'))
    };
    let permitted = || -> io::Result<bool> {
        let limits = std::fs::read_to_string(format!("/proc/{process}/limits"))?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
        let soft = line.and_then(|line| line.split_ascii_whitespace().next());
        Ok(soft.is_some_and(|soft| soft != "0"))
    };
    permitted().unwrap_or(false) || piped()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path with a slip in it would be taken for a host without such dumps.
    #[test]
    fn the_kernel_says_where_core_dumps_go() {
        let pattern = std::fs::read_to_string(CORE_PATTERN).expect("Linux has it");
        assert!(!pattern.trim_end().contains('\n'), "{pattern}");
    }
}
