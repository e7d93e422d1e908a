//! A control-flow graph as SVG.

use std::fmt::Write;

use refit_analysis::Module;
use refit_analysis::flow::{Flow, Target};

use super::edge::{leads, why};
use super::layout::{Layout, Place, layout};
use super::listing;

/// Width of a character and height of a line, in the font of the picture.
const CHARACTER: f64 = 6.7;
const LINE: f64 = 14.0;
const PAD: f64 = 6.0;
/// Around everything, and above it for the title.
const MARGIN: f64 = 30.0;

const HEAD: &str = "\
<style>
  svg { background: #fff; }
  text { font: 11px ui-monospace, monospace; fill: #1c2128; white-space: pre; }
  .title { font-size: 14px; font-weight: 600; }
  .number { fill: #6e7781; }
  .leaves { fill: #8250df; }
  rect { fill: #f6f8fa; stroke: #8c959f; rx: 4px; }
  path { fill: none; stroke: #57606a; stroke-width: 1.2; }
  .branch { stroke: #1a7f37; }
  .table { stroke: #0969da; }
  .exception { stroke: #cf222e; stroke-dasharray: 5 3; }
  .back { stroke-width: 1.6; }
</style>
<defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
<polygon points=\"0,0 8,4 0,8\" fill=\"context-stroke\"/></marker></defs>
";

/// The picture of `flow`.
pub(super) fn svg(module: &Module, flow: &Flow, live: bool) -> String {
    let texts: Vec<Vec<(&str, String)>> =
        (0..flow.blocks().len()).map(|i| text(module, flow, i, live)).collect();
    let size = |lines: &Vec<(&str, String)>| {
        let longest = lines.iter().map(|(_, l)| l.chars().count()).max().unwrap_or(0);
        (longest as f64 * CHARACTER + 2.0 * PAD, lines.len() as f64 * LINE + 2.0 * PAD)
    };
    let sizes: Vec<(f64, f64)> = texts.iter().map(size).collect();
    let (mut edges, mut kinds) = (Vec::new(), Vec::new());
    for edge in flow.edges() {
        if let Target::Block(to) = edge.to {
            edges.push((edge.from as usize, to as usize));
            kinds.push(edge.kind);
        }
    }
    let function = module.function(flow.function());
    let first = flow.block_at(function.entry).map_or(0, |(block, _)| block as usize);
    let layout = layout(&sizes, &edges, first);
    let mut body = String::new();
    let mut lanes = 0;
    for (i, kind) in kinds.iter().enumerate() {
        let path = curve(&layout, i, &mut lanes);
        let back = if layout.back[i] { " back" } else { "" };
        let class = why(*kind);
        put(
            &mut body,
            &format!("<path class=\"{class}{back}\" d=\"{path}\" marker-end=\"url(#end)\"/>"),
        );
    }
    for (place, lines) in layout.places.iter().zip(&texts) {
        block(&mut body, place, lines);
    }
    let right = f64::from(lanes) * LANE;
    let title = format!("{} at 0x{:x}", function.name(), function.entry);
    let width = (layout.width + right).max(title.chars().count() as f64 * 9.0) + 2.0 * MARGIN;
    let height = layout.height + 3.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n{HEAD}"
    );
    let title = escape(&title);
    put(&mut svg, &format!("<text class=\"title\" x=\"{MARGIN}\" y=\"{MARGIN}\">{title}</text>"));
    put(&mut svg, &format!("<g transform=\"translate({MARGIN} {})\">", 2.0 * MARGIN));
    svg.push_str(&body);
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Between edges that go back up beside everything.
const LANE: f64 = 9.0;

/// Lines of a block with their classes: its number, its instructions, how control leaves the
/// function from there.
fn text<'a>(module: &Module, flow: &Flow, i: usize, live: bool) -> Vec<(&'a str, String)> {
    let mut lines = vec![("number", format!("{i}"))];
    let block = &flow.blocks()[i];
    let instructions = listing::instructions(module, flow, block, live);
    lines.extend(instructions.into_iter().map(|line| ("", line)));
    for edge in flow.edges_from(i as u32) {
        if !matches!(edge.to, Target::Block(_)) {
            lines.push(("leaves", format!("→ {}", leads(module, edge))));
        }
    }
    lines
}

fn block(svg: &mut String, place: &Place, lines: &[(&str, String)]) {
    let Place { x, y, width, height, .. } = place;
    put(
        svg,
        &format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"),
    );
    for (i, (class, line)) in lines.iter().enumerate() {
        let (x, y) = (x + PAD, y + PAD + LINE * (i as f64 + 0.8));
        let line = escape(line);
        put(svg, &format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{line}</text>"));
    }
}

/// The way of edge `i`: down through the places that it passes, or, where it closes a loop, up
/// beside everything.
fn curve(layout: &Layout, i: usize, lanes: &mut u32) -> String {
    let path = &layout.paths[i];
    let place = |n: usize| &layout.places[path[n]];
    let last = path.len() - 1;
    let (from, to) = (place(0), place(last));
    let bottom = (from.x + from.width / 2.0, from.y + from.height);
    let top = (to.x + to.width / 2.0, to.y);
    if layout.back[i] {
        *lanes += 1;
        let lane = layout.width + f64::from(*lanes) * LANE;
        let (begin, end) = (bottom.1, top.1);
        let (out, back) = (begin + 12.0, end - 12.0);
        return format!(
            "M{:.1} {begin:.1} C{:.1} {out:.1} {lane:.1} {out:.1} {lane:.1} {begin:.1} L{lane:.1} \
             {end:.1} C{lane:.1} {back:.1} {:.1} {back:.1} {:.1} {end:.1}",
            bottom.0, bottom.0, top.0, top.0
        );
    }
    let mut text = format!("M{:.1} {:.1}", bottom.0, bottom.1);
    let mut at = bottom;
    for n in 1..=last {
        let passed = place(n);
        let (x, y) = (passed.x + passed.width / 2.0, passed.y);
        let half = f64::midpoint(at.1, y);
        let _ = write!(text, " C{:.1} {half:.1} {x:.1} {half:.1} {x:.1} {y:.1}", at.0);
        at = (x, y);
        if n < last {
            at.1 += passed.height;
            let _ = write!(text, " V{:.1}", at.1);
        }
    }
    text
}

pub(super) fn put(svg: &mut String, line: &str) {
    svg.push_str(line);
    svg.push('\n');
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
