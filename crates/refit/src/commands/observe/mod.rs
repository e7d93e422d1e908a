//! Observe instances: recordings, reports about them, and live views.

mod export;
mod instruments;
mod metrics;
mod record;
mod report;
mod top;
mod trace;

use clap::Subcommand;

use self::export::ExportArgs;
use self::instruments::InstrumentsArgs;
use self::metrics::MetricsArgs;
use self::record::RecordArgs;
use self::report::ReportArgs;
use self::top::TopArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Commands that record and show what instances do.
#[derive(Debug, Subcommand)]
pub(crate) enum ObserveCommand {
    /// Record what instances, instrumented programs and the scheduler do
    Record(RecordArgs),

    /// Summarize a trace: time by class and method, context switches, waits, losses
    Report(ReportArgs),

    /// Export a trace to the format of another tool
    Export(ExportArgs),

    /// List instruments with their current cost; suspend and resume them
    Instruments(InstrumentsArgs),

    /// Show objects, mounts, processors and changes, live
    Top(TopArgs),

    /// Print the metrics of instances as OpenMetrics text
    Metrics(MetricsArgs),
}

impl ObserveCommand {
    /// Runs the command at the instance `only`, or at every instance of this user.
    pub(crate) fn run(&self, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
        match self {
            ObserveCommand::Record(args) => record::run(args, only, out),
            ObserveCommand::Report(args) => report::run(args, out),
            ObserveCommand::Export(args) => export::run(args),
            ObserveCommand::Instruments(args) => instruments::run(args, only, out),
            ObserveCommand::Top(args) => top::run(args, only, out),
            ObserveCommand::Metrics(args) => metrics::run(args, only, out),
        }
    }
}
