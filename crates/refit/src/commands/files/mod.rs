//! Serve files: `refit mount` and what is done with mounts.

pub(crate) mod file;
mod handover;
mod held;
mod mount;
mod mounts;
mod openers;
mod unit;

use std::path::PathBuf;

use clap::Subcommand;
use clap::builder::ValueHint;

use self::handover::HandoverArgs;
use self::mount::MountArgs;
use self::mounts::CacheArg;
use self::unit::UnitArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Commands that serve files.
#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// Serve directories until Ctrl-C, then write everything back and unmount
    Mount(MountArgs),

    /// Set who caches files: the kernel and refit, refit alone, or the better choice for each file
    #[command(after_help = "Example:\n  refit cache '/logs/*' direct")]
    Cache {
        /// Pattern for file names, with or without the prefix `fcm:`
        glob: String,
        /// Cache mode
        mode: CacheArg,
    },

    /// List mounts
    #[command(after_help = "Example:\n  refit mounts --json")]
    Mounts,

    /// Let another build of refit continue the mounts, while programs use them
    Handover(HandoverArgs),

    /// Install a systemd service that mounts, and hands over when it is reloaded
    InstallUnit(UnitArgs),

    /// Continue the mounts of another server, which starts this command
    #[command(hide = true, after_help = "Example:\n  refit handover /mnt/data")]
    TakeOver {
        /// Descriptor of the board of the first holder
        #[arg(value_parser = clap::value_parser!(i32).range(3..))]
        board: i32,
    },

    /// Write everything back and unmount
    #[command(after_help = "Example:\n  refit umount /mnt/data")]
    Umount {
        /// Directory on which it is mounted
        #[arg(value_hint = ValueHint::DirPath)]
        mountpoint: PathBuf,

        /// Discard data that cannot be written back because the disk is full or has failed
        #[arg(long)]
        discard: bool,
    },
}

impl FilesCommand {
    /// Runs the command at the instance `only`, or at every instance of this user.
    pub(crate) fn run(&self, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
        match self {
            FilesCommand::Mount(args) if args.is_held() => held::run(args, out.json()),
            FilesCommand::Mount(args) => mount::run(args, out),
            FilesCommand::Cache { glob, mode } => mounts::cache(glob, *mode, only, out),
            FilesCommand::Mounts => mounts::list(only, out),
            FilesCommand::Handover(args) => handover::run(args, only, out),
            FilesCommand::InstallUnit(args) => unit::run(args, out),
            FilesCommand::TakeOver { board } => held::take_over(*board),
            FilesCommand::Umount { mountpoint, discard } => {
                mounts::unmount(mountpoint, *discard, only, out)
            }
        }
    }
}
