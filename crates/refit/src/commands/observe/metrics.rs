//! `refit metrics`: the counters of instances, printed, written to a file periodically, or served
//! over TCP.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use clap::builder::ValueHint;
use refit_instance::{Client, exporter, merged_metrics};
use serde::Serialize;

use crate::commands::interruption::{interruption, sleep};
use crate::failure::Failure;
use crate::format;
use crate::instances;
use crate::output::Output;

/// Arguments of `refit metrics`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit metrics
  refit metrics --output /var/lib/prometheus/node-exporter/refit.prom --every 15s
  refit metrics --listen 127.0.0.1:9464

Each sample has the label `pid`, the process ID of its instance. Each instance serves its own metrics at /metrics of its control API.")]
pub(crate) struct MetricsArgs {
    /// Write the metrics to this file, atomically
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "listen")]
    output: Option<PathBuf>,

    /// Rewrite the file at this interval, until Ctrl-C
    #[arg(long, requires = "output", value_parser = format::parse_duration, value_name = "TIME")]
    every: Option<Duration>,

    /// Serve the metrics over HTTP at /metrics of this address, until Ctrl-C
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
}

#[derive(Serialize)]
struct Line {
    instance: u32,
    metrics: String,
}

#[derive(Serialize)]
struct Listening {
    listening: SocketAddr,
}

/// Prints, writes or serves the counters of instances.
pub(crate) fn run(args: &MetricsArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    if let Some(address) = args.listen {
        return serve(address, only, out);
    }
    let Some(file) = &args.output else { return print(only, out) };
    let interrupted = interruption()?;
    loop {
        write(file, &text(only)?)?;
        let Some(every) = args.every else { return Ok(()) };
        sleep(every, &interrupted);
        if interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

fn print(only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    if !out.json() {
        return out.raw(text(only)?.as_bytes());
    }
    for (instance, metrics) in texts(only)? {
        out.object(&Line { instance, metrics })?;
    }
    Ok(())
}

/// Returns the counters of each instance.
fn texts(only: Option<u32>) -> Result<Vec<(u32, String)>, Failure> {
    let mut texts = Vec::new();
    for live in instances::live("read metrics", only)? {
        texts.extend(live.says(Client::metrics)?.map(|text| (live.pid, text)));
    }
    Ok(texts)
}

fn text(only: Option<u32>) -> Result<String, Failure> {
    let texts: Vec<String> = texts(only)?.into_iter().map(|(_, text)| text).collect();
    Ok(merged_metrics(&texts))
}

/// Replaces the file, so that a reader sees the old text or the new one.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let failed = |e: std::io::Error| {
        let operation = format!("write metrics to {}", file.display());
        Failure::new(operation, e.to_string(), "name a file in a directory that you may write to")
    };
    let directory = file.parent().filter(|path| !path.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let mut fresh = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    fresh.write_all(text.as_bytes()).map_err(failed)?;
    // Readers are usually other users.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(fresh.path(), readable).map_err(failed)?;
    fresh.persist(file).map_err(|e| failed(e.error))?;
    Ok(())
}

fn serve(address: SocketAddr, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let interrupted: Arc<AtomicBool> = interruption()?;
    let make: exporter::MakeText = Arc::new(move || text(only).map_err(|e| e.to_string()));
    let json = out.json();
    let tell = |at: SocketAddr| {
        let printed = match json {
            true => out.object(&Listening { listening: at }),
            false => out.line(&format!("metrics are at http://{at}/metrics; Ctrl-C ends")),
        };
        printed.and_then(|()| out.flush()).map_err(|e| std::io::Error::other(e.to_string()))
    };
    exporter::serve(address, make, &interrupted, tell).map_err(|e| {
        Failure::new(format!("serve metrics at {address}"), e.to_string(), "name another address")
    })
}
