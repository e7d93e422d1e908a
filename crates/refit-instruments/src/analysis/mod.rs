//! The analysis of a trace: intervals and their times, raw and compensated for the cost of
//! measuring.

mod compensation;
mod delays;
mod dumps;
mod filter;
mod off_cpu;
mod order;
mod spans;
mod summary;
mod switches;
mod waits;

pub use self::compensation::{Compensation, Corrected};
pub use self::delays::{CHANGE, Delay, delays};
pub use self::dumps::Dumps;
pub use self::filter::Filter;
pub use self::off_cpu::{OffCpu, OffCpuKey, OffCpuSum, OffCpuSums, OffCpus};
pub use self::order::{Doubt, Order, Touch};
pub use self::spans::{Open, Span, Spans, Step};
pub use self::summary::{Durations, Row, Summary, summarize};
pub use self::switches::{Cell, Matrix, Switches};
pub use self::waits::{Wait, Waits};
