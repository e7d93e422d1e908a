//! The instruction-cache footprint of hot code as SVG: a row for each page, a cell for each cache
//! line, the darker the more often it runs; as it was on the left, laid out anew on the right.

use std::collections::BTreeMap;
use std::fmt::Write;

use refit_analysis::FunctionId;
use refit_optimize::footprint::{Footprint, Footprints, Line, Page};
use refit_optimize::layout::Figures;
use refit_sys::printable;

use super::picture::{escape, put};
use crate::format;

/// Cache lines of a page.
const LINES: f64 = 64.0;
/// Width of a cell.
const CELL: f64 = 6.0;
/// Height of a row: as high as a cell is wide if all rows fit into `ROWS`, and never less than
/// `LOWEST`.
const HIGHEST: f64 = 6.0;
const LOWEST: f64 = 1.5;
const ROWS: f64 = 2400.0;
/// Around everything, and between both panels.
const FRAME: f64 = 30.0;
/// Height of a line of text.
const TEXT: f64 = 18.0;
/// Number of colours.
const COLOURS: u64 = 8;
/// Number of names of functions that a tooltip has.
const NAMES: usize = 4;

const HEAD: &str = "\
<style>
  svg { background: #fff; }
  text { font: 11px ui-monospace, monospace; fill: #1c2128; white-space: pre; }
  .title { font-size: 14px; font-weight: 600; }
  .panel { font-weight: 600; }
  .page { fill: #f0f2f5; }
  .c0 { fill: #ffeda0; } .c1 { fill: #fed976; } .c2 { fill: #feb24c; } .c3 { fill: #fd8d3c; }
  .c4 { fill: #fc4e2a; } .c5 { fill: #e31a1c; } .c6 { fill: #bd0026; } .c7 { fill: #67001f; }
</style>
";

/// Returns the picture.
pub(super) fn svg(footprints: &Footprints) -> String {
    let Footprints { before, after, names } = footprints;
    let rows = before.pages.len().max(after.pages.len());
    let row = (ROWS / rows.max(1) as f64).clamp(LOWEST, HIGHEST);
    let scale = Scale::of(&[before, after]);
    let panel = LINES * CELL;
    let width = 2.0 * panel + 3.0 * FRAME;
    let top = FRAME + 5.0 * TEXT;
    let height = top + row * rows as f64 + FRAME;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n{HEAD}"
    );
    let title = "Cache lines of the hot code";
    text(&mut svg, "title", (FRAME, FRAME), title);
    legend(&mut svg, (FRAME, FRAME + 0.7 * TEXT), scale);
    for (x, title, footprint) in
        [(FRAME, "as linked", before), (2.0 * FRAME + panel, "laid out anew", after)]
    {
        text(&mut svg, "panel", (x, FRAME + 3.4 * TEXT), title);
        text(&mut svg, "", (x, FRAME + 4.3 * TEXT), &figures(&footprint.figures));
        pages(&mut svg, footprint, names, Grid { x, y: top, row, scale });
    }
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), text: &str) {
    let text = escape(&printable::line(text));
    put(svg, &format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"));
}

fn figures(figures: &Figures) -> String {
    format!(
        "{} lines, {} pages, {:.0} jumps taken per 1,000 blocks",
        format::count(figures.lines),
        format::count(figures.pages),
        figures.taken
    )
}

/// Draws what the colours mean: each is for runs from a number on.
fn legend(svg: &mut String, (x, y): (f64, f64), scale: Scale) {
    let width = 2.0 * LINES * CELL / (COLOURS + 1) as f64;
    for colour in 0..COLOURS {
        let x = x + width * colour as f64;
        let (from, middle) = (format::count(scale.least_of(colour)), y + 0.8 * TEXT);
        put(
            svg,
            &format!(
                "<rect class=\"c{colour}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"6\"/>",
                width - 2.0
            ),
        );
        text(svg, "", (x, middle + 6.0), &from);
    }
    text(svg, "", (x + width * COLOURS as f64, y + 6.0), "runs or more");
}

/// Where a panel is, and how its runs are coloured.
#[derive(Clone, Copy, Debug)]
struct Grid {
    x: f64,
    y: f64,
    row: f64,
    scale: Scale,
}

fn pages(
    svg: &mut String,
    footprint: &Footprint,
    names: &BTreeMap<FunctionId, String>,
    grid: Grid,
) {
    let Grid { x, y, row, scale } = grid;
    // A gap between rows only where there is room for it.
    let height = if row >= 4.0 { row - 1.0 } else { row };
    for (number, page) in footprint.pages.iter().enumerate() {
        let y = y + row * number as f64;
        put(
            svg,
            &format!(
                "<rect class=\"page\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
                 height=\"{height:.1}\"><title>page {:#x}</title></rect>",
                LINES * CELL,
                page.address
            ),
        );
        for line in &page.lines {
            let x = x + f64::from(line.index) * CELL;
            let (colour, title) = (scale.colour(line.runs), escape(&tooltip(page, line, names)));
            put(
                svg,
                &format!(
                    "<rect class=\"c{colour}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
                     height=\"{height:.1}\"><title>{title}</title></rect>",
                    CELL - 0.5
                ),
            );
        }
    }
}

fn tooltip(page: &Page, line: &Line, names: &BTreeMap<FunctionId, String>) -> String {
    let address = page.address + u64::from(line.index) * 64;
    let mut text = format!("{address:#x}: {}", format::counted(line.runs, "run"));
    for name in line.functions.iter().take(NAMES).filter_map(|id| names.get(id)) {
        let _ = write!(text, ", {}", printable::line(name));
    }
    if line.functions.len() > NAMES {
        text.push_str(", …");
    }
    text
}

/// The logarithmic scale of colours.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    /// The least runs of a line, at least 1.
    least: f64,
    /// The logarithm of the factor from one colour to the next.
    step: f64,
}

impl Scale {
    fn of(footprints: &[&Footprint]) -> Self {
        let lines = footprints.iter().flat_map(|one| &one.pages).flat_map(|page| &page.lines);
        let runs = || lines.clone().map(|line| line.runs.max(1));
        Self::new(runs().min().unwrap_or(1), runs().max().unwrap_or(1))
    }

    fn new(least: u64, most: u64) -> Self {
        let [least, most] = [least, most.max(least.saturating_add(1))].map(|runs| runs as f64);
        Self { least, step: (most / least).ln() / COLOURS as f64 }
    }

    fn colour(self, runs: u64) -> u64 {
        let steps = (runs.max(1) as f64 / self.least).ln() / self.step;
        (steps as u64).min(COLOURS - 1)
    }

    /// Returns the least number of runs that has a colour, but for rounding.
    fn least_of(self, colour: u64) -> u64 {
        (self.least * (self.step * colour as f64).exp()).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footprint(pages: usize, runs: u64) -> Footprint {
        let line =
            |index| Line { index, runs: runs + u64::from(index), functions: vec![FunctionId(3)] };
        let page = |number| Page { address: number as u64 * 4096, lines: vec![line(0), line(63)] };
        let figures = Figures { taken: 12.3, lines: 2, pages: pages as u64, bytes: 128 };
        Footprint { figures, pages: (1..=pages).map(page).collect() }
    }

    #[test]
    fn each_line_is_a_cell_with_the_names_of_its_functions() {
        let names = BTreeMap::from([(FunctionId(3), "a<b>&\u{1b}".to_owned())]);
        let footprints = Footprints { before: footprint(3, 1000), after: footprint(1, 1), names };
        let svg = svg(&footprints);
        assert_eq!(svg.matches("class=\"page\"").count(), 4);
        assert_eq!(
            svg.matches("runs, a&lt;b&gt;&amp;").count() + svg.matches("1 run, a").count(),
            8
        );
        assert!(svg.contains("0x1fc0: 1 063 runs") || svg.contains("0x1fc0: 1,063 runs"), "{svg}");
        assert!(svg.contains("3 pages, 12 jumps taken"), "{svg}");
        assert!(!svg.contains('\u{1b}'));
    }

    #[test]
    fn colours_are_those_of_the_legend() {
        for (least, most) in [(1, 1), (1, 2), (1000, 1_000_000), (5, u64::MAX)] {
            let scale = Scale::new(least, most);
            assert_eq!((scale.colour(0), scale.colour(least)), (0, 0));
            assert_eq!(scale.colour(most.max(least + 1)), COLOURS - 1);
        }
        let scale = Scale::new(10, 1_000_000);
        assert!((1..COLOURS).all(|one| scale.colour(scale.least_of(one) + 1) == one));
        assert!((1..COLOURS).all(|one| scale.colour(scale.least_of(one) - 2) == one - 1));
    }
}
