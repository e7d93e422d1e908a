//! A model of the hand-over: all states that its participants can reach, whatever order they run
//! in, and wherever they crash, and wherever the new server hangs.
//!
//! Each participant is a small program whose steps are atomic as those of the real one are: a read
//! of the phase, a compare-and-swap, an end. The transitions of the phase are the real ones.

use std::collections::HashSet;

use super::handover::Phase;

/// The server that serves in the beginning, and the ones that its holder starts after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Old {
    Serves,
    /// Has asked for a new server and waits until that is ready; serves meanwhile.
    Asks,
    Ended,
}

/// The holder of the old server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OldHolder {
    Watches,
    /// The server has ended, and this phase was read.
    Decides(Phase),
    /// Waits while the phase is `Stopped`.
    Waits,
    /// Ends the new server and its holder.
    EndsSuccessor,
    Retired,
}

/// The new server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum New {
    Absent,
    Prepares,
    WaitsForEnd,
    /// Takes over the state, and may already write to the host.
    Completes,
    /// Has committed, and has the kernel send the requests again.
    Resends,
    Serves,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    phase: Phase,
    old: Old,
    old_holder: OldHolder,
    new: New,
    new_holder: bool,
    /// Whether the new server does nothing any more.
    hangs: bool,
    late: bool,
    crashes: u8,
}

/// The rules that the proof relies on. A test breaks each of them.
#[derive(Clone, Copy)]
struct Rules {
    /// The phase is `Stopped` only when the old server has ended.
    stops_after_the_end: bool,
    /// The new server serves only if its compare-and-swap succeeds.
    commits: bool,
    /// The old holder starts a server only after it has made the phase `Failed` or read that.
    fails_first: bool,
    /// The old holder starts a server only after the new one has ended.
    ends_successor: bool,
    /// The old holder gives up when it is late.
    has_deadline: bool,
    /// The old holder keeps the descriptors until the hand-over is done.
    waits_until_done: bool,
}

const RULES: Rules = Rules {
    stops_after_the_end: true,
    commits: true,
    fails_first: true,
    ends_successor: true,
    has_deadline: true,
    waits_until_done: true,
};

impl State {
    const FIRST: Self = Self {
        phase: Phase::Idle,
        old: Old::Serves,
        old_holder: OldHolder::Watches,
        new: New::Absent,
        new_holder: false,
        hangs: false,
        late: false,
        crashes: 0,
    };

    /// Changes the phase as `Handover::advance` does.
    fn advance(&mut self, to: Phase) -> bool {
        let can = self.phase.precedes(to);
        if can {
            self.phase = to;
        }
        can
    }

    fn with(self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self;
        change(&mut next);
        next
    }

    /// Returns the states that can follow, besides those after a crash.
    fn next(self, rules: Rules) -> Vec<Self> {
        let mut next = Vec::new();
        self.steps_of_old(rules, &mut next);
        self.steps_of_old_holder(rules, &mut next);
        if !self.hangs {
            self.steps_of_new(rules, &mut next);
        }
        self.steps_of_holders_and_clock(&mut next);
        next.retain(|state| *state != self);
        next
    }

    fn steps_of_old(self, rules: Rules, next: &mut Vec<Self>) {
        match self.old {
            Old::Serves => {
                next.push(self.with(|it| {
                    if it.advance(Phase::Requested) {
                        (it.old, it.late) = (Old::Asks, false);
                    }
                }));
            }
            Old::Asks if self.phase == Phase::Ready => next.push(self.with(|it| {
                if !rules.stops_after_the_end {
                    it.advance(Phase::Switching);
                    it.advance(Phase::Stopped);
                } else if it.advance(Phase::Switching) {
                    it.old = Old::Ended;
                }
            })),
            Old::Asks if self.phase == Phase::Requested && self.late => {
                next.push(self.with(|it| {
                    it.advance(Phase::Failed);
                    it.old = Old::Serves;
                }))
            }
            Old::Asks if !self.phase.is_active() => next.push(self.with(|it| it.old = Old::Serves)),
            Old::Asks | Old::Ended => {}
        }
    }

    fn steps_of_old_holder(self, rules: Rules, next: &mut Vec<Self>) {
        match self.old_holder {
            OldHolder::Watches if self.old == Old::Ended => {
                next.push(self.with(|it| it.old_holder = OldHolder::Decides(it.phase)));
            }
            OldHolder::Decides(read) => next.push(self.with(|it| match read {
                Phase::Idle | Phase::Committed | Phase::Done => it.restart(),
                Phase::Requested | Phase::Ready => {
                    it.advance(Phase::Failed);
                    it.old_holder = OldHolder::Waits;
                }
                Phase::Switching | Phase::Stopped | Phase::Failed => {
                    it.advance(Phase::Stopped);
                    it.old_holder = OldHolder::Waits;
                }
            })),
            OldHolder::Waits if self.phase == Phase::Stopped => {
                if self.late && rules.has_deadline {
                    next.push(self.with(|it| {
                        if rules.fails_first {
                            it.advance(Phase::Failed);
                        } else {
                            it.old_holder = OldHolder::EndsSuccessor;
                        }
                    }));
                }
            }
            OldHolder::Waits if self.phase == Phase::Committed && rules.waits_until_done => {}
            OldHolder::Waits if matches!(self.phase, Phase::Committed | Phase::Done) => {
                next.push(self.with(|it| it.old_holder = OldHolder::Retired));
            }
            OldHolder::Waits => {
                next.push(self.with(|it| it.old_holder = OldHolder::EndsSuccessor));
            }
            OldHolder::EndsSuccessor => next.push(self.with(|it| {
                if rules.ends_successor {
                    if it.new != New::Absent {
                        it.new = New::Ended;
                    }
                    it.new_holder = false;
                }
                it.restart();
            })),
            OldHolder::Watches | OldHolder::Retired => {}
        }
    }

    fn restart(&mut self) {
        (self.old, self.old_holder) = (Old::Serves, OldHolder::Watches);
    }

    fn steps_of_new(self, rules: Rules, next: &mut Vec<Self>) {
        match self.new {
            New::Prepares => next.push(self.with(|it| {
                it.new = if it.advance(Phase::Ready) { New::WaitsForEnd } else { New::Ended };
            })),
            New::WaitsForEnd => match self.phase {
                Phase::Stopped => next.push(self.with(|it| it.new = New::Completes)),
                Phase::Ready | Phase::Switching if !self.late => {}
                _ => next.push(self.with(|it| it.new = New::Ended)),
            },
            New::Completes => {
                next.push(self.with(|it| {
                    let committed = it.advance(Phase::Committed) || !rules.commits;
                    it.new = if committed { New::Resends } else { New::Ended };
                }));
                next.push(self.with(|it| {
                    it.advance(Phase::Failed);
                    it.new = New::Ended;
                }));
            }
            New::Resends => next.push(self.with(|it| {
                it.advance(Phase::Done);
                it.new = New::Serves;
            })),
            New::Absent | New::Serves | New::Ended => {}
        }
    }

    fn steps_of_holders_and_clock(self, next: &mut Vec<Self>) {
        // The first holder starts the new one, and notices its end.
        if self.phase == Phase::Requested && !self.new_holder && self.new == New::Absent {
            next.push(self.with(|it| (it.new_holder, it.new) = (true, New::Prepares)));
        }
        if self.new != New::Absent && !self.new_holder && self.phase.can_fail() {
            next.push(self.with(|it| {
                it.advance(Phase::Failed);
                it.new = New::Absent;
            }));
        }
        // The new holder ends with its server, or starts it again.
        if self.new_holder && self.new == New::Ended {
            next.push(self.with(|it| match it.phase {
                Phase::Committed | Phase::Done => it.new = New::Resends,
                _ => it.new_holder = false,
            }));
        }
        // The first holder ends a new one that has failed.
        if self.phase == Phase::Failed && (self.new_holder || self.new != New::Absent) {
            next.push(self.with(|it| (it.new_holder, it.new) = (false, New::Absent)));
        }
        if self.phase.can_fail() {
            next.push(self.with(|it| it.late = true));
        }
    }

    /// Returns the states in which one participant has crashed, or hangs.
    fn crashes(self) -> Vec<Self> {
        let mut next = Vec::new();
        if self.crashes < 3 {
            let crashed = self.with(|it| it.crashes += 1);
            if self.old != Old::Ended {
                next.push(crashed.with(|it| it.old = Old::Ended));
            }
            // Of a server and its holder only one is killed: without either the mount ends, which
            // no protocol prevents.
            if self.new_holder && !matches!(self.new, New::Absent | New::Ended) {
                next.push(crashed.with(|it| it.new = New::Ended));
                next.push(crashed.with(|it| it.new_holder = false));
                if !matches!(self.new, New::Resends | New::Serves) {
                    next.push(crashed.with(|it| it.hangs = true));
                }
            }
        }
        next
    }

    fn servers(self) -> usize {
        let new = matches!(self.new, New::Resends | New::Serves);
        usize::from(self.old != Old::Ended) + usize::from(new)
    }

    /// Returns what is wrong in this state. `stuck` says that nothing happens any more.
    fn wrong(self, stuck: bool) -> Option<&'static str> {
        if self.servers() > 1 {
            return Some("two servers serve");
        }
        // Before the old server ends, the new one only reads.
        if self.old != Old::Ended && self.new == New::Completes {
            return Some("a server serves while the other one completes");
        }
        // If the old server is started again, it does not know of the requests that this one has
        // executed.
        let committed = matches!(self.phase, Phase::Committed | Phase::Done);
        if matches!(self.new, New::Resends | New::Serves) && !committed {
            return Some("the new server serves without having committed");
        }
        // The kernel ends the requests that were read by a descriptor that is closed.
        if self.old_holder == OldHolder::Retired && self.phase != Phase::Done {
            return Some("the old descriptors are closed before the requests are sent again");
        }
        if self.old != Old::Ended && committed {
            return Some("the old server serves after the commit");
        }
        (stuck && self.servers() == 0).then_some("no server serves, and none will")
    }
}

/// Visits all states. Returns their number, or the first one that is wrong.
fn visit(rules: Rules) -> Result<usize, (State, &'static str)> {
    let mut seen = HashSet::from([State::FIRST]);
    let mut open = vec![State::FIRST];
    while let Some(state) = open.pop() {
        let next = state.next(rules);
        if let Some(wrong) = state.wrong(next.is_empty()) {
            return Err((state, wrong));
        }
        for next in next.into_iter().chain(state.crashes()) {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    // Each state leads to one in which a server serves, without any crash more: otherwise the
    // participants could keep each other waiting.
    for state in &seen {
        if !reaches_service(*state, rules) {
            return Err((*state, "no server will serve"));
        }
    }
    Ok(seen.len())
}

fn reaches_service(from: State, rules: Rules) -> bool {
    let mut seen = HashSet::from([from]);
    let mut open = vec![from];
    while let Some(state) = open.pop() {
        if state.servers() == 1 {
            return true;
        }
        for next in state.next(rules) {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

#[test]
fn one_server_serves_in_every_state_that_can_be_reached() {
    let states = visit(RULES).unwrap_or_else(|(state, wrong)| panic!("{wrong}: {state:?}"));
    assert!(states > 300, "only {states} states were visited");
}

#[test]
fn every_rule_is_needed() {
    let broken = [
        Rules { stops_after_the_end: false, ..RULES },
        Rules { commits: false, ..RULES },
        Rules { fails_first: false, ..RULES },
        Rules { ends_successor: false, ..RULES },
        Rules { has_deadline: false, ..RULES },
        Rules { waits_until_done: false, ..RULES },
    ];
    for (rule, broken) in broken.into_iter().enumerate() {
        assert!(visit(broken).is_err(), "nothing is wrong without rule {rule}");
    }
}
