//! The arguments of `refit knob`.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::format;

/// Arguments of `refit knob`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit knob -p 4711 list --for 2s
  refit knob -p 4711 get _sdsMakeRoomFor+0xd0:limit
  refit knob -p 4711 set _sdsMakeRoomFor+0xd0:limit 268435455 --unchecked
  refit knob -p 4711 unset _sdsMakeRoomFor+0xd0:limit
  refit knob -p 4711 list --file libgomp --func '*barrier*'

A knob is a number in an instruction: the rounds of a loop, the limit of a comparison, an argument of a function. \
It is named after its function, the place in there, and its use. \
Setting it changes the bytes of all instructions of its def-use web at once, in place, so it costs nothing. \
Knobs that escape (stored, returned, computed with) cannot be set; knobs with a risk that refit cannot rule out are set only with --unchecked. \
They stay set after refit has ended; `refit knob unset` or `refit repair` restores them. See docs/guide/knobs.md.")]
pub(crate) struct KnobArgs {
    /// Process ID of the program
    #[arg(short, long, value_name = "PID")]
    pub(super) pid: u32,

    /// A file that it has mapped: a part of its path [default: the program's own]
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) file: Option<String>,

    #[command(subcommand)]
    pub(super) command: KnobCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum KnobCommand {
    /// List knobs, the most promising first
    List(ListArgs),

    /// Show a knob: its number, use, range, risks
    Get(GetArgs),

    /// Set a knob
    Set(SetArgs),

    /// Restore the number that the file has
    Unset(UnsetArgs),

    /// Set all knobs that were saved for the files that the program has mapped
    Apply,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only knobs of these functions: a name, with * and ? as wildcards
    #[arg(long, value_name = "FUNCTION")]
    pub(super) func: Option<String>,

    /// Count calls for this time, and list only knobs of functions that run
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME")]
    pub(super) time: Option<Duration>,

    /// Only knobs that are set
    #[arg(long, conflicts_with_all = ["func", "time", "all"])]
    pub(super) set: bool,

    /// Also list constants that are probably no tunables
    #[arg(long)]
    pub(super) all: bool,
}

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// Name of the knob, or the address of its instruction in the file
    pub(super) knob: String,

    /// Count for this time how often the comparison is made, and with which numbers
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME")]
    pub(super) time: Option<Duration>,

    /// Also list other functions with the same number and use: copies by inlining, perhaps
    #[arg(long)]
    pub(super) elsewhere: bool,
}

#[derive(Debug, Args)]
pub(super) struct SetArgs {
    /// Name of the knob, or the address of its instruction in the file
    pub(super) knob: String,

    /// The number; 0x for hexadecimal
    #[arg(value_parser = number, allow_negative_numbers = true)]
    pub(super) number: i64,

    /// Set it although refit cannot rule out that something else depends on it
    #[arg(long)]
    pub(super) unchecked: bool,

    /// Save it for `refit knob apply`, by the build id of the file
    #[arg(long)]
    pub(super) save: bool,
}

#[derive(Debug, Args)]
pub(super) struct UnsetArgs {
    /// Name of the knob, or the address of its instruction in the file
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(super) knob: Option<String>,

    /// Restore all knobs of the program
    #[arg(long)]
    pub(super) all: bool,

    /// Remove it from those that were saved, too
    #[arg(long, conflicts_with = "all")]
    pub(super) forget: bool,
}

/// Reads a number, decimal or hexadecimal, with or without a sign.
fn number(text: &str) -> Result<i64, String> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (digits, radix) = digits.strip_prefix("0x").map_or((digits, 10), |digits| (digits, 16));
    // A sign comes first, or not at all.
    let plain = digits.chars().all(|digit| digit.is_digit(radix));
    let magnitude = i128::from_str_radix(digits, radix).ok().filter(|_| plain);
    let number = magnitude.and_then(|magnitude| i64::try_from(sign * magnitude).ok());
    number.ok_or_else(|| "give a number of at most 64 bits, such as 4096 or 0x1000".to_owned())
}

#[cfg(test)]
#[test]
fn numbers_are_read() {
    for (text, wanted) in
        [("0", 0), ("-5", -5), ("0x10", 16), ("-0x10", -16), ("9223372036854775807", i64::MAX)]
    {
        assert_eq!(number(text), Ok(wanted), "{text}");
    }
    for text in ["", "-", "0x", "--1", "+1", "4k", "9223372036854775808", "0x-1"] {
        assert!(number(text).is_err(), "{text}");
    }
}
