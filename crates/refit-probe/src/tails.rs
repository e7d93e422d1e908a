//! The steps by which a function's return is seen although another function returns for it.
//!
//! A function that ends with a jump to another one (tail call) leaves the return to it. Both have
//! the same frame address (CFA): behind the return address, which neither of them moves. So where
//! the function jumps on, a snippet stores a mark under that address, in a map that all threads
//! share, and the other function's exits look for it:
//!
//! | where | the mark |
//! |---|---|
//! | the function jumps on | becomes `COMING` |
//! | the other function is entered | `COMING` becomes `THERE`; `THERE` is removed |
//! | the other function returns | if there is one, the actions run, and it is removed |
//! | the other function jumps on | if there is one, it becomes `COMING` |
//! | an exception leaves it after a cleanup | if there is one, times end, and it is removed |
//! | it jumps to one that is not followed | the same, and a return is lost |
//! | the function is entered | is removed |
//!
//! # Why an action runs once for each return
//!
//! Only the thread on whose stack a frame is reads or changes the mark under its address, so no two
//! steps race. While a call is in progress, no other frame has its address. A call of the other
//! function that begins with a jump finds `COMING` at its entry, one that begins otherwise finds
//! none, or `THERE`: the mark of a call that was left by an exception or `longjmp`, which it
//! removes. So from its entry to its exit, there is a mark if and only if control came by jumps
//! from the function. The function removes a mark at its entry, since its own exits run the
//! actions.
//!
//! One case is left: a signal handler that interrupts a thread between the jump's snippet and the
//! other function's entry, and leaves by `siglongjmp`. If the other function is then called with
//! the same frame address, that call counts as one of the function.

use std::sync::Arc;

use refit_splice::{
    Action, Base, Formula, Kept, Key, LOCALS, Operator, Relation, Step, Test, Value, Width,
};

use crate::lowering::{Condition, both};

/// The mark of a frame from which control is on its way to another function.
const COMING: i64 = 2;
/// The mark of a frame that the other function has.
const THERE: i64 = 1;
/// Addresses of frames have fewer bits than this.
const BITS: u32 = 48;
// By this, `Tail::enter` makes one of the other, and removes the other.
const _: () = assert!(COMING >> 1 == THERE && THERE >> 1 == 0);
/// Number of locals that the steps need.
const NEEDED: u8 = 3;

/// A function whose returns are seen in others.
#[derive(Clone, Debug)]
pub struct Tail {
    /// The map that has the marks.
    map: u16,
    /// A number that tells the marks of this function from those of others.
    number: u16,
    /// The first of its locals.
    locals: u8,
    /// The cell that counts returns which are not seen.
    unseen: u32,
    /// The steps that run when it returns.
    returning: Vec<Step>,
    /// Steps among them that end the time of the call.
    ending: Vec<Step>,
}

/// Where a frame is: a register by its number, and an offset in bytes.
pub(crate) type Frame = (u8, i64);

impl Tail {
    /// Returns the function that has this number and runs these steps when it returns, of which
    /// some end the time of the call; `unseen` is the cell that counts returns which are not seen.
    /// `None` if the steps leave too few locals.
    pub(crate) fn new(
        map: u16,
        number: u16,
        unseen: u32,
        [returning, ending]: [&[Step]; 2],
    ) -> Option<Self> {
        let used = returning.iter().filter_map(|step| match step.action {
            Action::Assign { local, .. } => Some(local + 1),
            _ => None,
        });
        let locals = used.max().unwrap_or(0);
        (locals + NEEDED <= LOCALS).then(|| Self {
            map,
            number,
            locals,
            unseen,
            returning: returning.to_vec(),
            ending: ending.to_vec(),
        })
    }

    /// Returns the steps where the function jumps on.
    pub(crate) fn leave(&self, frame: Frame) -> Vec<Step> {
        let mut steps = vec![self.find(frame)];
        steps.extend(self.mark(Formula::Number(COMING), Condition::new()));
        steps
    }

    /// Returns the steps at an entry of a function to which control may have jumped.
    pub(crate) fn enter(&self, frame: Frame) -> Vec<Step> {
        let mark = Box::new([Formula::Value(self.state()), Formula::Number(1)]);
        self.look(frame, Vec::new(), Formula::Binary(Operator::Right, mark))
    }

    /// Returns the steps where that function returns.
    pub(crate) fn finish(&self, frame: Frame) -> Vec<Step> {
        let there = self.is_there();
        let returning = self.returning.iter().cloned();
        let returning = returning.map(|step| Step { when: both(&there, &step.when), ..step });
        self.look(frame, returning.collect(), Formula::Number(0))
    }

    /// Returns the steps where that function jumps on.
    pub(crate) fn pass_on(&self, frame: Frame) -> Vec<Step> {
        self.look(frame, Vec::new(), Formula::Number(COMING))
    }

    /// Returns the cell that counts returns which are not seen.
    pub(crate) fn unseen(&self) -> u32 {
        self.unseen
    }

    /// Returns the steps where the function jumps to one that is not followed. The time of the call
    /// ends there.
    pub(crate) fn lose(&self) -> Vec<Step> {
        let count = Action::Count { cell: self.unseen }.into();
        self.ending.iter().cloned().chain([count]).collect()
    }

    /// Returns the steps where a function to which control may have jumped does so.
    pub(crate) fn lose_there(&self, frame: Frame) -> Vec<Step> {
        let there = self.is_there();
        let lose = self.lose().into_iter();
        let lose = lose.map(|step| Step { when: both(&there, &step.when), ..step });
        self.look(frame, lose.collect(), Formula::Number(0))
    }

    /// Returns the steps where an exception leaves a function to which control may have jumped.
    pub(crate) fn end(&self, frame: Frame) -> Vec<Step> {
        let there = self.is_there();
        let ending = self.ending.iter().cloned();
        let ending = ending.map(|step| Step { when: both(&there, &step.when), ..step });
        self.look(frame, ending.collect(), Formula::Number(0))
    }

    /// Returns the steps at an entry of the function itself, if control may have jumped there.
    pub(crate) fn forget(&self, frame: Frame) -> Vec<Step> {
        self.look(frame, Vec::new(), Formula::Number(0))
    }

    /// Returns steps that look for the mark. If there is one, `between` run, and the mark changes.
    fn look(&self, frame: Frame, between: Vec<Step>, mark: Formula) -> Vec<Step> {
        let kept = Formula::Kept(self.kept());
        let mut steps = vec![self.find(frame), assign(self.locals + 1, kept)];
        steps.extend(between);
        steps.extend(self.mark(mark, self.is_there()));
        steps
    }

    /// Returns the step that computes the key: the address of the frame, with the number above it.
    fn find(&self, (register, offset): Frame) -> Step {
        let number = (u64::from(self.number) << BITS).cast_signed();
        let both = [
            Formula::Value(Value::register(register)),
            Formula::Number(number.wrapping_add(offset)),
        ];
        assign(self.locals, Formula::Binary(Operator::Add, Box::new(both)))
    }

    /// Returns the steps that store a mark.
    fn mark(&self, mark: Formula, when: Condition) -> [Step; 2] {
        let (kept, value) = (self.kept(), local(self.locals + 2));
        let keep = Action::Keep { kept, value, adds: false };
        [assign(self.locals + 2, mark), Step { when, key: None, action: keep }]
    }

    fn kept(&self) -> Kept {
        Kept { map: self.map, key: Some(Key::Value(local(self.locals))) }
    }

    fn state(&self) -> Value {
        local(self.locals + 1)
    }

    fn is_there(&self) -> Condition {
        vec![vec![Test { value: self.state(), relation: Relation::Unequal, than: 0 }]]
    }
}

/// Whether a step stores a mark in this map.
pub(crate) fn is_mark(step: &Step, in_map: u16) -> bool {
    matches!(&step.action, Action::Keep { kept, .. } if kept.map == in_map)
}

fn local(number: u8) -> Value {
    Value { base: Base::Local(number), width: Width::Whole }
}

fn assign(local: u8, formula: Formula) -> Step {
    Action::Assign { local, formula: Arc::new(formula), first: true }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_use_locals_that_the_actions_do_not() {
        let own = assign(4, Formula::Number(1));
        let tail = Tail::new(0, 7, 9, [std::slice::from_ref(&own), &[]]).expect("room");
        let steps = tail.finish((4, 8));
        let assigned = steps.iter().filter_map(|step| match step.action {
            Action::Assign { local, .. } => Some(local),
            _ => None,
        });
        assert_eq!(assigned.collect::<Vec<_>>(), [5, 6, 4, 7]);
        assert_eq!(steps[2].when, tail.is_there());
        assert!(
            Tail::new(0, 7, 9, [&[assign(LOCALS - NEEDED, Formula::Number(1))], &[]]).is_none()
        );
    }

    #[test]
    fn a_mark_takes_no_room_once_its_function_has_returned() {
        let steps = Tail::new(0, 7, 9, [&[], &[]]).expect("room").finish((4, 8));
        let [.., assigned, kept] = &steps[..] else { panic!("{steps:?}") };
        let Action::Assign { local, formula, .. } = &assigned.action else {
            panic!("{assigned:?}")
        };
        assert_eq!((*local, &**formula), (2, &Formula::Number(0)));
        assert!(matches!(&kept.action, Action::Keep { value, .. } if *value == super::local(2)));
    }
}
