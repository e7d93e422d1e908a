//! The command line: one definition for parsing, help, man pages and completions.

use clap::{Parser, Subcommand};

use crate::commands::code::CodeCommand;
use crate::commands::files::FilesCommand;
use crate::commands::host::HostCommand;
use crate::commands::moves::MovesCommand;
use crate::commands::objects::ObjectsCommand;
use crate::commands::observe::ObserveCommand;
use crate::commands::programs::ProgramsCommand;
use crate::help::{self, Task};
use crate::logging::LogArgs;

/// An operating-system layer that can be changed while programs use it
#[derive(Debug, Parser)]
#[command(name = "refit", version, max_term_width = help::COLUMNS, arg_required_else_help = true)]
#[command(help_template = help::template(&TASKS))]
#[command(after_help = "\
Objects are named INTERFACE:INSTANCE, e.g. fcm:/logs/a. In patterns, `*` matches any characters, `/` included, \
and `?` matches one character; all others are literal.

Example:
  refit mount ~/data /mnt/data &
  refit ls 'fcm:*'
  refit swap 'fcm:/logs/*' partitioned

Exit code: 0 success, 1 refused or failed, 2 usage error.")]
pub(crate) struct Cli {
    /// Print one JSON object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Ask only the instance with this process ID (default: every instance of this user)
    #[arg(long, global = true, value_name = "PID")]
    pub(crate) instance: Option<u32>,

    #[command(flatten)]
    pub(crate) log: LogArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The tasks of a user, in the order of the help.
const TASKS: [Task; 7] = [
    Task { heading: "Serve files", add: FilesCommand::augment_subcommands },
    Task { heading: "Change objects", add: ObjectsCommand::augment_subcommands },
    Task { heading: "Look into code", add: CodeCommand::augment_subcommands },
    Task { heading: "Record and observe", add: ObserveCommand::augment_subcommands },
    Task { heading: "Run and limit programs", add: ProgramsCommand::augment_subcommands },
    Task { heading: "Move programs", add: MovesCommand::augment_subcommands },
    Task { heading: "This host", add: HostCommand::augment_subcommands },
];

/// The commands, by task, in the order of [`TASKS`].
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Files(FilesCommand),
    #[command(flatten)]
    Objects(ObjectsCommand),
    #[command(flatten)]
    Code(CodeCommand),
    #[command(flatten)]
    Observe(ObserveCommand),
    #[command(flatten)]
    Programs(ProgramsCommand),
    #[command(flatten)]
    Moves(MovesCommand),
    #[command(flatten)]
    Host(HostCommand),
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
    fn the_help_and_the_page_of_commands_have_the_same_tasks() {
        let page = include_str!("../../../docs/guide/commands.md");
        let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
        let headings: Vec<&str> = headings.take(TASKS.len()).collect();
        assert_eq!(headings, TASKS.map(|task| task.heading));
        let mut add = clap::Command::new("refit");
        for task in &TASKS {
            add = (task.add)(add);
        }
        let names = |command: &clap::Command| -> Vec<String> {
            command.get_subcommands().map(|one| one.get_name().to_owned()).collect()
        };
        assert_eq!(names(&add), names(&Cli::command()), "a task is missing, or out of order");
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example:"), "{}", command.get_name());
        }
    }
}
