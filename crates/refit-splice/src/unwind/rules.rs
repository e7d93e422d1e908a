//! The unwinding rules of generated code: those of the original instruction, with the program's
//! values where the code keeps them.

use std::collections::BTreeMap;
use std::ops::Range;

use refit_analysis::image::expression::rewrite;
use refit_analysis::image::procedure::{Cfa, RETURN_ADDRESS, Row, Rule, STACK_POINTER};
use refit_analysis::registers::{DWARF, from_dwarf};

use super::bytes::{signed, unsigned};
use crate::listing::{Home, Values};

/// Operations of DWARF expressions (DWARF 5 §7.7.1).
mod operation {
    pub(super) const DEREF: u8 = 0x06;
    pub(super) const CONST8U: u8 = 0x0e;
    pub(super) const CONSTS: u8 = 0x11;
    pub(super) const PLUS: u8 = 0x22;
    pub(super) const BREG0: u8 = 0x70;
}

/// Unwinding rules at an instruction of generated code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) cfa: Cfa,
    pub(super) rules: BTreeMap<u16, Rule>,
    pub(super) arguments: u64,
}

/// A piece of code at which one frame holds, and that stands for one instruction.
pub(super) struct Piece {
    pub(super) range: Range<u64>,
    /// Address of the original instruction; `None` if it stands for the first of a called function.
    pub(super) original: Option<u64>,
    pub(super) rules: Rules,
}

impl Rules {
    /// Returns the rules at the first instruction of a called function.
    pub(super) fn at_entry() -> Self {
        let Row { cfa, rules, arguments } = Row::at_entry();
        Self { cfa, rules: rules.into_iter().collect(), arguments }
    }

    /// Returns the rules of code that runs in place of the instruction at `original`, whose rules
    /// are `row`, while the program's values are at `values`. `None` if they cannot be expressed.
    pub(super) fn new(row: &Row, original: u64, values: &Values) -> Option<Self> {
        let moved = Moved { original, values };
        let mut rules = BTreeMap::new();
        for (register, rule) in &row.rules {
            rules.insert(*register, moved.rule(rule)?);
        }
        // The caller's value of a register without a rule is the program's value of it.
        for (register, home) in (0..).zip(values.homes) {
            let rule = match home {
                Home::Same => continue,
                Home::Register(other) => Rule::Register(number(other)),
                Home::Stack(below) => Rule::Expression(sum(STACK_POINTER, moved.above(below))),
            };
            rules.entry(number(register)).or_insert(rule);
        }
        Some(Self { cfa: moved.cfa(&row.cfa)?, rules, arguments: row.arguments })
    }
}

/// Values of the program that generated code has moved.
struct Moved<'v> {
    original: u64,
    values: &'v Values,
}

impl Moved<'_> {
    fn cfa(&self, cfa: &Cfa) -> Option<Cfa> {
        Some(match cfa {
            Cfa::Register(STACK_POINTER, offset) => {
                Cfa::Register(STACK_POINTER, offset.checked_add(self.values.depth)?)
            }
            Cfa::Register(register, offset) => match self.home(*register) {
                Home::Same => Cfa::Register(*register, *offset),
                Home::Register(other) => Cfa::Register(number(other), *offset),
                Home::Stack(_) => Cfa::Expression(self.place(*register, *offset)?),
            },
            Cfa::Expression(expression) => Cfa::Expression(self.expression(expression)?),
        })
    }

    fn rule(&self, rule: &Rule) -> Option<Rule> {
        Some(match rule {
            Rule::Undefined | Rule::Offset(_) | Rule::ValueOffset(_) => rule.clone(),
            Rule::Register(register) => match self.place(*register, 0) {
                None => Rule::Register(*register),
                Some(value) => Rule::ValueExpression(value),
            },
            Rule::Expression(expression) => Rule::Expression(self.expression(expression)?),
            Rule::ValueExpression(expression) => {
                Rule::ValueExpression(self.expression(expression)?)
            }
        })
    }

    fn expression(&self, expression: &[u8]) -> Option<Vec<u8>> {
        rewrite(expression, |register, offset| self.place(register, offset))
    }

    /// Returns an expression for the program's value of a register plus an offset; `None` if the
    /// register itself has the value.
    fn place(&self, register: u16, offset: i64) -> Option<Vec<u8>> {
        match register {
            RETURN_ADDRESS => {
                let value = self.original.wrapping_add_signed(offset).to_le_bytes();
                Some([&[operation::CONST8U][..], &value].concat())
            }
            STACK_POINTER if self.values.depth == 0 => None,
            STACK_POINTER => Some(sum(STACK_POINTER, offset + self.values.depth)),
            _ => match self.home(register) {
                Home::Same => None,
                Home::Register(other) => Some(sum(number(other), offset)),
                Home::Stack(below) => {
                    let mut bytes = sum(STACK_POINTER, self.above(below));
                    bytes.push(operation::DEREF);
                    bytes.push(operation::CONSTS);
                    signed(&mut bytes, offset);
                    bytes.push(operation::PLUS);
                    Some(bytes)
                }
            },
        }
    }

    /// Returns the home of a general register; other registers stay where they are.
    fn home(&self, register: u16) -> Home {
        let general = from_dwarf(register);
        general.map_or(Home::Same, |general| self.values.homes[usize::from(general)])
    }

    /// Returns the distance above the stack pointer of a place `below` the program's.
    fn above(&self, below: i16) -> i64 {
        self.values.depth - i64::from(below)
    }
}

fn number(register: u8) -> u16 {
    DWARF[usize::from(register)]
}

/// Returns the expression of a register's value plus an offset.
fn sum(register: u16, offset: i64) -> Vec<u8> {
    // General registers have numbers below 32, and so an operation of their own.
    let mut bytes = vec![operation::BREG0 + register as u8];
    signed(&mut bytes, offset);
    bytes
}

/// Appends the instructions that turn the rules `from` into `to` (DWARF 5 §7.24). Offsets from the
/// canonical frame address have a data alignment of -1.
pub(super) fn change(to: &mut Vec<u8>, from: &Rules, rules: &Rules) {
    if from.cfa != rules.cfa {
        change_cfa(to, &from.cfa, &rules.cfa);
    }
    if from.arguments != rules.arguments {
        to.push(call_frame::GNU_ARGS_SIZE);
        unsigned(to, rules.arguments);
    }
    for register in from.rules.keys().chain(rules.rules.keys()) {
        let (before, now) = (from.rules.get(register), rules.rules.get(register));
        match now {
            _ if before == now => {}
            Some(rule) => set(to, *register, rule),
            None => {
                to.push(call_frame::SAME_VALUE);
                unsigned(to, u64::from(*register));
            }
        }
    }
}

/// Call frame instructions.
pub(super) mod call_frame {
    pub(in super::super) const ADVANCE: u8 = 0x40;
    pub(in super::super) const OFFSET: u8 = 0x80;
    pub(in super::super) const ADVANCE_1: u8 = 0x02;
    pub(in super::super) const ADVANCE_2: u8 = 0x03;
    pub(in super::super) const ADVANCE_4: u8 = 0x04;
    pub(in super::super) const UNDEFINED: u8 = 0x07;
    pub(in super::super) const SAME_VALUE: u8 = 0x08;
    pub(in super::super) const REGISTER: u8 = 0x09;
    pub(in super::super) const DEF_CFA: u8 = 0x0c;
    pub(in super::super) const DEF_CFA_REGISTER: u8 = 0x0d;
    pub(in super::super) const DEF_CFA_OFFSET: u8 = 0x0e;
    pub(in super::super) const DEF_CFA_EXPRESSION: u8 = 0x0f;
    pub(in super::super) const EXPRESSION: u8 = 0x10;
    pub(in super::super) const OFFSET_SIGNED: u8 = 0x11;
    pub(in super::super) const DEF_CFA_SIGNED: u8 = 0x12;
    pub(in super::super) const VALUE_OFFSET_SIGNED: u8 = 0x15;
    pub(in super::super) const VALUE_EXPRESSION: u8 = 0x16;
    pub(in super::super) const GNU_ARGS_SIZE: u8 = 0x2e;
}

fn change_cfa(to: &mut Vec<u8>, from: &Cfa, cfa: &Cfa) {
    match (from, cfa) {
        (Cfa::Register(before, _), Cfa::Register(register, offset))
            if before == register && *offset >= 0 =>
        {
            to.push(call_frame::DEF_CFA_OFFSET);
            unsigned(to, offset.unsigned_abs());
        }
        (Cfa::Register(_, before), Cfa::Register(register, offset)) if before == offset => {
            to.push(call_frame::DEF_CFA_REGISTER);
            unsigned(to, u64::from(*register));
        }
        (_, Cfa::Register(register, offset)) => {
            let negative = *offset < 0;
            to.push(if negative { call_frame::DEF_CFA_SIGNED } else { call_frame::DEF_CFA });
            unsigned(to, u64::from(*register));
            if negative { signed(to, -offset) } else { unsigned(to, offset.unsigned_abs()) }
        }
        (_, Cfa::Expression(expression)) => {
            to.push(call_frame::DEF_CFA_EXPRESSION);
            block(to, expression);
        }
    }
}

fn set(to: &mut Vec<u8>, register: u16, rule: &Rule) {
    let mut begin = |operation: u8| {
        to.push(operation);
        unsigned(to, u64::from(register));
    };
    match rule {
        Rule::Offset(offset) if *offset <= 0 && register < 64 => {
            to.push(call_frame::OFFSET | register as u8);
            unsigned(to, offset.unsigned_abs());
        }
        Rule::Undefined => begin(call_frame::UNDEFINED),
        Rule::Offset(offset) => {
            begin(call_frame::OFFSET_SIGNED);
            signed(to, -offset);
        }
        Rule::ValueOffset(offset) => {
            begin(call_frame::VALUE_OFFSET_SIGNED);
            signed(to, -offset);
        }
        Rule::Register(other) => {
            begin(call_frame::REGISTER);
            unsigned(to, u64::from(*other));
        }
        Rule::Expression(expression) => {
            begin(call_frame::EXPRESSION);
            block(to, expression);
        }
        Rule::ValueExpression(expression) => {
            begin(call_frame::VALUE_EXPRESSION);
            block(to, expression);
        }
    }
}

fn block(to: &mut Vec<u8>, expression: &[u8]) {
    unsigned(to, expression.len() as u64);
    to.extend_from_slice(expression);
}
