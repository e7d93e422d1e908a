//! The processing of a request for swaps: the objects, their new implementations, and repetition.
//!
//! A single swap concerns every matching object that has the implementation, in the order of names.
//! Repeated swaps take one object after the other and swap it to the implementation after its
//! present one, one swap per interval. The list of objects is updated after each round, so that new
//! objects are included, but not for each swap, since there may be a hundred thousand objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use refit_change::Report;
use refit_objects::pace::sleep_until;
use refit_objects::{Clustering, Condition, NoCondition, Probation};
use tokio::sync::mpsc::Sender;

use crate::context::Shared;
use crate::glob::Glob;
use crate::placement;
use crate::recording;
use crate::refusal::{Kind, Refusal};
use crate::state::Core;
use crate::system::SwapRequest;
use crate::wire::{self, ObjectInfo, Repeat, Swap, SwapPart};

/// The maximum age of the list of objects while they are swapped repeatedly.
const MAX_LIST_AGE: Duration = Duration::from_millis(100);

/// The longest sleep before the thread checks again whether the client is still connected.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An object to swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    id: u64,
    to: String,
}

/// A request in progress.
pub(crate) struct Work {
    pub(crate) shared: Shared,
    pub(crate) request: Swap,
    pub(crate) owner: String,
    /// Becomes true when the client has disconnected.
    pub(crate) disconnected: Arc<AtomicBool>,
    pub(crate) sender: Sender<Report>,
}

/// The work has ended because the client disconnected or the instance ends.
struct Ended;

/// Returns the objects that a request currently concerns.
///
/// # Errors
///
/// There is no such object, or none that has such an implementation.
pub(crate) fn targets(core: &Core, request: &Swap) -> Result<Vec<Target>, Refusal> {
    clustering(request)?;
    probation(request)?;
    let mut targets = targets_of(core, request)?;
    if !request.with.is_empty() && !request.together {
        let what = format!("swap {} to {}", request.glob, request.implementation);
        let remedy = "give `together`, or request one swap after the other";
        return Err(Refusal::new(Kind::Malformed, what, "`with` goes with `together`", remedy));
    }
    for SwapPart { glob, implementation } in &request.with {
        targets.extend(targets_of(core, &Swap::once(glob, implementation))?);
    }
    Ok(targets)
}

/// Returns the groups of processors that share a representative.
fn clustering(request: &Swap) -> Result<Clustering, Refusal> {
    let Some(text) = &request.reps else { return Ok(Clustering::AsMade) };
    text.parse().map_err(|_| {
        let what = format!("swap {} to {}", request.glob, request.implementation);
        let obstacle = format!("{text:?} does not define which processors share a representative");
        Refusal::new(Kind::Malformed, what, obstacle, "give one, each, groups:4 or map:0,0,1,1")
    })
}

/// Returns the conditions of the probation, if there is one.
fn probation(request: &Swap) -> Result<Option<Probation>, Refusal> {
    let Some(wire::Probation { ms, until }) = &request.probation else { return Ok(None) };
    let what = || format!("swap {} to {} on probation", request.glob, request.implementation);
    if request.together || request.repeat.is_some() {
        let remedy = "swap one object after the other, each with its own probation";
        let obstacle = "swaps that are made together or repeatedly cannot be on probation";
        return Err(Refusal::new(Kind::Malformed, what(), obstacle, remedy));
    }
    let until: Condition = until.parse().map_err(|error: NoCondition| {
        Refusal::new(Kind::Malformed, what(), error.to_string(), "correct the condition")
    })?;
    let after = Duration::from_millis(*ms);
    let before = after.min(Duration::from_secs(1));
    Ok(Some(Probation { before, ..Probation::new(after, until) }))
}

/// Returns the pattern of the selected objects.
fn selected(request: &Swap) -> Glob {
    Glob::new(&request.glob).of_mount(request.mount.as_deref())
}

fn targets_of(core: &Core, request: &Swap) -> Result<Vec<Target>, Refusal> {
    let what = || format!("swap {} to {}", request.glob, request.implementation);
    if request.dry_run && request.repeat.is_some() {
        let why = "a dry run changes nothing, so repeating it has no effect";
        return Err(Refusal::new(Kind::Malformed, what(), why, "leave one of the two out"));
    }
    let glob = selected(request);
    let objects = core.objects(&glob);
    if glob.is_literal() {
        placement::unambiguous(&what(), &objects)?;
    }
    if objects.is_empty() {
        let remedy = "list objects with `refit ls`";
        return Err(Refusal::new(Kind::Unknown, what(), "no such object", remedy));
    }
    for implementation in request.implementations() {
        if !objects.iter().any(|o| can(o, implementation)) {
            return Err(no_such_implementation(what(), &objects, implementation));
        }
    }
    Ok(chosen(&objects, request))
}

/// Returns the targets among the objects. A pattern may match objects of other interfaces, which
/// are omitted; a literal name is taken as it is.
fn chosen(objects: &[ObjectInfo], request: &Swap) -> Vec<Target> {
    let able = objects.iter().filter(|o| request.implementations().all(|i| can(o, i)));
    able.map(|o| Target { id: o.id, to: next(request, &o.implementation).to_owned() }).collect()
}

/// Returns the implementation after `now`.
fn next<'a>(request: &'a Swap, now: &str) -> &'a str {
    let after = request.implementations().skip_while(|i| *i != now).nth(1);
    after.unwrap_or(&request.implementation)
}

fn can(object: &ObjectInfo, implementation: &str) -> bool {
    object.implementations.iter().any(|i| i == implementation)
}

fn no_such_implementation(what: String, objects: &[ObjectInfo], implementation: &str) -> Refusal {
    let mut known: Vec<&str> =
        objects.iter().flat_map(|o| &o.implementations).map(String::as_str).collect();
    known.sort_unstable();
    known.dedup();
    Refusal::new(
        Kind::Unknown,
        what,
        format!("no implementation is called {implementation}"),
        match known[..] {
            [] => "these objects cannot be swapped".to_owned(),
            _ => format!("there are: {}", known.join(", ")),
        },
    )
}

impl Work {
    /// Runs until everything is swapped, the time is over, or the client disconnects.
    pub(crate) fn run(&self, targets: Vec<Target>) {
        // If the client has disconnected, the work ends, and its error has no recipient.
        let _ = match &self.request.repeat {
            None if self.request.together => self.swap(&targets),
            None => targets.chunks(1).try_for_each(|target| self.swap(target)),
            Some(repeat) => self.again_and_again(targets, repeat),
        };
    }

    fn again_and_again(&self, mut targets: Vec<Target>, repeat: &Repeat) -> Result<(), Ended> {
        let every = Duration::from_micros(repeat.every_us);
        let began = Instant::now();
        let until = repeat.for_ms.and_then(|ms| began.checked_add(Duration::from_millis(ms)));
        let over = |at: Instant| until.is_some_and(|until| at >= until);
        let mut listed = began;
        loop {
            for target in &mut targets {
                let beat = Instant::now();
                if over(beat) {
                    return Ok(());
                }
                self.swap(std::slice::from_ref(target))?;
                // Correct unless another request swaps the object too; the next list corrects that.
                target.to = next(&self.request, &target.to).to_owned();
                self.pause(beat.checked_add(every), until)?;
            }
            if targets.is_empty() {
                let beat = Instant::now();
                if over(beat) {
                    return Ok(());
                }
                self.pause(beat.checked_add(MAX_LIST_AGE), until)?;
            }
            if targets.is_empty() || listed.elapsed() >= MAX_LIST_AGE {
                let objects = self.shared.core.objects(&selected(&self.request));
                targets = chosen(&objects, &self.request);
                listed = Instant::now();
            }
        }
    }

    /// Sleeps until `then` (`None` means without limit), or until `end` if that is earlier.
    fn pause(&self, then: Option<Instant>, end: Option<Instant>) -> Result<(), Ended> {
        let then = [then, end].into_iter().flatten().min();
        sleep_until(then, POLL_INTERVAL, &|| self.over()).then_some(()).ok_or(Ended)
    }

    fn over(&self) -> bool {
        self.disconnected.load(Ordering::Relaxed) || *self.shared.ending.borrow()
    }

    /// Performs one change.
    fn swap(&self, targets: &[Target]) -> Result<(), Ended> {
        if self.over() {
            return Err(Ended);
        }
        let core = &self.shared.core;
        let request = SwapRequest {
            objects: targets.iter().map(|target| (target.id, target.to.clone())).collect(),
            // Checked before the work began.
            clustering: clustering(&self.request).unwrap_or_default(),
            probation: probation(&self.request).unwrap_or_default(),
            retries: self.request.retries,
            change: core.journal.next_id(),
            deadline: self.request.deadline_ms.map(Duration::from_millis),
            dry_run: self.request.dry_run,
            protocol: self.request.protocol.clone(),
            handover: self.request.handover.into(),
            cancel: Arc::clone(&self.disconnected),
            owner: self.owner.clone(),
        };
        let report = recording::changing(request.change, || core.system.swap(&request));
        // The object ended after the list was made. It was not requested by name, so it is not
        // reported.
        if report.target_gone && !self.request.together {
            return Ok(());
        }
        // A dry run is no change, whatever its result.
        if !self.request.dry_run {
            core.ended(report.clone());
        }
        self.sender.blocking_send(report).map_err(|_| Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(id: u64, implementation: &str, implementations: &[&str]) -> ObjectInfo {
        ObjectInfo {
            id,
            name: format!("fcm:/{id}"),
            interface: "fcm".into(),
            implementation: implementation.into(),
            implementations: implementations.iter().map(|s| (*s).to_owned()).collect(),
            ..ObjectInfo::default()
        }
    }

    #[test]
    fn each_goes_on_from_where_it_is() {
        let others = vec!["b".into(), "c".into()];
        let repeat = Some(Repeat { others, every_us: 1, for_ms: None });
        let request = Swap { repeat, ..Swap::once("*", "a") };
        for (now, then) in [("a", "b"), ("b", "c"), ("c", "a"), ("something else", "a")] {
            assert_eq!(next(&request, now), then);
        }
        assert_eq!(next(&Swap::once("*", "a"), "a"), "a", "a swap to the same one is a swap");
    }

    #[test]
    fn only_objects_that_can_all_of_it_are_chosen() {
        let repeat = Some(Repeat { others: vec!["b".into()], every_us: 1, for_ms: None });
        let request = Swap { repeat, ..Swap::once("*", "a") };
        let objects =
            [object(1, "a", &["a", "b"]), object(2, "a", &["a"]), object(3, "b", &["b", "a"])];
        let chosen = chosen(&objects, &request);
        let to = |id, to: &str| Target { id, to: to.to_owned() };
        assert_eq!(chosen, [to(1, "b"), to(3, "a")]);
    }
}
