//! Draws the state of `refit top`.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};

use super::state::{Load, Served, State};
use crate::commands::objects::changes;
use crate::format;

/// The number of lines of changes, with their frame.
const CHANGES: u16 = 7;
/// The width of the widest bar of a processor, in characters.
const BAR: usize = 20;
/// The width of the processors, in columns.
const PROCESSORS: u16 = 38;
/// The width that the mounts need, in columns. On a narrower screen they are below the processors.
const MOUNTS: u16 = 82;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &State, title: &str) {
    let wide = frame.area().width >= PROCESSORS + MOUNTS;
    let height = |lines: usize| lines.clamp(1, 8) as u16 + 2;
    let (loads, mounts) = (height(state.loads.len()), height(state.mounts.len() + 1));
    let busy = if wide { loads.max(mounts) } else { loads + mounts };
    let [head, top, objects, changes] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(busy),
        Constraint::Min(4),
        Constraint::Length(CHANGES),
    ])
    .areas(frame.area());
    let [processors, mounts] = if wide {
        Layout::horizontal([Constraint::Length(PROCESSORS), Constraint::Min(MOUNTS)]).areas(top)
    } else {
        Layout::vertical([Constraint::Length(loads), Constraint::Length(mounts)]).areas(top)
    };
    frame.render_widget(headline(state, title), head);
    frame.render_widget(processor_lines(&state.loads), processors);
    frame.render_widget(mount_table(&state.mounts), mounts);
    frame.render_widget(object_table(state, objects), objects);
    frame.render_widget(change_lines(state), changes);
}

fn headline<'a>(state: &State, title: &'a str) -> Paragraph<'a> {
    let paused = if state.paused { "  PAUSED" } else { "" };
    Paragraph::new(Line::from(vec![
        "refit top".bold(),
        Span::raw(format!("  {title}  {}", format::counted(state.rows.len() as u64, "object"))),
        paused.bold(),
        "   q quit  s sort  p pause  ↑↓ scroll".dim(),
    ]))
}

fn processor_lines(loads: &[Load]) -> Paragraph<'_> {
    let line = |load: &Load| {
        let bar = |share: f64| "█".repeat((share * BAR as f64).round() as usize);
        let (user, system, stolen) = (bar(load.user), bar(load.system), bar(load.stolen));
        let drawn = [&user, &system, &stolen].iter().map(|b| b.chars().count()).sum::<usize>();
        Line::from(vec![
            Span::raw(format!("{:>3} ", load.number)),
            user.green(),
            system.red(),
            stolen.magenta(),
            Span::raw(" ".repeat(BAR.saturating_sub(drawn))),
            Span::raw(format!(" {:>3.0} %", 100.0 * (load.user + load.system + load.stolen))),
        ])
    };
    let lines: Vec<Line<'_>> = loads.iter().map(line).collect();
    Paragraph::new(lines).block(Block::bordered().title("processors: user, system, stolen"))
}

fn mount_table(mounts: &[Served]) -> Table<'_> {
    let row = |mount: &Served| {
        Row::new([
            format!("{:>9}", rate(mount.requests)),
            format!("{:>10}", format::size(mount.read as u64)),
            format!("{:>10}", format::size(mount.written as u64)),
            format!("{:>7}", mount.waiting),
            format!("{:>6}", mount.open),
            format!("{:>6}", mount.shared),
            format!("{:>6}", mount.passed),
            mount.mountpoint.clone(),
        ])
    };
    let head = ["REQUESTS", "READ", "WRITTEN", "WAITING", "OPEN", "SHARED", "PASSED", "MOUNT"];
    let widths =
        [9, 10, 10, 7, 6, 6, 6].map(Constraint::Length).into_iter().chain([Constraint::Min(8)]);
    Table::new(mounts.iter().map(row), widths)
        .header(header(&head, &[9, 10, 10, 7, 6, 6, 6]))
        .block(Block::bordered().title("mounts, per second"))
}

fn object_table(state: &State, area: Rect) -> Table<'_> {
    let row = |row: &super::state::Row| {
        Row::new([
            format!("{:>9}", rate(row.calls)),
            format!("{:>9}", rate(row.faults)),
            format!("{:>9}", format::count(row.object.resident)),
            format!("{:>9}", format::count(row.object.dirty)),
            row.object.implementation.clone(),
            row.object.name.clone(),
        ])
    };
    let head = ["CALLS/S", "FAULTS/S", "RESIDENT", "DIRTY", "IMPLEMENTATION", "NAME"];
    let widths = [9, 9, 9, 9, 22].map(Constraint::Length).into_iter().chain([Constraint::Min(8)]);
    let shown = state.rows.iter().skip(state.scroll).take(usize::from(area.height));
    Table::new(shown.map(row), widths)
        .header(header(&head, &[9, 9, 9, 9]))
        .block(Block::bordered().title(format!("objects by {}", state.order.name())))
}

/// Returns the titles; those of columns with a width are right-aligned.
fn header(titles: &[&'static str], right: &[usize]) -> Row<'static> {
    let cell = |(i, title): (usize, &&'static str)| match right.get(i) {
        Some(width) => Cell::new(format!("{title:>width$}")),
        None => Cell::new(*title),
    };
    let style = Style::new().add_modifier(Modifier::BOLD).fg(Color::Cyan);
    Row::new(titles.iter().enumerate().map(cell)).style(style)
}

fn change_lines(state: &State) -> Paragraph<'_> {
    let latest = state.changes.iter().rev().take(usize::from(CHANGES) - 2);
    let mut lines: Vec<Line<'_>> = latest.map(|report| Line::raw(changes::entry(report))).collect();
    lines.reverse();
    let title = match state.lost_changes {
        0 => "changes".to_owned(),
        lost => format!("changes ({} not seen)", format::count(lost)),
    };
    Paragraph::new(lines).block(Block::bordered().title(title))
}

/// Returns a rate in few characters: `0`, `3.1`, `12 345`.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".into(),
        few if few < 10.0 => format!("{few:.1}"),
        many => format::count(many.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use refit_instance::wire::Mount;

    use super::super::state::tests::activity;
    use super::*;

    #[test]
    fn everything_has_its_place_on_a_small_screen() {
        let mut state = State::default();
        state.update(7, activity(0, &[(1, "fcm:/a", 0, 0), (2, "fcm:/b", 0, 0)]));
        let mut next = activity(1, &[(1, "fcm:/a", 12_345, 3), (2, "fcm:/b", 5, 0)]);
        let mountpoint = "/mnt/data".into();
        let stats = [("open_files".to_owned(), 31)].into();
        let (id, source, leaving, read_only) = (1, "/".into(), false, false);
        next.mounts = vec![Mount { id, source, mountpoint, leaving, read_only, stats }];
        state.update(7, next);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("no device is needed");
        terminal.draw(|frame| draw(frame, &state, "instance 7")).expect("it fits");
        let buffer = terminal.backend().buffer();
        let lines: Vec<String> = buffer
            .content()
            .chunks(80)
            .map(|cells| cells.iter().map(ratatui::buffer::Cell::symbol).collect())
            .collect();
        let line = |what: &str| lines.iter().position(|line| line.contains(what));
        assert_eq!(line("refit top  instance 7  2 objects"), Some(0), "{lines:#?}");
        let (a, b) = (line("fcm:/a"), line("fcm:/b"));
        assert!(a < b && line("12 345") == a && line("CALLS/S") < a, "{lines:#?}");
        let mount = line("/mnt/data").map(|at| &lines[at]);
        assert!(mount.is_some_and(|line| line.contains(" 31 ")), "{lines:#?}");
        assert!(line("objects by calls/s").is_some() && line("changes").is_some(), "{lines:#?}");
    }
}
