//! The table of a supervisor's tasks.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use crate::process;
use crate::supervisor::task::Task;

/// All tasks that something is known of, by number.
///
/// # Locks
/// One, under which no other is taken and nothing is done with a tracee. It is held only inside the
/// methods here.
#[derive(Debug, Default)]
pub(super) struct TaskTable(Mutex<BTreeMap<u32, Task>>);

impl TaskTable {
    /// Does `work` with a task, of which nothing needs to be known yet.
    pub(super) fn entry<R>(&self, task: u32, work: impl FnOnce(&mut Task) -> R) -> R {
        work(self.0.lock().entry(task).or_insert_with(|| Task::new(task)))
    }

    /// Does `work` with a task if something is known of it.
    pub(super) fn find<R>(
        &self,
        task: u32,
        work: impl FnOnce(&mut Task) -> Option<R>,
    ) -> Option<R> {
        self.0.lock().get_mut(&task).and_then(work)
    }

    /// Returns whether a task has made its first stop, and has not ended.
    pub(super) fn has(&self, task: u32) -> bool {
        self.is(task, |task| task.started)
    }

    /// Returns whether a task is known and has this property.
    pub(super) fn is(&self, task: u32, property: impl FnOnce(&Task) -> bool) -> bool {
        self.0.lock().get(&task).is_some_and(property)
    }

    /// Returns whether any task has this property.
    pub(super) fn any(&self, property: impl Fn(&Task) -> bool) -> bool {
        self.0.lock().values().any(property)
    }

    /// Removes a task that has ended.
    pub(super) fn remove(&self, task: u32) -> Option<Task> {
        self.0.lock().remove(&task)
    }

    /// Handles an `execve`: the thread `former` goes on under the number `task`. Nothing that was
    /// known of either holds any more.
    pub(super) fn replace_program(&self, task: u32, former: u32) {
        let mut replaced = Task::new(task);
        replaced.started = true;
        let mut tasks = self.0.lock();
        // Dropped after the lock, since work that is left for them may be all that holds something.
        let dropped = [tasks.remove(&former), tasks.insert(task, replaced)];
        drop(tasks);
        drop(dropped);
    }

    /// Returns the tasks that have made their first stop, and have not ended.
    pub(super) fn started(&self) -> BTreeSet<u32> {
        let tasks = self.0.lock();
        tasks.iter().filter(|(_, task)| task.started).map(|(&id, _)| id).collect()
    }

    /// Returns the addresses of the words of a process that the kernel clears when threads end.
    pub(super) fn clear_words(&self, process: u32) -> Vec<u64> {
        let unknown = |task: &Task| task.clear_word.is_some_and(|word| word.process.is_none());
        let threads: Vec<u32> = {
            let tasks = self.0.lock();
            tasks.iter().filter(|(_, task)| unknown(task)).map(|(&thread, _)| thread).collect()
        };
        let processes: Vec<_> = threads.iter().map(|&one| process::process_of(one)).collect();
        let mut tasks = self.0.lock();
        for (thread, process) in threads.iter().zip(processes) {
            if let Some(word) = tasks.get_mut(thread).and_then(|task| task.clear_word.as_mut()) {
                word.process = process;
            }
        }
        let words = tasks.values().filter_map(|task| task.clear_word);
        words.filter(|word| word.process == Some(process)).map(|word| word.address).collect()
    }
}
