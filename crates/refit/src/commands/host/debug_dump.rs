//! `refit debug-dump`: the last events of each instance, for diagnosing a hang.

use refit_instance::Client;
use refit_instance::wire::EventInfo;
use refit_log::Event;
use serde::Serialize;

use crate::failure::Failure;
use crate::instances;
use crate::output::Output;

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    event: &'a EventInfo,
}

/// Prints the last events of the instances, of each oldest first.
pub(crate) fn run(only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    for live in instances::live("dump the last events", only)? {
        let Some(said) = live.says(Client::events)? else { continue };
        if !out.json() {
            let (kept, dropped) = (said.events.len(), said.dropped);
            out.line(&format!(
                "instance {}: the last {kept} events ({dropped} older events dropped); times are UTC",
                live.pid
            ))?;
        }
        for event in &said.events {
            if out.json() {
                out.object(&Line { instance: live.pid, event })?;
            } else {
                out.line(&Event::from(event.clone()).to_string())?;
            }
        }
    }
    Ok(())
}
