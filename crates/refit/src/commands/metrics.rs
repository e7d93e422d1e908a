//! `refit metrics`.

use refit_instance::Client;
use serde::Serialize;

use crate::failure::Failure;
use crate::instances;
use crate::output::Output;

#[derive(Serialize)]
struct Line {
    instance: u32,
    metrics: String,
}

/// Prints what an instance counts; of several, each its own text, which has to go to a file of its own.
pub(crate) fn print(only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let live = instances::live("read metrics", only)?;
    if live.len() > 1 && !out.json() {
        let pids: Vec<String> = live.iter().map(|live| live.pid.to_string()).collect();
        return Err(Failure::new(
            "read metrics",
            format!("there are several instances: {}", pids.join(", ")),
            "name one with --instance, or ask with --json",
        ));
    }
    for live in live {
        let Some(metrics) = live.says(Client::metrics)? else { continue };
        if out.json() {
            out.object(&Line { instance: live.pid, metrics })?;
        } else {
            out.raw(metrics.as_bytes())?;
        }
    }
    Ok(())
}
