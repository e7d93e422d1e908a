//! `refit top`: objects by load, caches, processors and changes, live.
//!
//! ```text
//!   look ──► Sample ──► State::update ──► view::draw
//!   journal ─────────► State::changed ─┘
//! ```
//!
//! Looking costs something too, above all where there are many objects. So however short the interval, the next look
//! is not taken before a hundred times the cost of the last one has passed.

mod sample;
mod state;
mod view;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use refit_instance::wire::{ChangesQuery, JournalLine};
use serde::Serialize;

use self::state::State;
use crate::cli::TopArgs;
use crate::commands::{interruption, sleep};
use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::Output;
use crate::table::{Align, Table};

/// Time between two looks for each time that a look takes: one in a hundred is one per cent.
const RESERVE: u32 = 100;

/// Shows it until Ctrl-C or `q`; without a terminal, or with `--lines`, as text.
pub(crate) fn run(args: &TopArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let live = instances::live("watch", only)?;
    let changes = follow(&live)?;
    let mut state = State::default();
    let interrupted = interruption()?;
    let plain = args.times.is_some() || out.json();
    if plain || !std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        return lines(args, &live, &changes, &mut state, &interrupted, out);
    }
    let mut terminal = ratatui::try_init().map_err(|e| {
        Failure::new("take over the terminal", e.to_string(), "print text: --times 1")
    })?;
    let ended = screen(args, &live, &changes, &mut state, &interrupted, &mut terminal);
    ratatui::restore();
    ended
}

/// The journals of all instances, as they grow.
fn follow(live: &[Live]) -> Result<Receiver<JournalLine>, Failure> {
    let (sender, lines) = channel();
    for Live { client, .. } in live {
        let query = ChangesQuery { follow: true, from: None, last: Some(5) };
        let journal = client.changes(&query)?;
        let sender = sender.clone();
        // Ends with its instance, or with this process.
        thread::spawn(move || journal.into_iter().flatten().try_for_each(|line| sender.send(line)));
    }
    Ok(lines)
}

fn take(changes: &Receiver<JournalLine>, state: &mut State) {
    for line in changes.try_iter() {
        match line {
            JournalLine::Entry { report, .. } => state.changed(*report),
            JournalLine::Lost { lost } => state.lost_changes += lost,
        }
    }
}

fn screen(
    args: &TopArgs,
    live: &[Live],
    changes: &Receiver<JournalLine>,
    state: &mut State,
    interrupted: &AtomicBool,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<(), Failure> {
    let pids: Vec<String> = live.iter().map(|live| live.pid.to_string()).collect();
    let title = format!("instance {}", pids.join(", "));
    let mut next = Instant::now();
    while !interrupted.load(Ordering::Relaxed) {
        if Instant::now() >= next && !state.paused {
            let (sample, took) = sample::look(live)?;
            next = Instant::now() + args.every.max(took * RESERVE);
            state.update(sample);
            take(changes, state);
        }
        terminal.draw(|frame| view::draw(frame, state, &title))?;
        let rest = if state.paused { args.every } else { next.duration_since(Instant::now()) };
        if event::poll(rest)? && key(&event::read()?, state) {
            break;
        }
    }
    Ok(())
}

/// Does what a key says; whether it says to end.
fn key(event: &Event, state: &mut State) -> bool {
    let Event::Key(key) = event else { return false };
    if key.kind == KeyEventKind::Release {
        return false;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        // In raw mode the terminal makes no signal of it.
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
    changes: &Receiver<JournalLine>,
    state: &mut State,
    interrupted: &AtomicBool,
    out: &mut Output,
) -> Result<(), Failure> {
    state.update(sample::look(live)?.0);
    for _ in 0..args.times.unwrap_or(u64::MAX) {
        if !sleep(args.every, interrupted) {
            break;
        }
        state.update(sample::look(live)?.0);
        take(changes, state);
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
                name: &row.name,
                implementation: &row.implementation,
                calls_per_s: row.calls,
                faults_per_s: row.faults,
                resident: row.resident,
                dirty: row.dirty,
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
            format::count(row.resident),
            format::count(row.dirty),
            row.implementation.clone(),
            row.name.clone(),
        ]);
    }
    table.lines().iter().try_for_each(|line| out.line(line))?;
    out.line("")
}
