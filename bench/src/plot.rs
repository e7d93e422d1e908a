//! Plots of the results, beside `bench/RESULTS.md`.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::domains::{self, Domains};
use crate::phases::{CONTENDERS, PATTERNS, Phases};
use crate::prefetch;
use crate::stats::Sample;
use crate::streams::{self, Streams};
use crate::workloads::{self, RunTimes};

/// Colors that people with color blindness can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// The result of drawing.
pub(crate) type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Y>>;

/// Draws the counter experiment: a panel for each pattern, nanoseconds over threads, 10th to 90th
/// percentile as bars.
pub(crate) fn phases(to: &Path, phases: &Phases) -> Drawn {
    let root = SVGBackend::new(to, (1080, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    for ((part, (_, name)), contenders) in
        root.split_evenly((1, 3)).iter().zip(PATTERNS).zip(phases)
    {
        let samples = contenders.each_ref().map(Vec::as_slice);
        panel(part, (name, "ns per call"), CONTENDERS, samples)?;
    }
    root.present()?;
    Ok(())
}

/// Draws the page fault experiment: a panel for programs and one for objects, thousands of faults
/// per second over threads.
pub(crate) fn domains(to: &Path, measured: &Domains) -> Drawn {
    let root = SVGBackend::new(to, (1080, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let [halves, dealt] = &measured.objects;
    let panels = [
        ("programs", &measured.programs),
        ("objects alone, threads have halves", halves),
        ("objects alone, pages dealt out", dealt),
    ];
    for (part, (name, rates)) in root.split_evenly((1, 3)).iter().zip(panels) {
        let samples = rates.each_ref().map(<[Sample; domains::MOST_THREADS]>::as_slice);
        panel(part, (name, "thousands of faults per second"), domains::CONTENDERS, samples)?;
    }
    root.present()?;
    Ok(())
}

/// Draws sequential streams beside a working set: its accesses over the number of streams.
pub(crate) fn streams(to: &Path, measured: &Streams) -> Drawn {
    let root = SVGBackend::new(to, (540, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let top = measured.iter().flatten().map(|sample| sample.quantile(0.9)).fold(1.0, f64::max);
    let bottom = measured.iter().flatten().map(|sample| sample.quantile(0.1));
    let bottom = bottom.fold(top, f64::min).max(1.0) / 2.0;
    let most = streams::STREAMS.into_iter().max().unwrap_or(1) as f64;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(-0.2..most + 0.2, (bottom..top * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(most as usize + 1)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0e}"))
        .x_desc("streams")
        .y_desc("accesses of the working set per second")
        .draw()?;
    for ((samples, contender), colour) in measured.iter().zip(streams::CONTENDERS).zip(COLOURS) {
        let points = streams::STREAMS.into_iter().zip(samples).map(|(n, sample)| {
            // The axis is logarithmic.
            (n as f64, spread(sample).map(|rate| rate.max(1.0)))
        });
        series(&mut chart, contender, colour, &points.collect::<Vec<_>>())?;
    }
    legend(&mut chart, SeriesLabelPosition::LowerLeft)?;
    root.present()?;
    Ok(())
}

/// Draws the workloads of Katz 2014, each way to run them against two threads of one kernel.
pub(crate) fn workloads(to: &Path, cases: &[workloads::Case]) -> Drawn {
    let others = || (0..workloads::WAYS.len()).filter(|way| *way != workloads::SMP);
    let names: Vec<&str> = others().map(|way| workloads::WAYS[way].name).collect();
    let groups = cases.iter().map(|case| {
        let smp = &case.ways[workloads::SMP].inside;
        (case.title(), others().map(|way| case.ways[way].inside.over(smp)).collect())
    });
    ratios(to, &names, &groups.collect::<Vec<_>>())
}

/// Draws the same with pages that move, by the number of pages at once.
pub(crate) fn prefetch(to: &Path, cases: &[prefetch::Case]) -> Drawn {
    let names = prefetch::WINDOWS.map(|window| format!("--ahead {window}"));
    let groups = cases.iter().map(|case| {
        let over = |taken: &RunTimes| taken.inside.over(&case.smp.inside);
        (case.title(), case.windows.iter().map(over).collect())
    });
    ratios(to, &names.each_ref().map(String::as_str), &groups.collect::<Vec<_>>())
}

/// Draws the times of contenders as multiples of two threads of one kernel, side by side for each
/// of several groups.
fn ratios(to: &Path, contenders: &[&str], groups: &[(String, Vec<Sample>)]) -> Drawn {
    let root = SVGBackend::new(to, (1080, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let measured = || groups.iter().flat_map(|(_, samples)| samples).filter(|one| one.len() > 0);
    let top = measured().map(|sample| sample.quantile(0.9)).fold(2.0, f64::max);
    let bottom = measured().map(|sample| sample.quantile(0.1)).fold(0.7, f64::min);
    let most = groups.len() as f64 - 0.5;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.5..most, (bottom * 0.9..top * 1.6).log_scale())?;
    let name = |x: &f64| groups.get(x.round() as usize).map_or("", |(name, _)| name).to_owned();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(groups.len())
        .x_label_formatter(&name)
        .y_label_formatter(&|ratio| format!("{ratio}"))
        .y_desc("times SMP with two threads")
        .draw()?;
    chart.draw_series([PathElement::new([(-0.5, 1.0), (most, 1.0)], BLACK.stroke_width(1))])?;
    let apart = 0.7 / contenders.len() as f64;
    for (at, (contender, colour)) in contenders.iter().zip(COLOURS).enumerate() {
        let points = groups.iter().enumerate().filter_map(|(group, (_, samples))| {
            let sample = samples.get(at).filter(|sample| sample.len() > 0)?;
            let left = group as f64 + (at as f64 - (contenders.len() - 1) as f64 / 2.0) * apart;
            Some((left, spread(sample)))
        });
        let points: Vec<_> = points.collect();
        chart
            .draw_series(
                points
                    .iter()
                    .map(|(x, [_, median, _])| Circle::new((*x, *median), 4, colour.filled())),
            )?
            .label(*contender)
            .legend(move |(x, y)| Circle::new((x + 9, y), 4, colour.filled()));
        chart.draw_series(points.iter().map(|(x, [low, _, high])| {
            PathElement::new([(*x, *low), (*x, *high)], colour.stroke_width(1))
        }))?;
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
    root.present()?;
    Ok(())
}

/// Draws the results of contenders over the number of threads, from one on; contenders that were
/// not measured are left out.
fn panel(
    part: &Area<'_>,
    (name, unit): (&str, &str),
    contenders: [&'static str; 3],
    samples: [&[Sample]; 3],
) -> Drawn {
    let most = samples.iter().map(|of| of.len()).max().unwrap_or(1);
    let measured = samples.iter().copied().flatten().filter(|sample| sample.len() > 0);
    let top = measured.map(|sample| sample.quantile(0.9)).fold(0.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(part)
        .caption(name, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.5..most as f64 + 0.5, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(most)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .x_desc("threads")
        .y_desc(unit)
        .draw()?;
    for ((samples, contender), colour) in samples.into_iter().zip(contenders).zip(COLOURS) {
        let points = samples.iter().zip(1..).filter(|(sample, _)| sample.len() > 0);
        let points = points.map(|(sample, n)| (f64::from(n), spread(sample)));
        series(&mut chart, contender, colour, &points.collect::<Vec<_>>())?;
    }
    // In the corner where no line begins.
    let begins = samples.iter().filter_map(|of| of.first()).filter(|sample| sample.len() > 0);
    let begins = begins.map(Sample::median).fold(0.0, f64::max);
    let place = match begins < top * 0.6 {
        true => SeriesLabelPosition::UpperLeft,
        false => SeriesLabelPosition::LowerLeft,
    };
    legend(&mut chart, place)?;
    Ok(())
}

/// Returns the 10th, 50th and 90th percentile.
fn spread(sample: &Sample) -> [f64; 3] {
    [0.1, 0.5, 0.9].map(|q| sample.quantile(q))
}

/// Draws the results of one contender, if it was measured at all: a line through the medians, with
/// the percentiles as bars.
fn series<Y: Ranged<ValueType = f64>>(
    chart: &mut Chart<'_, Y>,
    contender: &'static str,
    colour: RGBColor,
    points: &[(f64, [f64; 3])],
) -> Drawn {
    if points.is_empty() {
        return Ok(());
    }
    let style = colour.stroke_width(2);
    let line = points.iter().map(|(x, [_, median, _])| (*x, *median));
    chart
        .draw_series(LineSeries::new(line, style))?
        .label(contender)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    chart.draw_series(points.iter().map(|(x, [low, _, high])| {
        PathElement::new([(*x, *low), (*x, *high)], colour.stroke_width(1))
    }))?;
    Ok(())
}

/// Draws the legend.
fn legend<Y: Ranged<ValueType = f64>>(
    chart: &mut Chart<'_, Y>,
    position: SeriesLabelPosition,
) -> Drawn {
    let mut labels = chart.configure_series_labels();
    labels.position(position).background_style(WHITE.mix(0.85)).draw()?;
    Ok(())
}

/// Draws the distribution of the times of null swaps, with the paper's values as lines.
pub(crate) fn swaps(to: &Path, swaps: &Sample, paper: &[(&str, f64)]) -> Drawn {
    let root: Area<'_> = SVGBackend::new(to, (720, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let last = paper.iter().map(|(_, us)| *us).fold(swaps.quantile(0.999), f64::max) * 1.05;
    let width = last / 60.0;
    let mut bins = [0_u32; 60];
    for us in swaps.values() {
        if let Some(bin) = bins.get_mut((us / width) as usize) {
            *bin += 1;
        }
    }
    let top = f64::from(bins.iter().copied().max().unwrap_or(1)) * 1.1;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..last, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("µs from the request to the commit")
        .y_desc("swaps")
        .y_label_formatter(&|n| format!("{n:.0}"))
        .draw()?;
    chart.draw_series(bins.iter().enumerate().map(|(n, count)| {
        let left = n as f64 * width;
        let corners = [(left, 0.0), (left + width * 0.9, f64::from(*count))];
        Rectangle::new(corners, COLOURS[0].filled())
    }))?;
    for (n, (name, us)) in paper.iter().enumerate() {
        let line = [(*us, 0.0), (*us, top)];
        chart.draw_series([PathElement::new(line, COLOURS[1].stroke_width(1))])?;
        // Beside the line, on the side where there is room.
        let (side, shift) = if *us > last / 2.0 { (HPos::Right, -1.0) } else { (HPos::Left, 1.0) };
        let at = (*us + shift * last / 200.0, top * (0.97 - 0.07 * n as f64));
        let style = TextStyle::from(("sans-serif", 14)).pos(Pos::new(side, VPos::Top));
        chart.draw_series([Text::new((*name).to_owned(), at, style)])?;
    }
    root.present()?;
    Ok(())
}
