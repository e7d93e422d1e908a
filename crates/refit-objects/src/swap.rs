//! Requests for a swap of one object, or of several as one change. [`crate::switch`] carries them
//! out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use refit_change::{Change, ChangeId, Phase, Report};

use crate::clustering::Clustering;
use crate::interface::{Implementations, Interface, Root};
use crate::object::{ObjectId, Slot, Swapper};
use crate::pace::sleep_until;
use crate::plugin::ledger;
use crate::registry;
use crate::request::in_request;
use crate::switch::{Member, Switch};
use crate::transfer::DrainOptions;
use crate::transfer::moving::report_on;

/// The pause between the first attempt and the second, and the longest pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The reason for giving up a change that its requester has cancelled.
pub(crate) const REQUESTER_GONE: &str = "its requester went away";

/// A callback for each phase of a swap; an error rolls the swap back.
pub type Hook = Arc<dyn Fn(Phase) -> Result<(), String> + Send + Sync>;

/// The options of a swap.
#[derive(Clone)]
pub struct SwapOptions {
    /// The time from the beginning of an attempt until its commit, after which it is rolled back.
    pub deadline: Duration,
    /// The number of times that a swap which missed its deadline is attempted again, after a pause
    /// that doubles each time: the callers that delayed it may be gone then.
    pub retries: u32,
    /// The grouping of processors that share a rep.
    pub clustering: Clustering,
    /// A flag by which the requester, or a thread that notices the requester's end, has the swap
    /// rolled back.
    pub cancel: Option<Arc<AtomicBool>>,
    /// The name of the requester, for the report.
    pub owner: String,
    /// A callback for every phase, for tests and probes.
    pub hook: Option<Hook>,
    /// Goes as far as the commit, measures, and rolls back, so that nothing changes.
    pub dry_run: bool,
    /// The name of the protocol to use; `None` for the best one.
    pub protocol: Option<String>,
    /// The limits for moving the rest of a lazy transfer after the commit.
    pub drain: DrainOptions,
    /// The treatment of the old implementation's state.
    pub handover: Handover,
    /// Runs the swapping thread before all ordinary ones (`SCHED_FIFO`, where permitted) while
    /// others wait for it. It shortens the wait on a machine with as many busy threads as
    /// processors. It changes a property of the caller's thread, so it is off by default.
    pub urgent: bool,
}

/// The treatment of the state of the implementation that is swapped out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handover {
    /// The new implementation takes it over.
    #[default]
    Transfer,
    /// The state is abandoned, and the new implementation begins as created. Refused unless the
    /// interface declares its state a hint.
    WithoutState,
    /// The state is discarded, and the new implementation begins with the empty state of the
    /// interface. **Loses the contents of the object.** Refused unless the interface declares an
    /// empty state.
    EmptyState,
}

impl Default for SwapOptions {
    fn default() -> Self {
        SwapOptions {
            deadline: Duration::from_secs(1),
            retries: 0,
            clustering: Clustering::AsMade,
            cancel: None,
            owner: String::new(),
            hook: None,
            dry_run: false,
            protocol: None,
            drain: DrainOptions::default(),
            handover: Handover::default(),
            urgent: false,
        }
    }
}

impl std::fmt::Debug for SwapOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SwapOptions {
            deadline,
            retries,
            clustering,
            cancel,
            owner,
            hook,
            dry_run,
            protocol,
            drain,
            handover,
            urgent,
        } = self;
        f.debug_struct("SwapOptions")
            .field("deadline", deadline)
            .field("retries", retries)
            .field("clustering", clustering)
            .field("cancel", cancel)
            .field("owner", owner)
            .field("hook", &hook.is_some())
            .field("dry_run", dry_run)
            .field("protocol", protocol)
            .field("drain", drain)
            .field("handover", handover)
            .field("urgent", urgent)
            .finish()
    }
}

impl SwapOptions {
    pub(crate) fn cancelled(&self) -> bool {
        // Relaxed: no other load depends on it.
        self.cancel.as_ref().is_some_and(|c| c.load(Ordering::Relaxed))
    }
}

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
    let asked = SwapRequest { objects: &[(I::id(object), &to)], id: change, options };
    let once = SwapOptions { retries: 0, ..options.clone() };
    let asked = SwapRequest { options: &once, ..asked };
    asked.run(&mut |slot, _| {
        let member =
            root.take().and_then(|root| Member::new(slot, root, options.clustering.clone()));
        member.ok_or_else(|| "its interface is another one".into())
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
    let asked = SwapRequest { objects, id: change, options };
    asked.run(&mut |slot, to| slot.swapper.member(slot, to, options.clustering.clone()))
}

/// Swaps objects of one interface by name.
pub(crate) struct ByName<I: Interface>(Arc<dyn Implementations<I>>);

impl<I: Interface> ByName<I> {
    pub(crate) fn new(implementations: Arc<dyn Implementations<I>>) -> Self {
        ByName(implementations)
    }
}

impl<I: Interface> Swapper for ByName<I> {
    fn names(&self) -> Vec<&'static str> {
        let mut names = self.0.names();
        names.extend(ledger::names::<I>());
        names
    }

    fn own(&self, name: &str) -> bool {
        self.0.names().contains(&name)
    }

    fn cannot(&self, to: &str) -> Option<String> {
        let names = self.names();
        let known = names.join(", ");
        let why = || format!("there is no implementation {to:?}; there are: {known}");
        (!names.contains(&to)).then(why)
    }

    fn member(&self, slot: &Arc<Slot>, to: &str, clustering: Clustering) -> Result<Member, String> {
        let unknown = || self.cannot(to).unwrap_or_else(|| format!("{to:?} could not be made"));
        let root = ledger::make(&*self.0, to)?.ok_or_else(unknown)?;
        Member::new(slot, root, clustering).ok_or_else(|| "its interface is another one".into())
    }
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
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let report = Report { attempts: attempt, ..self.attempt(make) };
            let again = report.late && attempt <= self.options.retries && self.pause(pause);
            if !again {
                return report;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        unreachable!("the attempts are counted")
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
            None => format!("{}.{}", id.index, id.serial),
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

/// Returns the names, each once, in alphabetical order.
pub(crate) fn each_once(mut names: Vec<String>) -> String {
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}
