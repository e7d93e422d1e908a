//! The log of the steps of a command, or of an instance: `--log`, `REFIT_LOG` and the format.

use std::process::Command;
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use refit_log::{Filter, Format};

use crate::failure::Failure;

/// The variable that `--log` overrides.
const FILTER: &str = "REFIT_LOG";
/// The variable that `--log-format` overrides.
const FORMAT: &str = "REFIT_LOG_FORMAT";

/// Arguments that configure the log on standard error.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Log refit's own events to standard error: a level, or levels per module, e.g.
    /// warn,refit_migrate=debug [env: REFIT_LOG]
    #[arg(long, global = true, value_name = "FILTER", value_parser = checked, help_heading = "Log")]
    log: Option<String>,

    /// Format of the log (default: `journal` if standard error is the journal, otherwise `text`)
    /// [env: REFIT_LOG_FORMAT]
    #[arg(long, global = true, value_enum, value_name = "FORMAT", help_heading = "Log")]
    log_format: Option<FormatArg>,
}

/// The formats of events.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArg {
    /// One readable line per event
    Text,
    /// One JSON object per event
    Json,
    /// One line per event, with the priority prefix that systemd-journald reads
    Journal,
}

impl FormatArg {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Journal => "journal",
        }
    }
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Text => Self::Text,
            FormatArg::Json => Self::Json,
            FormatArg::Journal => Self::Journal,
        }
    }
}

/// Checks a filter when it is parsed, so that a wrong one is wrong usage.
fn checked(text: &str) -> Result<String, String> {
    Filter::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// The variables for the options on the command line, for instances that this command starts.
static ASKED: OnceLock<Vec<(&'static str, String)>> = OnceLock::new();

/// Starts the log.
///
/// # Errors
///
/// The filter, or the format in a variable, is invalid.
pub(crate) fn start(args: &LogArgs) -> Result<(), Failure> {
    let filter = args.log.clone().or_else(|| std::env::var(FILTER).ok());
    let operation = "write a log";
    let filter = match filter.filter(|text| !text.is_empty()) {
        Some(text) => Filter::parse(&text)
            .map_err(|error| Failure::new(operation, error.to_string(), "see `refit --help`"))?,
        None => Filter::default(),
    };
    let format = match args.log_format {
        Some(format) => format.into(),
        None => from_environment()?,
    };
    let log = args.log.iter().map(|text| (FILTER, text.clone()));
    let log_format = args.log_format.iter().map(|format| (FORMAT, format.name().to_owned()));
    // The function is called once.
    let _ = ASKED.set(log.chain(log_format).collect());
    let started = refit_log::start(filter, format);
    started.map_err(|error| Failure::new(operation, error.to_string(), "report this"))
}

/// Passes the log settings of this command to an instance that is about to be started.
pub(crate) fn hand_on(command: &mut Command) -> &mut Command {
    command.envs(variables().iter().map(|(name, value)| (name, value)))
}

/// Returns the log settings of this command as variables.
pub(crate) fn variables() -> &'static [(&'static str, String)] {
    ASKED.get().map_or(&[], Vec::as_slice)
}

fn from_environment() -> Result<Format, Failure> {
    match std::env::var(FORMAT).ok().filter(|name| !name.is_empty()) {
        Some(name) => FormatArg::from_str(&name, true).map(Format::from).map_err(|_| {
            let obstacle = format!("{FORMAT} is `{name}`");
            Failure::new("write a log", obstacle, "give text, json or journal")
        }),
        None if writes_to_journal() => Ok(Format::Journal),
        None => Ok(Format::Text),
    }
}

/// Returns whether standard error is the journal's socket, as systemd names it to a service
/// (systemd.exec(5)). The variable is inherited by programs whose output goes elsewhere.
fn writes_to_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(found) = rustix::fs::fstat(std::io::stderr()) else { return false };
    stream == format!("{}:{}", found.st_dev, found.st_ino)
}
