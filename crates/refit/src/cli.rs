//! The command line: one definition for parsing, help, man pages and completions.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ValueHint;
use clap::{Args, Parser, Subcommand, ValueEnum};
use refit_instance::Clustering;
use refit_instance::wire::SwapPart;

use crate::commands::adapt::AdaptArgs;
use crate::commands::boot::BootArgs;
use crate::commands::code::cfg::CfgArgs;
use crate::commands::code::funcs::FuncsArgs;
use crate::commands::cover::CoverArgs;
use crate::commands::drill::DrillArgs;
use crate::commands::export::ExportArgs;
use crate::commands::instruments::InstrumentsArgs;
use crate::commands::limit::LimitArgs;
use crate::commands::metrics::MetricsArgs;
use crate::commands::moves::MoveArgs;
use crate::commands::probe::{ProbeArgs, RepairArgs};
use crate::commands::record::RecordArgs;
use crate::commands::report::ReportArgs;
use crate::commands::run::RunArgs;
use crate::commands::setting::SettingArgs;
use crate::format;
use crate::logging::LogArgs;

/// An operating-system layer that can be changed while programs use it
#[derive(Debug, Parser)]
#[command(name = "refit", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "\
Objects are named interface:instance, e.g. fcm:/logs/a. In patterns `*` matches any characters, `/` too, \
and `?` matches one; everything else is literal.

Example:
  refit mount ~/data /mnt/data &
  refit ls 'fcm:*'
  refit swap 'fcm:/logs/*' partitioned

Exit code: 0 done, 1 refused or failed, 2 wrong usage.")]
pub(crate) struct Cli {
    /// Print one JSON object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Ask only the instance with this process id; otherwise every instance of this user
    #[arg(long, global = true, value_name = "PID")]
    pub(crate) instance: Option<u32>,

    #[command(flatten)]
    pub(crate) log: LogArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve directories; runs until Ctrl-C, then stores everything and unmounts
    Mount(MountArgs),

    /// List objects
    Ls(LsArgs),

    /// Show everything that is known about an object, or a process
    Show(ShowArgs),

    /// Swap objects for another implementation while they are used
    Swap(SwapArgs),

    /// Have caches swapped by how they are used, until Ctrl-C
    Adapt(AdaptArgs),

    /// List the classes of objects: what new ones are made of, and how many there are
    #[command(after_help = "Example:\n  refit classes")]
    Classes,

    /// Swap all objects of a class and what new ones are made of, or nothing
    Upgrade(UpgradeArgs),
    /// Put code around objects that sees every call, while they are used
    Wrap(WrapArgs),

    /// Take such code away again
    Unwrap(UnwrapArgs),

    /// Load implementations that were built apart, so that objects can be swapped to them
    #[command(after_help = "\
Example:
  refit load ./libfast.so
  refit plugins
  refit swap store:users fast

The file is checked before any code of it runs. The same path can be loaded again with new code in it.")]
    Load {
        /// A shared library that was built with refit_objects::plugin!
        #[arg(value_hint = ValueHint::FilePath)]
        plugin: PathBuf,
    },

    /// List loaded code: what it implements, how many objects it serves, the memory that it takes
    #[command(after_help = "Example:\n  refit plugins --json")]
    Plugins,

    /// Say why loaded code stays mapped, and who uses it
    #[command(after_help = "Example:\n  refit unload ./libfast.so")]
    Unload {
        /// The file, or the build id
        #[arg(value_hint = ValueHint::FilePath)]
        plugin: PathBuf,
    },

    /// Show the journal: every change that has ended
    Changes(ChangesArgs),

    /// Show what a trace says: time by class and method, context switches, waits, losses
    Report(ReportArgs),

    /// List functions of a program or library: where they are, how large, who knows of them
    Funcs(FuncsArgs),

    /// Show the control flow of a function: basic blocks, edges, instructions, what is dead where
    Cfg(CfgArgs),

    /// Make a file for another tool out of a trace
    Export(ExportArgs),

    /// Change who caches files: the kernel too, refit alone, or whatever suits each file
    #[command(after_help = "Example:\n  refit cache '/logs/*' direct")]
    Cache {
        /// Pattern over file names, with or without `fcm:`
        glob: String,
        /// Cache mode
        mode: CacheArg,
    },

    /// List what is mounted
    #[command(after_help = "Example:\n  refit mounts --json")]
    Mounts,

    /// Store everything and unmount
    #[command(after_help = "Example:\n  refit umount /mnt/data")]
    Umount {
        /// Where it is mounted
        #[arg(value_hint = ValueHint::DirPath)]
        mountpoint: PathBuf,

        /// Give up what cannot be stored, because the disk is full or has failed
        #[arg(long)]
        discard: bool,
    },

    /// Run a program under an instance of its own, as if there were none
    Run(RunArgs),

    /// Tend a program: what `refit run` starts beside it
    #[command(hide = true, after_help = "Example:\n  refit run -- make -j2 &\n  pgrep -a refit")]
    Tend {
        /// The process that becomes the program
        process: u32,
        /// Memory limit of its tree, in bytes
        #[arg(long, value_name = "BYTES")]
        memory: Option<u64>,
        /// Have its programs hold nothing of this kernel
        #[arg(long)]
        movable: bool,
    },

    /// Start several instances that make one system: programs move between them
    Boot(BootArgs),

    /// Be one of several instances: what `refit boot` starts
    #[command(hide = true, after_help = "Example:\n  refit boot --instances 2\n  pgrep -a refit")]
    Kernel {
        /// Its number
        number: u16,
        /// Its processors
        processors: String,
        #[command(flatten)]
        setting: SettingArgs,
    },

    /// List the instances that make one system
    #[command(after_help = "Example:\n  refit boot --instances 2\n  refit instances --json")]
    Instances,

    /// End the instances that make one system
    #[command(after_help = "Example:\n  refit shutdown --kill")]
    Shutdown {
        /// Kill the programs that run under them
        #[arg(long)]
        kill: bool,
    },

    /// Have a program, or one thread of it, go on at another instance
    Move(MoveArgs),

    /// Have the threads of a program run at all instances in turn
    #[command(
        after_help = "Example:\n  refit run --on 0 --movable -- ./solver &\n  refit spread $!\n  refit ps"
    )]
    Spread {
        /// The process
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        pid: u32,
    },

    /// Limit the memory of a program that runs, and of all that it starts
    Limit(LimitArgs),

    /// List the processes of programs that run under instances
    #[command(after_help = "Example:\n  refit ps --json")]
    Ps,

    /// Watch functions and instructions of a program that runs: how often, how long, with what
    Probe(ProbeArgs),

    /// Watch which basic blocks of a program are reached, at a cost that vanishes as they are
    Cover(CoverArgs),

    /// Measure where the time in a function goes: its callees, and on into the one that takes most
    Drill(DrillArgs),

    /// Take out of a program what a killed refit has left
    Repair(RepairArgs),

    /// Record what instances, instrumented programs and the scheduler do
    Record(RecordArgs),

    /// List what is instrumented and what that costs now; suspend and resume it
    Instruments(InstrumentsArgs),

    /// Watch objects, mounts, processors and changes, live
    Top(TopArgs),

    /// Print what instances count, as OpenMetrics text
    Metrics(MetricsArgs),

    /// Check what this host offers, what is missing, what that costs and how to get it
    #[command(after_help = "Example:\n  refit doctor")]
    Doctor,

    /// Print the last 10,000 events of instances: what they did, step by step
    #[command(after_help = "\
Example:
  refit debug-dump > here.txt
  refit --instance 4711 debug-dump --json | jq 'select(.level != \"DEBUG\")'

Each instance keeps them in memory, whatever `--log` says. Where something hangs between two hosts, \
dump both: groups, threads and residencies have the same numbers on either.")]
    DebugDump,

    /// Watch caches being swapped under running programs, for about a minute
    Tour(TourArgs),

    /// Print completions for a shell
    #[command(after_help = "Example:\n  refit completions bash > /etc/bash_completion.d/refit")]
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },

    /// Print a C header: for threads that ask to go to another instance, or for instruments
    #[command(
        after_help = "Example:\n  refit header > refit_move.h\n  refit header instruments > refit.h"
    )]
    Header {
        /// Which
        #[arg(value_enum, default_value = "move")]
        which: HeaderArg,
    },

    /// Write man pages
    #[command(after_help = "Example:\n  refit man /usr/local/share/man/man1")]
    Man {
        /// Where to
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

/// A C header.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum HeaderArg {
    /// `refit_move.h`: refit_move(instance) and refit_instance()
    Move,
    /// `refit.h`: events, counters and timers, as `refit record` records them
    Instruments,
}

/// Arguments of `refit ls`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit ls 'fcm:/logs/*'
  refit ls --class fcm --implementation shared --on pm:/mnt/data")]
pub(crate) struct LsArgs {
    /// Pattern over names
    #[arg(default_value = "*", hide_default_value = true)]
    pub(crate) glob: String,

    /// Only objects of this class (the part of their names before the colon)
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<String>,

    /// Only objects that this implementation serves
    #[arg(long, value_name = "NAME")]
    pub(crate) implementation: Option<String>,

    /// Only objects that stand on this one: call it, or call one that does
    #[arg(long, value_name = "OBJECT")]
    pub(crate) on: Option<String>,

    /// Only objects on which this one stands
    #[arg(long, value_name = "OBJECT")]
    pub(crate) under: Option<String>,

    /// Only objects of the mount at this mountpoint
    #[arg(long, value_name = "MOUNTPOINT")]
    pub(crate) mount: Option<String>,
}

/// Arguments of `refit mount`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit mount ~/data /mnt/data --frames 256M
  refit mount ~/data /mnt/data --compose plan.json

Ctrl-C unmounts; if the mount is in use, or something cannot be stored, a second Ctrl-C takes it out of sight \
whoever uses it, and gives up what cannot be stored. The exit code is 1 if something was lost.

A plan names parts, says which block each is (interface:implementation), and which part is at each of its ports. \
It is checked before anything is mounted. The usual one:
  {\"parts\": {
    \"cache\": {\"block\": \"fcm:shared\", \"connect\": {\"fr\": \"file\", \"pm\": \"memory\"}},
    \"file\": {\"block\": \"fr:host\"},
    \"memory\": {\"block\": \"pm:sweep\", \"connect\": {\"policy\": \"replacement\"}},
    \"replacement\": {\"block\": \"policy:clock\"}}}")]
pub(crate) struct MountArgs {
    /// Directories to serve and where: SOURCE MOUNTPOINT, as many pairs as are wanted
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "MOUNTPOINT"])]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) pairs: Vec<PathBuf>,

    /// Memory for cached pages, per mount
    #[arg(long, default_value = "256M", value_parser = format::parse_size, value_name = "SIZE")]
    pub(crate) frames: u64,

    /// Cache mode
    #[arg(long, default_value = "auto", value_enum, value_name = "MODE")]
    pub(crate) cache: CacheArg,

    /// Threads that serve; one per processor unless said otherwise
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// Implementation that file caches begin with: shared or partitioned
    #[arg(long, default_value = "shared", value_name = "NAME")]
    pub(crate) implementation: String,

    /// Build mounts of the blocks that this file names, connected as it says (JSON)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "implementation")]
    pub(crate) compose: Option<PathBuf>,

    /// Refuse to write
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Let other users in (their own permissions still apply)
    #[arg(long)]
    pub(crate) allow_other: bool,

    /// Unmount as well when standard input ends, whoever uses the mount: for programs that start
    /// refit and must not leave it behind
    #[arg(long)]
    pub(crate) until_eof: bool,
}

/// Arguments of `refit swap`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit swap 'fcm:/logs/*' partitioned --deadline 50ms
  refit swap 'fcm:/logs/*' shared partitioned --every 1ms --for 10s
  refit swap fcm:/a partitioned --together --with fcm:/b=shared
  refit swap fcm:/a partitioned --probation 10s --until 'errors == 0 && p99 < 1.2 × before'
  refit swap fcm:/logs/a partitioned --dry-run

Phases: prepare (the new object is built), forward (calls go to the old one and are tracked), block (new \
calls wait, tracked ones drain), transfer (state moves), commit, or roll back at any point before that.")]
pub(crate) struct SwapArgs {
    /// Name of an object, or a pattern
    #[arg(value_name = "OBJECT|GLOB")]
    pub(crate) glob: String,

    /// Implementation to serve; with --every, several that follow each other
    #[arg(required = true, value_name = "IMPLEMENTATION")]
    pub(crate) implementations: Vec<String>,

    /// Time that each object may take before it is rolled back
    #[arg(long, default_value = "1s", value_parser = format::parse_duration, value_name = "TIME")]
    pub(crate) deadline: Duration,

    /// Which processors share a representative: one, each, groups:4, map:0,0,1,1; as the
    /// implementation has it unless said otherwise
    #[arg(long, value_name = "WHICH")]
    pub(crate) reps: Option<Clustering>,

    /// Retries of each object, after a pause that doubles, when it misses its deadline
    #[arg(long, default_value = "0", value_name = "N")]
    pub(crate) retries: u32,

    /// Each has to keep to the condition of --until for this time, or is swapped back
    #[arg(long, requires = "until", conflicts_with_all = ["every", "together"], value_name = "TIME")]
    #[arg(value_parser = format::parse_duration)]
    pub(crate) probation: Option<Duration>,

    /// Condition that has to hold: calls, errors, rate, mean, p50, p90, p99, max, compared with
    /// numbers, times or `before`
    #[arg(long, requires = "probation", value_name = "CONDITION")]
    pub(crate) until: Option<String>,

    /// All of them as one change: no request sees some old and some new, and if one cannot be
    /// swapped, none is
    #[arg(long, conflicts_with = "every")]
    pub(crate) together: bool,

    /// Another change that is made with it
    #[arg(long, requires = "together", value_name = "OBJECT|GLOB=IMPLEMENTATION")]
    #[arg(value_parser = parse_part)]
    pub(crate) with: Vec<SwapPart>,

    /// Swap again and again, one object after the other, a swap at each TIME; Ctrl-C ends it
    #[arg(long, value_parser = format::parse_duration, value_name = "TIME")]
    pub(crate) every: Option<Duration>,

    /// End after this time
    #[arg(long = "for", requires = "every", value_parser = format::parse_duration)]
    #[arg(value_name = "TIME")]
    pub(crate) time: Option<Duration>,

    /// Change nothing: show in which protocols state could move, which one would, and how long it
    /// took to move it for a try while calls waited
    #[arg(long, conflicts_with = "every")]
    pub(crate) dry_run: bool,

    /// Move state in this protocol instead of the best that both implementations know
    #[arg(long, value_name = "NAME")]
    pub(crate) protocol: Option<String>,

    /// Leave the state of the old implementation behind, e.g. when it does not give it; only where
    /// the state is a hint, as that of a replacement policy
    #[arg(long, conflicts_with_all = ["protocol", "empty_state"])]
    pub(crate) without_state: bool,

    /// Throw the state away and begin with an empty one: LOSES what the object holds; only where
    /// the interface says what empty is
    #[arg(long, conflicts_with = "protocol")]
    pub(crate) empty_state: bool,

    /// Only objects of the mount at this mountpoint
    #[arg(long, value_name = "MOUNTPOINT")]
    pub(crate) mount: Option<String>,
}

/// Parses `fcm:/a=shared`. Names can contain `=`, implementations cannot.
fn parse_part(text: &str) -> Result<SwapPart, String> {
    let wrong = || format!("`{text}` is not OBJECT=IMPLEMENTATION, e.g. fcm:/a=shared");
    let (glob, implementation) = text.rsplit_once('=').ok_or_else(wrong)?;
    if glob.is_empty() || implementation.is_empty() {
        return Err(wrong());
    }
    Ok(SwapPart { glob: glob.to_owned(), implementation: implementation.to_owned() })
}

/// Arguments of `refit upgrade`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit upgrade fcm partitioned
  refit upgrade fcm partitioned --rate 1000 &
  refit upgrade fcm --pause

If an object cannot be swapped, or Ctrl-C is pressed, everything is taken back, and new objects are made as before.")]
pub(crate) struct UpgradeArgs {
    /// The class, as `refit classes` shows it
    pub(crate) class: String,

    /// Implementation to serve
    #[arg(required_unless_present_any = ["pause", "resume"])]
    pub(crate) implementation: Option<String>,

    /// Time that a batch of objects may take before everything is rolled back
    #[arg(long, default_value = "1s", value_parser = format::parse_duration, value_name = "TIME")]
    pub(crate) deadline: Duration,

    /// Objects per second at the most
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<f64>,

    /// Hold the upgrade that is under way up: meanwhile some objects are old and some are new
    #[arg(long, conflicts_with_all = ["implementation", "rate", "resume"])]
    pub(crate) pause: bool,

    /// Let it go on
    #[arg(long, conflicts_with_all = ["implementation", "rate"])]
    pub(crate) resume: bool,
}

/// Arguments of `refit show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit show fcm:/logs/a
  refit show -f 'fcm:/logs/*' --every 200ms
  refit show 4711

A number is a process of a program that runs under an instance: what its memory is, region by region, and what its moves between instances come to. \
The drawing at the end shows what the object stands on, and what stands on it.")]
pub(crate) struct ShowArgs {
    /// Its name, or a pattern; or the number of a process
    #[arg(value_name = "OBJECT|GLOB|PID")]
    pub(crate) object: String,

    /// Stay and show it again and again; Ctrl-C ends it
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// Interval
    #[arg(long, default_value = "1s", requires = "follow", value_parser = format::parse_duration)]
    #[arg(value_name = "TIME")]
    pub(crate) every: Duration,

    /// Only objects of the mount at this mountpoint
    #[arg(long, value_name = "MOUNTPOINT")]
    pub(crate) mount: Option<String>,
}

/// Arguments of `refit top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit top
  refit top --every 100ms
  refit top --times 1 --json | jq .calls_per_s

Keys: q ends it, s sorts by the next column, p pauses, the arrows scroll.")]
pub(crate) struct TopArgs {
    /// Interval of refreshes; longer where they would take more than a hundredth of the time
    #[arg(long, default_value = "1s", value_parser = format::parse_duration, value_name = "TIME")]
    pub(crate) every: Duration,

    /// Print this number of tables as text, and end
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) times: Option<u64>,
}

/// Arguments of `refit wrap`.
#[derive(Debug, Args)]
#[command(after_help = "\
Wrappers and their options:
  count         calls, errors and panics of each method
  latency       how long each method takes [method=NAME]
  concurrency   calls that are inside at the same time [method=NAME]
  sequential    whether accesses follow each other [method=NAME] [offset=ARGUMENT] [length=ARGUMENT] [unit=N]
  arguments     how values of an argument are spread: argument=NAME [method=NAME]
  fault         delays calls or lets them fail [delay=TIME] [error=ERRNO] [every=N] [method=NAME]

What they find is shown by `refit show`, live by `refit show -f`. Wrappers stack; they stay when the object is swapped.

Example:
  refit wrap 'fcm:/logs/*' latency method=read
  refit wrap fcm:/logs/a fault error=5 every=100 method=read")]
pub(crate) struct WrapArgs {
    /// Name of an object, or a pattern
    #[arg(value_name = "OBJECT|GLOB")]
    pub(crate) glob: String,

    /// Wrapper to put around it
    #[arg(value_name = "WRAPPER")]
    pub(crate) wrapper: String,

    /// Option to set
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) options: Vec<String>,

    /// Only objects of the mount at this mountpoint
    #[arg(long, value_name = "MOUNTPOINT")]
    pub(crate) mount: Option<String>,
}

/// Arguments of `refit unwrap`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  refit unwrap 'fcm:/logs/*' latency\n  refit unwrap '*' --all")]
pub(crate) struct UnwrapArgs {
    /// Name of an object, or a pattern
    #[arg(value_name = "OBJECT|GLOB")]
    pub(crate) glob: String,

    /// Name of the wrapper, or its number as `refit show` says it
    #[arg(value_name = "WRAPPER", required_unless_present = "all")]
    pub(crate) wrapper: Option<String>,

    /// All wrappers
    #[arg(long, conflicts_with = "wrapper")]
    pub(crate) all: bool,

    /// Only objects of the mount at this mountpoint
    #[arg(long, value_name = "MOUNTPOINT")]
    pub(crate) mount: Option<String>,
}

/// Arguments of `refit changes`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  refit changes -f --json")]
pub(crate) struct ChangesArgs {
    /// Stay and print what comes
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// At most this many of the latest of what is there already
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) last: Option<usize>,
}

/// Arguments of `refit tour`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  refit tour")]
pub(crate) struct TourArgs {
    /// Time for which the programs work, a third of it while caches are swapped under them
    #[arg(long, default_value = "45s", value_parser = format::parse_duration, value_name = "TIME")]
    pub(crate) time: Duration,

    /// Where to put the scratch directory
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "DIRECTORY")]
    pub(crate) scratch: Option<PathBuf>,
}

/// The cache modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheArg {
    /// The kernel caches too; refit is asked on a miss
    Kernel,
    /// Every read and write comes to refit
    Direct,
    /// The mode that suits each file
    Auto,
}

impl From<CacheArg> for refit_instance::wire::CacheMode {
    fn from(arg: CacheArg) -> Self {
        match arg {
            CacheArg::Kernel => Self::Kernel,
            CacheArg::Direct => Self::Direct,
            CacheArg::Auto => Self::Auto,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example:"), "{}", command.get_name());
        }
    }
}
