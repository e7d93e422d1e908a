//! `refit top`: objects by load, caches, processors and changes, live.
//!
//! ```text
//!   instances: looks, changes ──► News ──► State ──► view::draw
//!   host: processors ────────────────────────┘
//! ```
//!
//! Its cost must be negligible. Instances therefore send the difference to the previous look by
//! themselves, over one connection; the screen is drawn when there is something new; and if there
//! are so many objects that looking costs more than a hundredth of a processor, instances look less
//! often.

mod news;
mod processors;
mod state;
mod view;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde::Serialize;

use self::news::News;
use self::state::State;
use crate::commands::interruption::interruption;
use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::{self, Output};
use crate::table::{Align, Table};

/// Arguments of `refit top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit top
  refit top --every 100ms
  refit top --times 1 --json | jq .calls_per_s

Keys: q quits, s sorts by the next column, p pauses, the arrow keys scroll.")]
pub(crate) struct TopArgs {
    /// Interval between updates; longer if updates would take more than 1 % of the time
    #[arg(long, default_value = "1s", value_parser = format::parse_duration, value_name = "TIME")]
    every: Duration,

    /// Print this many tables as text, then exit
    #[arg(short = 'n', long, value_name = "N")]
    times: Option<u64>,
}

/// The time to wait before checking whether to end.
const END_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The minimum time to wait for a key, even if instances look more often.
const SHORTEST: Duration = Duration::from_millis(10);

/// Runs until Ctrl-C or `q`; without a terminal, or with `--lines`, prints text.
pub(crate) fn run(args: &TopArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let live = instances::live("watch", only)?;
    let news = News::of(&live, args.every)?;
    let mut state = State::default();
    let interrupted = interruption()?;
    let plain = args.times.is_some() || out.json();
    if plain || !output::can_draw() {
        return lines(args, &live, &news, &mut state, &interrupted, out);
    }
    let mut terminal = ratatui::try_init().map_err(|e| {
        Failure::new("take over the terminal", e.to_string(), "print text with --times 1")
    })?;
    let ended = screen(args, &live, &news, &mut state, &interrupted, &mut terminal);
    ratatui::restore();
    ended
}

fn screen(
    args: &TopArgs,
    live: &[Live],
    news: &News,
    state: &mut State,
    interrupted: &AtomicBool,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<(), Failure> {
    let pids: Vec<String> = live.iter().map(|live| live.pid.to_string()).collect();
    let title = format!("instance {}", pids.join(", "));
    let mut drawn = false;
    while !interrupted.load(Ordering::Relaxed) {
        if !state.paused && news.take(state)? {
            state.update_processors(processors::look());
            drawn = false;
        }
        if !drawn {
            terminal.draw(|frame| view::draw(frame, state, &title))?;
            drawn = true;
        }
        if event::poll(args.every.clamp(SHORTEST, END_POLL_INTERVAL))? {
            if key(&event::read()?, state) {
                break;
            }
            drawn = false;
        }
    }
    Ok(())
}

/// Handles a key. Returns whether to end.
fn key(event: &Event, state: &mut State) -> bool {
    let Event::Key(key) = event else { return false };
    if key.kind == KeyEventKind::Release {
        return false;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        // In raw mode the terminal generates no signal for it.
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Char('s') => state.reorder(),
        KeyCode::Char('p') => state.paused = !state.paused,
        KeyCode::Up => state.scroll_by(-1),
        KeyCode::Down => state.scroll_by(1),
        KeyCode::PageUp => state.scroll_by(-20),
        KeyCode::PageDown => state.scroll_by(20),
        KeyCode::Home => state.scroll_by(isize::MIN),
        _ => {}
    }
    false
}

/// An object as one line for programs.
#[derive(Serialize)]
struct Json<'a> {
    instance: u32,
    name: &'a str,
    implementation: &'a str,
    calls_per_s: f64,
    faults_per_s: f64,
    resident: u64,
    dirty: u64,
}

fn lines(
    args: &TopArgs,
    live: &[Live],
    news: &News,
    state: &mut State,
    interrupted: &AtomicBool,
    out: &mut Output,
) -> Result<(), Failure> {
    // The first look at each instance has no rates.
    for looks in 2..=args.times.map_or(u64::MAX, |times| times.saturating_add(1)) {
        while live.iter().any(|live| state.looks(live.pid) < looks) {
            if interrupted.load(Ordering::Relaxed) {
                return Ok(());
            }
            news.wait(state, END_POLL_INTERVAL)?;
        }
        print(state, out)?;
        out.flush()?;
    }
    Ok(())
}

fn print(state: &State, out: &mut Output) -> Result<(), Failure> {
    if out.json() {
        return state.rows.iter().try_for_each(|row| {
            out.object(&Json {
                instance: row.instance,
                name: &row.object.name,
                implementation: &row.object.implementation,
                calls_per_s: row.calls,
                faults_per_s: row.faults,
                resident: row.object.resident,
                dirty: row.object.dirty,
            })
        });
    }
    let mut table = Table::new(&[
        ("CALLS/S", Align::Right),
        ("FAULTS/S", Align::Right),
        ("RESIDENT", Align::Right),
        ("DIRTY", Align::Right),
        ("IMPLEMENTATION", Align::Left),
        ("NAME", Align::Left),
    ]);
    for row in &state.rows {
        table.row(vec![
            view::rate(row.calls),
            view::rate(row.faults),
            format::count(row.object.resident),
            format::count(row.object.dirty),
            row.object.implementation.clone(),
            row.object.name.clone(),
        ]);
    }
    table.lines().iter().try_for_each(|line| out.line(line))?;
    out.line("")
}
