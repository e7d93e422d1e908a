//! The tasks of a program and of all that it starts, traced by one thread.
//!
//! | module | contents |
//! |---|---|
//! | `state` | [`Supervisor`], and what it reports of its processes |
//! | `follow` | the event loop's thread: what each event of a task leads to |
//! | `event_loop` | doing work with a stopped task, and resuming it |
//! | `task`, `records`, `tasks` | a task: whether it is stopped, and for what; the table of all |
//! | `processes` | what is known of each process |
//! | `requests` | work that other threads leave for it |
//! | `work` | the types of that work |
//! | `stop_all` | stopping all threads of a process at once |
//! | `lending` | letting another process act on a stopped program |
//! | `watching` | callbacks for events |
//! | `filtered`, `sandbox` | events of seccomp filters; processes that limit their own calls |
//! | `restarted_calls`, `short_writes` | calls that a stop interrupts or cuts short |
//! | `move_request`, `answers` | threads that ask to run elsewhere |
//! | `processors`, `shown` | the processors that programs see |

mod answers;
#[cfg(test)]
mod calls;
mod event_loop;
mod filtered;
mod follow;
mod lending;
mod move_request;
mod processes;
mod processors;
mod records;
mod requests;
mod restarted_calls;
mod sandbox;
mod short_writes;
mod shown;
mod state;
mod stop_all;
mod task;
mod tasks;
mod watching;
mod work;

pub use requests::ResultTiming;
pub use shown::Shown;
pub use state::{NotMovable, Supervisor, TRACE_OPTIONS, TRACE_OPTIONS_WITH_EXIT};
