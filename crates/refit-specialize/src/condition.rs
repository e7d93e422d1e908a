//! Conditions of branches, by the flags that are known.

use iced_x86::ConditionCode;
use refit_analysis::live::flag;

use crate::state::State;

/// Whether a condition holds, if the flags tell.
pub fn holds(condition: ConditionCode, state: &State) -> Option<bool> {
    use ConditionCode as C;
    let flag = |one| state.flag(one);
    let either = |one: Option<bool>, other: Option<bool>| match (one, other) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    };
    let less = || flag(flag::SIGN).zip(flag(flag::OVERFLOW)).map(|(sign, over)| sign != over);
    let not = |known: Option<bool>| known.map(|one| !one);
    match condition {
        C::None => None,
        C::o => flag(flag::OVERFLOW),
        C::no => not(flag(flag::OVERFLOW)),
        C::b => flag(flag::CARRY),
        C::ae => not(flag(flag::CARRY)),
        C::e => flag(flag::ZERO),
        C::ne => not(flag(flag::ZERO)),
        C::be => either(flag(flag::CARRY), flag(flag::ZERO)),
        C::a => not(either(flag(flag::CARRY), flag(flag::ZERO))),
        C::s => flag(flag::SIGN),
        C::ns => not(flag(flag::SIGN)),
        C::p => flag(flag::PARITY),
        C::np => not(flag(flag::PARITY)),
        C::l => less(),
        C::ge => not(less()),
        C::le => either(flag(flag::ZERO), less()),
        C::g => not(either(flag(flag::ZERO), less())),
    }
}
