//! The display while the programs work: on a terminal a picture that is redrawn, elsewhere a plain
//! line every other second. The same picture is printed at the end.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use console::{Style, style};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::format;
use crate::output::Output;

use super::pair::{Pair, Tally as Bytes};
use super::server::Server;
use super::swapper::Swaps;

/// The interval of plain lines.
const PLAIN: Duration = Duration::from_secs(2);
/// The time over which the rate of requests is averaged.
const RATE: Duration = Duration::from_millis(500);
/// The length of the longest bar of the throughput, in characters.
const BAR: u64 = 36;

/// A phase of the tour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    /// Whether caches are swapped in it.
    pub(super) swaps: bool,
    /// Transactions per second, when it is over.
    pub(super) per_second: Option<u64>,
}

/// The contents of the display.
pub(super) struct Scene<'a> {
    pub(super) phases: &'a [Phase],
    pub(super) bytes: &'a Bytes,
    pub(super) swaps: &'a Swaps,
    /// The current requests per second, while the phase runs.
    pub(super) rate: Option<u64>,
}

impl Scene<'_> {
    /// Returns lines for people; `on_stderr` selects the stream for which colors are chosen.
    pub(super) fn lines(&self, on_stderr: bool) -> Vec<String> {
        let paint = |style: Style| if on_stderr { style.for_stderr() } else { style };
        let dim = paint(Style::new().dim());
        let head =
            |text: &str| paint(Style::new().bold()).apply_to(format!("{text:<12}")).to_string();
        let mut lines = self.throughput(&head, &dim, &paint(Style::new().cyan()));
        let wrong = self.bytes.wrong + self.bytes.failed;
        let verdict = if wrong == 0 { Style::new().green() } else { Style::new().red().bold() };
        lines.push(String::new());
        lines.push(format!(
            "{}{} read back and compared byte by byte, {}",
            head("checked"),
            format::size(self.bytes.checked),
            paint(verdict).apply_to(format!("{} wrong", format::count(wrong))),
        ));
        self.swaps.look(|inner| {
            let tally = &inner.tally;
            lines.push(format!("{}{}", head("swaps"), tally.ends()));
            lines.push(format!("{}{}", head("calls"), tally.calls()));
            lines.push(String::new());
            if tally.total() > 0 {
                let times = tally.times.summary();
                lines.push(format!("{}a swap takes {times}", head("times")));
            }
            for line in tally.times.lines() {
                lines.push(format!("{:12}{}", "", paint(Style::new().cyan()).apply_to(line)));
            }
        });
        lines
    }

    fn throughput(
        &self,
        head: &dyn Fn(&str) -> String,
        dim: &Style,
        swapped: &Style,
    ) -> Vec<String> {
        let best = self.phases.iter().filter_map(|p| p.per_second).max().unwrap_or(1).max(1);
        let running = self.phases.iter().position(|p| p.per_second.is_none());
        let mut lines = Vec::new();
        for (i, phase) in self.phases.iter().enumerate() {
            let what = if phase.swaps { "swaps" } else { "quiet" };
            let shown = match phase.per_second {
                Some(n) => {
                    let bar = "█".repeat(usize::try_from((n * BAR).div_ceil(best)).unwrap_or(0));
                    let bar =
                        if phase.swaps { swapped } else { dim }.apply_to(format!("{bar:<36}"));
                    let unit = if i == 0 { " transactions/s" } else { "" };
                    format!("{bar}{:>8}{unit}", format::count(n))
                }
                None if running == Some(i) => {
                    let rate = self.rate.unwrap_or_default();
                    format!("{:>8} requests/s now", format::count(rate))
                }
                None => String::new(),
            };
            let name = if i == 0 { head("postmark") } else { " ".repeat(12) };
            let what = if phase.swaps { swapped } else { dim }.apply_to(what);
            lines.push(format!("{name}{what}  {shown}").trim_end().to_owned());
        }
        lines
    }
}

/// The screen during the tour.
pub(super) struct Screen {
    silent: bool,
    bar: Option<ProgressBar>,
    began: Instant,
    printed: Instant,
    rate: u64,
    sample: Option<(Instant, u64)>,
}

impl Screen {
    pub(super) fn new(silent: bool) -> Self {
        let bar = (!silent && stderr().is_terminal()).then(ProgressBar::new_spinner);
        if let (Some(bar), Ok(style)) = (&bar, ProgressStyle::with_template("{msg}")) {
            bar.set_style(style);
        }
        let now = Instant::now();
        Screen { silent, bar, began: now, printed: now, rate: 0, sample: None }
    }

    /// Shows the current state.
    pub(super) fn update(
        &mut self,
        server: &Server,
        pair: &Pair,
        phases: &[Phase],
        swaps: &Swaps,
        out: &mut Output,
    ) -> Result<(), Failure> {
        if self.silent {
            return Ok(());
        }
        self.take_rate(server);
        let bytes = pair.tally();
        let running = phases.iter().position(|p| p.per_second.is_none()).unwrap_or(phases.len());
        let swapping = phases.get(running).is_some_and(|p| p.swaps);
        let doing = if swapping { "caches are being swapped" } else { "no swaps, to compare" };
        let seconds = self.began.elapsed().as_secs();
        let step = format!("{}/{}", (running + 1).min(phases.len()), phases.len());
        if let Some(bar) = &self.bar {
            let scene = Scene { phases, bytes: &bytes, swaps, rate: Some(self.rate) };
            let title = style(format!("phase {step}: {doing}")).for_stderr().bold();
            let clock = style(format!("{}:{:02}", seconds / 60, seconds % 60)).for_stderr().dim();
            let head = vec![String::new(), format!("{title}  {clock}"), String::new()];
            bar.set_message([head, scene.lines(true)].concat().join("\n"));
            bar.tick();
        } else if self.printed.elapsed() >= PLAIN {
            self.printed = Instant::now();
            let (ends, calls) = swaps.look(|inner| (inner.tally.ends(), inner.tally.calls()));
            out.line(&format!(
                "{seconds:>3} s  phase {step} ({}): {} requests/s; {} checked, {} wrong; \
                 swaps: {ends}; {calls}",
                if swapping { "swaps" } else { "quiet" },
                format::count(self.rate),
                format::size(bytes.checked),
                bytes.wrong + bytes.failed,
            ))?;
            out.flush()?;
        }
        Ok(())
    }

    /// Clears the picture.
    pub(super) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    fn take_rate(&mut self, server: &Server) {
        match self.sample {
            Some((at, _)) if at.elapsed() < RATE => {}
            before => {
                let requests = server.requests();
                if let Some((at, earlier)) = before {
                    let millis = u64::try_from(at.elapsed().as_millis()).unwrap_or(1).max(1);
                    self.rate = requests.saturating_sub(earlier) * 1000 / millis;
                }
                self.sample = Some((Instant::now(), requests));
            }
        }
    }
}
