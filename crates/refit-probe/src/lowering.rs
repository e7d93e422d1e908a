//! Lowers what is computed to what snippets do: a number that no register or field has becomes a
//! *local* of the snippet, which an action before its first use assigns.

use std::collections::BTreeMap;
use std::sync::Arc;

use refit_splice::{Base, LOCALS, Operator, Relation, Test, Width};

use crate::argument::{Argument, Hop, MOST_GATHERED, Member, Root, Want, gathered};
use crate::arithmetic;
use crate::expression::untyped;
use crate::map_kinds::MapKinds;
use crate::operand::{self, Operand};
use crate::quotes::Quotes;
use crate::type_name::TypeName;

/// The most values in one that say its type.
const MOST_TYPED: usize = 64;

/// Alternatives, each of tests that all have to hold; empty for no condition.
pub type Condition = Vec<Vec<Test>>;

/// A local that an action assigns.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// Its number.
    pub(crate) local: u8,
    /// The number that it is assigned.
    pub(crate) value: Argument,
    /// Whether nothing was assigned to it before.
    pub(crate) first: bool,
}

/// The locals of a probe while it is parsed.
#[derive(Debug, Default)]
pub(crate) struct Lowering {
    /// The variables, whose locals have the first numbers, and what was assigned to them.
    variables: Vec<(String, Option<Operand>)>,
    /// Number of the next local.
    next: usize,
    /// The assignments that the next action needs.
    pending: Vec<Assignment>,
    /// The maps that keep functions and addresses of a type.
    kinds: MapKinds,
    /// The values that were assigned to variables first, which have their types.
    types: BTreeMap<String, Arc<Argument>>,
    /// Whether the places are static tracepoints, which say where their arguments are.
    given: bool,
}

impl Lowering {
    /// Begins with the variables of a body of a script that has these maps.
    pub(crate) fn new(body: &str, kinds: &MapKinds) -> Self {
        let (mut variables, mut quotes) = (Vec::<(String, _)>::new(), Quotes::default());
        for (at, sign) in body.char_indices() {
            quotes.pass(sign);
            if sign != '$' || quotes.within {
                continue;
            }
            let rest = &body[at + 1..];
            let end = rest.find(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            if variables.iter().all(|(known, _)| known != name) {
                variables.push((name.to_owned(), None));
            }
        }
        let next = variables.len();
        let kinds = kinds.clone();
        Self { variables, next, kinds, ..Self::default() }
    }

    /// Takes the arguments from where static tracepoints say they are.
    pub(crate) fn take_given(&mut self) {
        self.given = true;
    }

    /// Returns a value, or what it is at static tracepoints.
    fn at_place(&self, operand: Operand) -> Argument {
        let Some((number, offset)) = operand.given().filter(|_| self.given) else {
            return Argument::Value(operand);
        };
        let whole = Operand::new(operand.value.base, Width::Whole);
        let begin = |root, hops| Argument::Member(Member { root, hops, want: Want::Number });
        let given = begin(Root::Given(number, whole), Vec::new());
        let cast = |pointers, of, hops| {
            let name = TypeName::of(operand.value.width, pointers);
            begin(Root::Cast(name, Box::new(of)), hops)
        };
        match offset {
            None if operand.value.width == Width::Whole => given,
            None => cast(0, given, Vec::new()),
            Some(offset) => {
                let offset = Box::new(Argument::Number(offset.into()));
                let place = Argument::Computed(Box::new(given), Operator::Add, offset);
                cast(1, place, vec![Hop::Deref])
            }
        }
    }

    /// Whether a value is, or is reached by, an argument of a static tracepoint.
    fn is_given(&self, operand: &Operand) -> bool {
        self.given && operand.given().is_some()
    }

    /// Returns a mark for [`release`](Self::release).
    pub(crate) fn mark(&self) -> usize {
        self.next
    }

    /// Lets locals be used again that were made since the mark, except variables.
    pub(crate) fn release(&mut self, mark: usize) {
        self.next = mark;
    }

    /// Takes the assignments that the next action needs.
    pub(crate) fn take(&mut self) -> Vec<Assignment> {
        std::mem::take(&mut self.pending)
    }

    /// Returns an argument of a message, or a part of a key, as what it stands for: a map can keep
    /// functions.
    pub(crate) fn named(&self, argument: Argument) -> Argument {
        match argument {
            Argument::Kept(ref name, _) if self.kinds.functions.contains(name) => {
                Argument::Symbol(Box::new(argument))
            }
            other => other,
        }
    }

    /// Lowers a number to a value.
    ///
    /// # Errors
    /// The part that cannot be computed.
    pub(crate) fn value(&mut self, argument: Argument) -> Result<Argument, String> {
        if argument.operand().is_some_and(|operand| !self.is_given(operand)) {
            return Ok(argument);
        }
        let value = self.parts(argument.clone())?;
        if value.operand().is_some() {
            return Ok(value);
        }
        let local = u8::try_from(self.next).ok().filter(|local| *local < LOCALS);
        let local = local.ok_or_else(|| {
            format!("`{argument}` is too much: a probe has {LOCALS} variables and interim results")
        })?;
        self.next += 1;
        let operand = of_local(local, &value);
        self.pending.push(Assignment { local, value, first: false });
        Ok(Argument::Local(Box::new(argument), operand))
    }

    /// Lowers a number that a map keeps, or that is added to what it keeps. Also returns what says
    /// the type that the map has then.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub(crate) fn kept(
        &mut self,
        map: &str,
        number: Argument,
        adds: bool,
    ) -> Result<(Argument, Option<Arc<Argument>>), String> {
        if adds {
            let typed = self.kinds.typed.contains(map);
            let step = |number| Argument::Step(Box::new(number), map.to_owned());
            let number = if typed { step(number) } else { number };
            return Ok((self.value(number)?, None));
        }
        let before = self.pending.len();
        let value = self.value(number)?;
        // The last assignment is that of the value, if it has a local of its own.
        let assigned = self.pending.get(before..).and_then(<[_]>::last).map(|last| &last.value);
        let of = assigned.unwrap_or(&value);
        let of = (1..=MOST_TYPED).contains(&of.typed()).then(|| Arc::new(of.clone()));
        Ok((value, of))
    }

    /// Lowers an argument of a message.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub(crate) fn printed(&mut self, argument: Argument) -> Result<Argument, String> {
        match argument {
            Argument::Text(..) | Argument::Symbol(_) => self.parts(argument),
            _ if !argument.is_outside() => self.value(argument),
            _ if argument.operands().into_iter().any(|one| self.is_given(one)) => {
                self.value(argument)
            }
            _ => Ok(argument),
        }
    }

    /// Lowers a part of a key; `kept` says whether it is the key of a value that is kept.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub(crate) fn part(&mut self, argument: Argument, kept: bool) -> Result<Argument, String> {
        match self.named(argument) {
            argument @ (Argument::Function | Argument::Probe | Argument::Quoted(_)) if kept => {
                Err(format!("`{argument}` cannot be the key of a value that is kept"))
            }
            argument @ Argument::Number(_) if kept => self.value(argument),
            argument @ (Argument::Text(..) | Argument::Symbol(_)) => self.parts(argument),
            argument @ Argument::Number(_) => Ok(argument),
            argument if argument.is_stack() => Ok(argument),
            argument if argument.is_number() => self.value(argument),
            argument => Ok(argument),
        }
    }

    /// Lowers a whole key.
    ///
    /// # Errors
    /// As [`value`](Self::value), or the key is too long.
    pub(crate) fn key(
        &mut self,
        parts: Vec<Argument>,
        kept: bool,
        whole: &str,
    ) -> Result<Vec<Argument>, String> {
        let parts = parts.into_iter().map(|part| self.part(part, kept));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        match gathered(&parts) {
            bytes if bytes > MOST_GATHERED => {
                Err(format!("a key of {bytes} bytes in `{whole}`; it may have {MOST_GATHERED}"))
            }
            _ => Ok(parts),
        }
    }

    /// Lowers what is assigned to a variable.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub(crate) fn assign(&mut self, name: &str, value: Argument) -> Result<Assignment, String> {
        let value = self.parts(value)?;
        // Types are found again for each use, so it must not have too many parts.
        if (1..=MOST_TYPED).contains(&value.typed()) {
            self.types.entry(name.to_owned()).or_insert_with(|| Arc::new(value.clone()));
        }
        let at = self.variables.iter().position(|(known, _)| known == name);
        let local = at.and_then(|at| u8::try_from(at).ok()).filter(|local| *local < LOCALS);
        let local = local.ok_or_else(|| format!("`${name}` is one variable too many"))?;
        let mut operand = of_local(local, &value);
        let (_, assigned) = &mut self.variables[usize::from(local)];
        let first = assigned.is_none();
        if let Some(before) = assigned {
            operand.leaving |= before.leaving;
            operand.lasting &= before.lasting;
        }
        *assigned = Some(operand);
        Ok(Assignment { local, value, first })
    }

    /// Lowers the parts of an argument, which itself stays what it is.
    fn parts(&mut self, argument: Argument) -> Result<Argument, String> {
        let mut boxed = |inner: Box<Argument>| self.parts(*inner).map(Box::new);
        Ok(match argument {
            Argument::Value(operand) => match self.at_place(operand) {
                Argument::Member(member) => Argument::Member(self.member(member)?),
                value => value,
            },
            Argument::Unary(unary, inner) => Argument::Unary(unary, boxed(inner)?),
            Argument::Computed(left, operator, right) => {
                Argument::Computed(boxed(left)?, operator, boxed(right)?)
            }
            Argument::Choice(all) => {
                let [condition, one, other] = *all;
                let all = [self.parts(condition)?, self.parts(one)?, self.parts(other)?];
                Argument::Choice(Box::new(all))
            }
            Argument::Same(text, other) => Argument::Same(boxed(text)?, other),
            // The address has to be a value.
            Argument::Text(inner, most) => Argument::Text(Box::new(self.value(*inner)?), most),
            Argument::Symbol(inner) => Argument::Symbol(Box::new(self.value(*inner)?)),
            Argument::Kept(name, key) => {
                let whole = format!("@{name}");
                Argument::Kept(name, self.key(key, true, &whole)?)
            }
            Argument::Variable(name) => {
                let assigned = self.variables.iter().find(|(known, _)| *known == name);
                let operand = assigned.and_then(|(_, operand)| *operand);
                let operand = operand.ok_or_else(|| format!("`${name}` was assigned nothing"))?;
                let assigned = self.types.get(&name).cloned();
                let variable = Box::new(Argument::Variable(name));
                let variable = match assigned {
                    None => variable,
                    assigned => {
                        let (root, hops) = (Root::Variable(variable, assigned), Vec::new());
                        Box::new(Argument::Member(Member { root, hops, want: Want::Number }))
                    }
                };
                Argument::Local(variable, operand)
            }
            Argument::Member(member) => Argument::Member(self.member(member)?),
            Argument::Step(inner, map) => Argument::Step(boxed(inner)?, map),
            Argument::Layout(layout) => {
                Argument::Layout(Box::new(layout.lowered(|value| self.parts(value))?))
            }
            Argument::Elapsed => {
                return Err("`elapsed` can only be printed; write nsecs".to_owned());
            }
            other => other,
        })
    }

    /// Lowers the numbers on the way to a member.
    fn member(&mut self, member: Member) -> Result<Member, String> {
        let root = match member.root {
            Root::Parameter(..) | Root::Given(..) => member.root,
            Root::Cast(name, of) => Root::Cast(name, Box::new(self.parts(*of)?)),
            Root::Computed(of) => {
                let plain =
                    matches!(&*of, Argument::Kept(map, _) if !self.kinds.typed.contains(map));
                if plain && !matches!(member.hops[..], [] | [Hop::Deref, ..]) {
                    return Err(untyped(&of.to_string()));
                }
                Root::Computed(Box::new(self.parts(*of)?))
            }
            Root::Variable(of, _) => {
                let assigned = match &*of {
                    Argument::Variable(name) => self.types.get(name).cloned(),
                    _ => None,
                };
                Root::Variable(Box::new(self.parts(*of)?), assigned)
            }
        };
        let hops = member.hops.into_iter().map(|hop| match hop {
            Hop::Index(index) => self.parts(index).map(Hop::Index),
            hop => Ok(hop),
        });
        Ok(Member { root, hops: hops.collect::<Result<_, String>>()?, want: member.want })
    }

    /// Parses a condition. Also returns the values that it compares.
    ///
    /// # Errors
    /// The part that is not understood.
    pub(crate) fn condition(&mut self, text: &str) -> Result<(Condition, Vec<Operand>), String> {
        let mut operands = Vec::new();
        // What `?` divides is one number.
        let any = match arithmetic::choice(text) {
            Some(_) => vec![vec![text]],
            None => {
                let any = arithmetic::split_at(text, "||").into_iter();
                any.map(|all| arithmetic::split_at(all, "&&")).collect()
            }
        };
        let mut test = |text: &str| {
            let simple = operand::test(text).filter(|(operand, _)| !self.is_given(operand));
            let (operand, test) = match simple {
                Some(test) => test,
                None => self.is_not_0(text)?,
            };
            operands.push(operand);
            Ok::<_, String>(test)
        };
        let all = any.into_iter().map(|all: Vec<&str>| all.into_iter().map(&mut test).collect());
        let condition = all.collect::<Result<Condition, String>>()?;
        Ok((condition, operands))
    }

    /// Parses a number, and returns its value with the test that it is not 0.
    ///
    /// # Errors
    /// The part that is not understood.
    pub(crate) fn is_not_0(&mut self, text: &str) -> Result<(Operand, Test), String> {
        let number = Argument::number(text, text)?;
        let lowered = self.value(number)?;
        let operand = lowered.operand().copied();
        let operand = operand.ok_or_else(|| format!("`{}` is no condition", text.trim()))?;
        Ok((operand, Test { value: operand.value, relation: Relation::Unequal, than: 0 }))
    }
}

/// Returns the value of a local that is assigned this.
fn of_local(local: u8, value: &Argument) -> Operand {
    let read = value.operands();
    let leaving = read.iter().any(|operand| operand.leaving);
    let lasting = read.iter().all(|operand| operand.lasting);
    Operand { leaving, lasting, ..Operand::new(Base::Local(local), Width::Whole) }
}

/// Returns the condition under which both hold.
pub(crate) fn both(one: &Condition, other: &Condition) -> Condition {
    match (&one[..], &other[..]) {
        ([], _) => other.clone(),
        (_, []) => one.clone(),
        _ => {
            let pairs = one.iter().flat_map(|left| other.iter().map(move |right| (left, right)));
            pairs.map(|(left, right)| [&left[..], right].concat()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(body: &str) -> Lowering {
        Lowering::new(body, &MapKinds::default())
    }

    fn lower(text: &str) -> (Argument, Vec<Assignment>) {
        let mut lowering = begin("");
        let argument = Argument::parse(text).unwrap_or_else(|what| panic!("{text}: {what}"));
        let lowered = lowering.value(argument).unwrap_or_else(|what| panic!("{text}: {what}"));
        (lowered, lowering.take())
    }

    #[test]
    fn numbers_become_locals_and_are_shown_as_they_were_written() {
        let (value, assignments) = lower("arg1");
        assert_eq!((value.to_string().as_str(), assignments.len()), ("arg1", 0));
        let (value, assignments) = lower("(nsecs - @start[tid]) / 1000");
        assert_eq!(value.to_string(), "((nsecs - @start[tid]) / 1000)");
        assert_eq!(assignments.len(), 1);
        let operand = value.operand().expect("a local");
        assert_eq!((operand.leaving, operand.lasting), (false, true));
        // The constant of the key and the address of the text come first.
        let (value, assignments) = lower("@x[7, str(arg0 + 8)] + retval");
        assert_eq!(assignments.iter().map(|one| one.local).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(value.operand().expect("a local").leaving);
    }

    #[test]
    fn variables_are_known_once_they_are_assigned() {
        let mut lowering = begin("$a = 1; printf(\"$c\"); $b = $a");
        let read = |name: &str| Argument::parse(name).expect("a variable");
        let what = lowering.value(read("$a")).expect_err("not assigned");
        assert!(what.contains("`$a` was assigned nothing"), "{what}");
        let first = lowering.assign("a", Argument::Number(1)).expect("a local");
        assert_eq!((first.local, first.first), (0, true));
        let again = lowering.assign("a", read("$a + retval")).expect("a local");
        assert_eq!((again.local, again.first), (0, false));
        let second = lowering.assign("b", read("$a")).expect("a local");
        assert_eq!((second.local, second.first), (1, true));
        assert!(second.value.operand().expect("a local").leaving);
        assert!(lowering.assign("c", Argument::Number(1)).is_err());
    }

    #[test]
    fn conditions_are_any_of_all() {
        let mut lowering = begin("");
        let (any, operands) =
            lowering.condition("arg0 == 1 && tid!=0x10 || edi <= -3").expect("understood");
        assert_eq!((any.len(), any[0].len(), any[1].len(), operands.len()), (2, 2, 1, 3));
        assert_eq!(any[1][0].than, -3);
        assert!(lowering.take().is_empty());
        let (any, operands) = lowering
            .condition("comm == \"a || b\" || !@start[tid] && (arg0 || arg1)")
            .expect("understood");
        assert_eq!((any.len(), any[1].len(), operands.len()), (2, 2, 3));
        assert!(
            any.iter().flatten().all(|test| (test.relation, test.than) == (Relation::Unequal, 0))
        );
        assert_eq!(lowering.take().len(), 3);
        for (text, what) in
            [("comm", "no number"), ("a < 1", "unknown value"), ("", "unknown value")]
        {
            let error = lowering.condition(text).expect_err(text);
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn too_many_locals_and_what_can_only_be_printed_are_refused() {
        let mut lowering = begin("");
        let parse = |text: &str| Argument::parse(text).expect("an argument");
        for _ in 0..LOCALS {
            lowering.value(parse("arg0 + 1")).expect("a local");
        }
        assert!(lowering.value(parse("arg0 + 1")).expect_err("full").contains("is too much"));
        lowering.release(0);
        lowering.value(parse("arg0 + 1")).expect("a local");
        let what = lowering.value(parse("elapsed + 1")).expect_err("not in snippets");
        assert!(what.contains("can only be printed"), "{what}");
        let what = lowering.value(parse("@x[1]->a")).expect_err("no type");
        assert!(what.contains("nothing says what type `@x[1]` has"), "{what}");
        let what = lowering.key(vec![parse("func")], true, "@x").expect_err("no key");
        assert!(what.contains("`func` cannot be the key"), "{what}");
    }

    #[test]
    fn conditions_are_combined() {
        let conditions = ["arg0 || arg1", "arg2", "tid == 1 || tid == 2"];
        let [one, inner, other] = conditions.map(|text| {
            begin("").condition(text).map_or_else(|what| panic!("{what}"), |(any, _)| any)
        });
        assert_eq!(both(&Vec::new(), &inner), inner);
        assert_eq!(both(&inner, &Vec::new()), inner);
        let all = both(&one, &other);
        assert_eq!((all.len(), all[3].len()), (4, 2));
    }
}
