//! Requests for a swap of one object, or of several as one change. [`crate::switch`] carries them
//! out.
//!
//! Each swap is a `tracing` span with the number of the change, and its steps are events in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use refit_change::{Change, ChangeId, End, Report};
use tracing::{Level, debug, debug_span};

use crate::id::ObjectId;
use crate::interface::{Interface, Root};
use crate::pace::sleep_until;
use crate::registry;
use crate::request::in_request;
use crate::slot::Slot;
use crate::swap_options::{REQUESTER_GONE, SwapOptions};
use crate::switch::{Member, Switch};
use crate::transfer::moving::report_on;

/// The pause between the first attempt and the second, and the longest pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Swaps an object to the implementation with this name. `change` is the number under which the
/// report is filed.
pub fn swap_named(id: ObjectId, to: &str, change: ChangeId, options: &SwapOptions) -> Report {
    swap_together(&[(id, to)], change, options)
}

/// Swaps an object to a root that the caller has created. There is one root, so there is one
/// attempt.
pub fn swap<I: Interface>(
    object: I::Ref,
    root: Box<dyn Root<I>>,
    change: ChangeId,
    options: &SwapOptions,
) -> Report {
    let to = root.implementation().to_owned();
    let mut root = Some(root);
    let once = SwapOptions { retries: 0, ..options.clone() };
    let request = SwapRequest { objects: &[(I::id(object), &to)], id: change, options: &once };
    request.run(&mut |slot, _| {
        let member =
            root.take().and_then(|root| Member::new(slot, root, options.clustering.clone()));
        member.ok_or_else(|| "its interface differs".into())
    })
}

/// Swaps several objects, each to the implementation with the given name, as one change: no request
/// sees some of them old and others new, and if one cannot be swapped, none is. Each object may be
/// named once.
pub fn swap_together(
    objects: &[(ObjectId, &str)],
    change: ChangeId,
    options: &SwapOptions,
) -> Report {
    let request = SwapRequest { objects, id: change, options };
    request.run(&mut |slot, to| Member::by_name(slot, to, options.clustering.clone()))
}

/// Creates a member of a switch from an object whose right to change is held.
type MakeMember<'a> = dyn FnMut(&Arc<Slot>, &str) -> Result<Member, String> + 'a;

/// A requested swap.
struct SwapRequest<'a> {
    objects: &'a [(ObjectId, &'a str)],
    id: ChangeId,
    options: &'a SwapOptions,
}

impl SwapRequest<'_> {
    /// Tries until it succeeds, is impossible, or has been tried the given number of times.
    fn run(&self, make: &mut MakeMember<'_>) -> Report {
        let _swap = debug_span!("swap", change = self.id).entered();
        self.record_request();
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let report = Report { attempts: attempt, ..self.attempt(make) };
            record_end(&report);
            let again = report.late && attempt <= self.options.retries && self.pause(pause);
            if !again {
                return report;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        unreachable!("the attempts are counted")
    }

    fn record_request(&self) {
        // Names are computed only if the event is recorded.
        if tracing::enabled!(Level::DEBUG) {
            let Change { target, from, to, .. } = self.nameless();
            let ids = self.objects.iter().map(|(id, _)| id.to_string()).collect::<Vec<_>>();
            let deadline = self.options.deadline;
            debug!(object = target, id = ids.join(" "), from, to, ?deadline, "asked for");
        }
    }

    /// Pauses, so that the callers that delayed it can finish. Returns false if the requester has
    /// gone away.
    fn pause(&self, pause: Duration) -> bool {
        const LOOK: Duration = Duration::from_millis(5);
        sleep_until(Instant::now().checked_add(pause), LOOK, &|| self.options.cancelled())
    }

    fn attempt(&self, make: &mut MakeMember<'_>) -> Report {
        let began = Instant::now();
        if in_request() {
            let why = "it was asked for from within a request, which it would have to wait for";
            return self.refused(why.into());
        }
        let mut slots = Vec::with_capacity(self.objects.len());
        for (id, to) in self.objects {
            let Some(slot) = registry::get(*id) else { return self.gone() };
            slots.push((slot, *to));
        }
        // All changes queue in the same order, so that no two wait for each other.
        slots.sort_by_key(|(slot, _)| slot.id);
        if slots.windows(2).any(|pair| pair[0].0.id == pair[1].0.id) {
            return self.refused("it names an object twice".into());
        }
        let cancelled = || self.options.cancelled();
        let mut tickets = Vec::with_capacity(slots.len());
        for (slot, _) in &slots {
            let left = self.options.deadline.saturating_sub(began.elapsed());
            let Some(ticket) = slot.changing().take(left, &cancelled) else {
                if self.options.cancelled() {
                    return self.refused(REQUESTER_GONE.into());
                }
                let why = "another change of this object did not end before the deadline";
                return Report { late: true, ..self.refused(why.into()) };
            };
            if slot.destroyed() {
                return self.gone();
            }
            tickets.push(ticket);
        }
        let mut members = Vec::with_capacity(slots.len());
        for (slot, to) in &slots {
            match make(slot, to) {
                Ok(member) => members.push(member),
                Err(why) => return self.refused(why),
            }
        }
        if members.is_empty() {
            return self.refused("it names no object".into());
        }
        let moving: Vec<_> = members.iter().map(Member::moving).collect();
        if let Some(none) = moving.iter().find_map(|m| m.agree(self.options).err()) {
            let transfers = none.as_transfer().into_iter().collect();
            return Report { transfers, ..self.refused(none.to_string()) };
        }
        let change = self.change(&members);
        let mut report = Switch::new(members, self.options, began).run(change);
        let over = || self.options.cancelled() || slots.iter().any(|(slot, _)| slot.doomed());
        report_on(&mut report, &moving, self.options, &over);
        report
    }

    fn change(&self, members: &[Member]) -> Change {
        let all = |of: fn(&Member) -> String| members.iter().map(of).collect();
        self.changing(all(Member::object), all(Member::from), all(Member::to))
    }

    fn changing(&self, mut objects: Vec<String>, from: Vec<String>, to: Vec<String>) -> Change {
        const SHOWN: usize = 4;
        let more = objects.len().saturating_sub(SHOWN);
        objects.truncate(SHOWN);
        let mut target = objects.join(", ");
        if more > 0 {
            target += &format!(" and {more} more");
        }
        Change::new(self.id, "swap", &target, &each_once(from), &each_once(to), &self.options.owner)
    }

    /// Returns the change of objects that may be gone, so that their names are unknown.
    fn nameless(&self) -> Change {
        let name = |id: &ObjectId| match registry::get(*id) {
            Some(slot) => slot.full_name(),
            None => id.to_string(),
        };
        let from = |id: &ObjectId| registry::get(*id).map(|slot| slot.root().implementation());
        let names = self.objects.iter().map(|(id, _)| name(id)).collect();
        let from = self.objects.iter().filter_map(|(id, _)| from(id)).collect();
        let to = self.objects.iter().map(|(_, to)| (*to).to_owned()).collect();
        self.changing(names, from, to)
    }

    fn refused(&self, why: String) -> Report {
        Report::refused(self.nameless(), &why)
    }

    fn gone(&self) -> Report {
        let why = match self.objects.len() {
            1 => "the object does not exist any more",
            _ => "one of the objects does not exist any more",
        };
        Report { target_gone: true, ..self.refused(why.into()) }
    }
}

/// Records how an attempt ended.
fn record_end(report: &Report) {
    let Report { end, attempts, forwarded, blocked, longest_block_ns, .. } = report;
    match end {
        End::Committed | End::Rehearsed => {
            debug!(attempts, forwarded, blocked, longest_block_ns, "{}", end.word());
        }
        End::RolledBack(why) | End::Refused(why) => {
            debug!(attempts, forwarded, blocked, longest_block_ns, why, "{}", end.word());
        }
    }
}

/// Returns the names, each once, in alphabetical order.
pub(crate) fn each_once(mut names: Vec<String>) -> String {
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}
