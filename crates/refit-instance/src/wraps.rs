//! The processing of requests to wrap and unwrap objects one after the other.
//!
//! A pattern may match objects that the wrapper does not fit, or that do not have the wrapper to be
//! removed. These are omitted unless there are no others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use refit_change::Report;
use tokio::sync::mpsc::Sender;

use crate::context::Shared;
use crate::glob::Glob;
use crate::placement;
use crate::recording;
use crate::refusal::{Kind, Refusal};
use crate::state::Core;
use crate::system::{WrapAct, WrapRequest};
use crate::wire::{ObjectInfo, Unwrap, Wrap};

/// A request in progress.
pub(crate) struct Work {
    pub(crate) shared: Shared,
    pub(crate) act: WrapAct,
    pub(crate) owner: String,
    /// Becomes true when the client has disconnected.
    pub(crate) disconnected: Arc<AtomicBool>,
    pub(crate) sender: Sender<Report>,
}

fn matching(
    core: &Core,
    what: &str,
    glob: &str,
    mount: Option<&str>,
) -> Result<Vec<ObjectInfo>, Refusal> {
    let glob = Glob::new(glob).of_mount(mount);
    let objects = core.objects(&glob);
    if glob.is_literal() {
        placement::unambiguous(what, &objects)?;
    }
    if objects.is_empty() {
        let remedy = "list objects with `refit ls`";
        return Err(Refusal::new(Kind::Unknown, what, "no such object", remedy));
    }
    Ok(objects)
}

/// Splits an error of a wrapper, which has the form `what prevents it; what to do`.
fn refused(kind: Kind, what: String, why: &str) -> Refusal {
    let (obstacle, remedy) = why.split_once("; ").unwrap_or((why, ""));
    Refusal::new(kind, what, obstacle, remedy)
}

/// Returns the change and the objects to wrap.
///
/// # Errors
///
/// There is no such object or no such wrapper, or it fits none of the objects with these settings.
pub(crate) fn to_wrap(core: &Core, request: Wrap) -> Result<(WrapAct, Vec<u64>), Refusal> {
    let what = format!("wrap {} in {}", request.glob, request.wrapper);
    let objects = matching(core, &what, &request.glob, request.mount.as_deref())?;
    let settings = request.options.into_iter().collect();
    let act = WrapAct::Attach { wrapper: request.wrapper, settings };
    // Whether a wrapper fits depends on the interface alone.
    let mut fits: BTreeMap<&str, Result<(), String>> = BTreeMap::new();
    for object in &objects {
        fits.entry(&object.interface).or_insert_with(|| core.system.can_wrap(object.id, &act));
    }
    let chosen: Vec<u64> =
        objects.iter().filter(|o| fits[&*o.interface].is_ok()).map(|o| o.id).collect();
    match fits.into_values().find_map(Result::err) {
        Some(why) if chosen.is_empty() => Err(refused(Kind::Malformed, what, &why)),
        _ => Ok((act, chosen)),
    }
}

/// Returns the change and the objects to unwrap.
///
/// # Errors
///
/// There is no such object, or none that has such a wrapper.
pub(crate) fn to_unwrap(core: &Core, request: Unwrap) -> Result<(WrapAct, Vec<u64>), Refusal> {
    let what = match &request.wrapper {
        Some(wrapper) => format!("unwrap {} of {wrapper}", request.glob),
        None => format!("unwrap {}", request.glob),
    };
    let objects = matching(core, &what, &request.glob, request.mount.as_deref())?;
    let meant = |name: &str, id: u64| match &request.wrapper {
        Some(wrapper) => wrapper == name || wrapper.parse() == Ok(id),
        None => true,
    };
    let has = |o: &&ObjectInfo| o.wrappers.iter().any(|w| meant(&w.name, w.id));
    let chosen: Vec<u64> = objects.iter().filter(has).map(|o| o.id).collect();
    if chosen.is_empty() {
        let mut there: Vec<&str> =
            objects.iter().flat_map(|o| &o.wrappers).map(|w| w.name.as_str()).collect();
        there.sort_unstable();
        there.dedup();
        let (obstacle, remedy) = match there[..] {
            [] => ("no wrapper is attached", String::new()),
            _ => ("no such wrapper is attached", format!("there are: {}", there.join(", "))),
        };
        return Err(Refusal::new(Kind::Unknown, what, obstacle, remedy));
    }
    Ok((WrapAct::Detach { wrapper: request.wrapper }, chosen))
}

impl Work {
    /// Runs until everything is done or the client disconnects.
    pub(crate) fn run(&self, objects: Vec<u64>) {
        let core = &self.shared.core;
        for object in objects {
            if self.disconnected.load(Ordering::Relaxed) || *self.shared.ending.borrow() {
                return;
            }
            let request = WrapRequest {
                object,
                act: self.act.clone(),
                change: core.journal.next_id(),
                owner: self.owner.clone(),
            };
            let report = recording::changing(request.change, || core.system.wrap(&request));
            // The object ended after the list was made. It was not requested by name, so it is not
            // reported.
            if report.target_gone {
                continue;
            }
            core.ended(report.clone());
            if self.sender.blocking_send(report).is_err() {
                return;
            }
        }
    }
}
