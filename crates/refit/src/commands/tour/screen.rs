//! What is seen while the programs work: on a terminal a few lines that are drawn again and again, elsewhere a
//! plain line every other second.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::format;
use crate::output::Output;

use super::pair::Pair;
use super::server::Server;
use super::swapper::Swapper;

/// Between two plain lines.
const PLAIN: Duration = Duration::from_secs(2);
/// Over how long the rate of requests is taken.
const RATE: Duration = Duration::from_millis(500);

/// The screen during one act.
pub(super) struct Screen {
    act: &'static str,
    silent: bool,
    bar: Option<ProgressBar>,
    began: Instant,
    printed: Instant,
    rate: u64,
    sample: Option<(Instant, u64)>,
}

impl Screen {
    pub(super) fn new(act: &'static str, silent: bool) -> Self {
        let bar = (!silent && stderr().is_terminal()).then(ProgressBar::new_spinner);
        if let (Some(bar), Ok(style)) = (&bar, ProgressStyle::with_template("{spinner} {msg}")) {
            bar.set_style(style);
        }
        let now = Instant::now();
        Screen { act, silent, bar, began: now, printed: now, rate: 0, sample: None }
    }

    /// Shows how things stand.
    pub(super) fn update(
        &mut self,
        server: &Server,
        pair: &Pair,
        swapper: Option<&Swapper>,
        out: &mut Output,
    ) -> Result<(), Failure> {
        if self.silent {
            return Ok(());
        }
        self.take_rate(server);
        let line = self.line(pair, swapper);
        if let Some(bar) = &self.bar {
            let picture = swapper.map(|s| s.look(|swaps| swaps.times.lines())).unwrap_or_default();
            bar.set_message([&[line], &picture[..]].concat().join("\n  "));
            bar.tick();
        } else if self.printed.elapsed() >= PLAIN {
            self.printed = Instant::now();
            out.line(&format!("  {line}"))?;
            out.flush()?;
        }
        Ok(())
    }

    /// Clears what was drawn.
    pub(super) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, pair: &Pair, swapper: Option<&Swapper>) -> String {
        let tally = pair.tally();
        let mut line = format!(
            "{} {:>2} s: {:>6} requests/s, {:>8} checked, {} wrong",
            self.act,
            self.began.elapsed().as_secs(),
            format::count(self.rate),
            format::size(tally.checked),
            tally.wrong + tally.failed,
        );
        if let Some(swapper) = swapper {
            line += &swapper.look(|swaps| {
                format!("; {}, {}", format::counted(swaps.committed, "swap"), swaps.times.summary())
            });
        }
        line
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
