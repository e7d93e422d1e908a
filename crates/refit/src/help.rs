//! The first page of the help: the commands below a heading for each task, which clap's own list
//! does not have.

use std::fmt::Write as _;

use clap::Command;
use clap::builder::Styles;
use console::Term;

/// The commands of a task, with its heading.
pub(crate) struct Task {
    pub(crate) heading: &'static str,
    /// Adds the commands to a command as its subcommands.
    pub(crate) add: fn(Command) -> Command,
}

/// The width of the page where no terminal says otherwise, and at most.
pub(crate) const COLUMNS: usize = 100;

/// Returns clap's template of the page.
pub(crate) fn template(tasks: &[Task]) -> String {
    let columns = Term::stdout().size_checked().map_or(COLUMNS, |(_, columns)| columns.into());
    format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\n{}\n{{options}}{{after-help}}",
        list(tasks, columns.min(COLUMNS)),
        heading("Options"),
    )
}

/// Returns the commands, each with what it does, in lines of at most so many columns.
fn list(tasks: &[Task], columns: usize) -> String {
    let commands = tasks.iter().map(|task| (task.add)(Command::new(task.heading)));
    let commands: Vec<Command> = commands.collect();
    let visible = |task: &Command| -> Vec<(String, String)> {
        let shown = task.get_subcommands().filter(|command| !command.is_hide_set());
        let about = |command: &Command| command.get_about().map(ToString::to_string);
        shown.map(|one| (one.get_name().to_owned(), about(one).unwrap_or_default())).collect()
    };
    let names = commands.iter().flat_map(visible).map(|(name, _)| name.len());
    let width = names.max().unwrap_or_default();
    let literal = *Styles::default().get_literal();
    let mut page = String::new();
    for task in &commands {
        let _ = write!(page, "\n{}\n", heading(task.get_name()));
        for (name, about) in visible(task) {
            let text = wrapped(&about, columns.saturating_sub(width + 4), width + 4);
            let _ = writeln!(page, "  {literal}{name:width$}{literal:#}  {text}");
        }
    }
    page
}

fn heading(text: &str) -> String {
    let header = *Styles::default().get_header();
    format!("{header}{text}:{header:#}")
}

/// Breaks a text between words into lines of at most so many columns; all but the first are
/// indented.
fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    let mut wrapped = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > columns {
            let _ = write!(wrapped, "\n{:indent$}", "");
            used = 0;
        } else if used > 0 {
            wrapped.push(' ');
            used += 1;
        }
        wrapped.push_str(word);
        used += length;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_stand_below_their_tasks() {
        let add = |to: Command| {
            to.subcommand(Command::new("mount").about("Serve directories"))
                .subcommand(Command::new("kernel").about("Be an instance").hide(true))
        };
        let page = list(&[Task { heading: "Serve files", add }], 80);
        assert_eq!(
            console::strip_ansi_codes(&page),
            "\nServe files:\n  mount  Serve directories\n"
        );
    }

    #[test]
    fn long_texts_continue_below_their_beginning() {
        assert_eq!(wrapped("one two three", 7, 2), "one two\n  three");
        assert_eq!(wrapped("longer than that", 3, 1), "longer\n than\n that");
    }
}
