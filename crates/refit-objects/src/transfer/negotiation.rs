//! The negotiation of a route between two roots, with its reasons.

use std::panic::{AssertUnwindSafe, catch_unwind};

use refit_change::{Negotiation, Ranked, Transferred, Way};

use super::choice::choose;
use super::known::{self, Convert};
use super::protocol::{Protocol, Protocols};
use crate::interface::{Interface, Root};

/// The route of a transfer, ready for use.
pub(crate) struct Route {
    /// The protocol to export in, then those to convert to. At least one.
    pub(crate) protocols: Vec<Protocol>,
    /// The converters, one fewer.
    pub(crate) converters: Vec<Convert>,
    pub(crate) way: Way,
    /// More than one only for a partitioned protocol.
    pub(crate) parts: usize,
}

/// The error that two implementations have no way to transfer state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "state cannot be transferred from {from} to {to}: {}; add a protocol of one to the other, or register a converter",
    negotiation.why
)]
pub struct NoCommonProtocol {
    /// The old implementation.
    pub from: String,
    /// The new implementation.
    pub to: String,
    /// The protocols that each of them knows.
    pub negotiation: Box<Negotiation>,
}

impl NoCommonProtocol {
    /// Returns the part of the report of the refused change.
    pub(crate) fn as_transfer(&self) -> Transferred {
        let negotiation = Some((*self.negotiation).clone());
        Transferred { negotiation, ..Transferred::default() }
    }
}

/// Returns the route on which two roots would agree. Both lists are queried again, since a root's
/// abilities may depend on its state.
///
/// # Errors
/// There is no common protocol, and no chain of converters.
pub fn negotiate<I: Interface>(
    from: &dyn Root<I>,
    to: &dyn Root<I>,
) -> Result<Negotiation, NoCommonProtocol> {
    let sides = Sides::of(from, to, None);
    match sides.route() {
        Some(route) => Ok(sides.explained(&route.protocols)),
        None => Err(sides.nothing()),
    }
}

/// The abilities of both sides. Kept from the choice to its explanation, which must refer to the
/// same.
pub(crate) struct Sides<'a, I: Interface> {
    from: &'a dyn Root<I>,
    to: &'a dyn Root<I>,
    exports: Protocols,
    imports: Protocols,
    only: Option<&'a str>,
}

impl<'a, I: Interface> Sides<'a, I> {
    /// Queries both sides. `only`: the requester wants the protocol of this name and no other.
    pub(crate) fn of(from: &'a dyn Root<I>, to: &'a dyn Root<I>, only: Option<&'a str>) -> Self {
        // A root that panics in the query knows nothing.
        let ask = |list: &dyn Fn() -> Protocols| {
            catch_unwind(AssertUnwindSafe(list)).unwrap_or_else(|_| Protocols::only([]))
        };
        let (exports, imports) = (ask(&|| from.export_protocols()), ask(&|| to.import_protocols()));
        Sides { from, to, exports, imports, only }
    }

    /// Returns the best route there is.
    pub(crate) fn route(&self) -> Option<Route> {
        let all = if self.only.is_some() { Vec::new() } else { known::converters::<I>() };
        let edges: Vec<_> = all.iter().map(|c| (c.from, c.to)).collect();
        let common = self.exports.bits() & self.imports.bits();
        let unwanted = |p| self.only.is_some_and(|only| known::info::<I>(p).name != only);
        let misfit =
            |p: &Protocol| p.bit() & common != 0 && (unwanted(*p) || self.misfit(*p).is_some());
        let misfits = self.exports.iter().filter(misfit).fold(0, |bits, p| bits | p.bit());
        let protocols = choose(&self.exports, &self.imports, !misfits, &edges)?;
        let converter = |pair: &[Protocol]| {
            let found = all.iter().find(|c| [c.from, c.to] == *pair)?;
            Some(found.convert.clone())
        };
        let converters = protocols.windows(2).filter_map(converter).collect();
        let way = known::info::<I>(protocols[0]).way;
        let parts = if way == Way::Partitioned { self.parts(protocols[0]).0 } else { 1 };
        Some(Route { protocols, converters, way, parts })
    }

    /// Returns the number of partitions on both sides.
    fn parts(&self, protocol: Protocol) -> (usize, usize) {
        let ask = |root: &dyn Root<I>| {
            catch_unwind(AssertUnwindSafe(|| root.partitions(protocol))).unwrap_or(0)
        };
        (ask(self.from), ask(self.to))
    }

    /// Returns why a common protocol cannot be used after all.
    fn misfit(&self, protocol: Protocol) -> Option<String> {
        let info = known::info::<I>(protocol);
        if info.way != Way::Partitioned {
            return None;
        }
        let (from, to) = self.parts(protocol);
        let name = info.name;
        (from != to || from == 0).then(|| {
            format!(
                "`{name}` needs the same partitions on both sides, the old has {from}, the new {to}"
            )
        })
    }

    /// Returns a route with its reasons; for an empty one, why there is none.
    pub(crate) fn explained(&self, route: &[Protocol]) -> Negotiation {
        let mut names = route.iter().map(|p| name::<I>(*p));
        Negotiation {
            from: ranked::<I>(&self.exports),
            to: ranked::<I>(&self.imports),
            chosen: names.next(),
            via: names.collect(),
            why: self.why(route),
        }
    }

    /// Returns the error that there is no route.
    pub(crate) fn nothing(&self) -> NoCommonProtocol {
        let (from, to) = (self.from.implementation().into(), self.to.implementation().into());
        NoCommonProtocol { from, to, negotiation: Box::new(self.explained(&[])) }
    }

    fn why(&self, route: &[Protocol]) -> String {
        let (Some(first), Some(last)) = (route.first(), route.last()) else {
            return self.why_none();
        };
        let common = self.exports.bits() & self.imports.bits();
        let place = |list: &Protocols, p| list.rank(p).map_or(0, |rank| rank + 1);
        if route.len() == 1 {
            let (from, to) = (self.exports.among(common), self.imports.among(common));
            if self.only.is_some() {
                return "it was asked for".to_owned();
            }
            let count = common.count_ones();
            let (from, to) = (place(&from, *first), place(&to, *first));
            let mut why = match count {
                1 => "the only one that both know".to_owned(),
                _ => format!(
                    "of {count} that both know, number {from} for the old and {to} for the new: the least sum"
                ),
            };
            for misfit in self.exports.iter().filter(|p| p.bit() & common != 0) {
                if let Some(reason) = self.misfit(misfit) {
                    why = format!("{why}; {reason}");
                }
            }
            return why;
        }
        let hops = route.len() - 1;
        let (from, to) = (place(&self.exports, *first), place(&self.imports, *last));
        let instead = match common {
            0 => "they have none in common",
            _ => "both like it better than what they have in common",
        };
        format!("{hops} conversions, number {from} for the old and {to} for the new: {instead}")
    }

    fn why_none(&self) -> String {
        let list = |protocols: &Protocols| {
            let names: Vec<_> = protocols.iter().map(name::<I>).collect();
            if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
        };
        let (exports, imports) = (list(&self.exports), list(&self.imports));
        let mut why = format!("the old can export {exports}; the new can import {imports}");
        if let Some(only) = self.only {
            why = format!("{why}; `{only}` was asked for");
        }
        for protocol in self.exports.iter() {
            if self.imports.rank(protocol).is_some() {
                if let Some(reason) = self.misfit(protocol) {
                    why = format!("{why}; {reason}");
                }
                continue;
            }
            let old = known::info::<I>(protocol);
            let same_name = |p: &Protocol| known::info::<I>(*p).name == old.name;
            if let Some(namesake) = self.imports.iter().find(same_name) {
                let (here, there) = (old.type_name(), known::info::<I>(namesake).type_name());
                let name = old.name;
                why = format!("{why}; `{name}` is {here} for the one and {there} for the other");
            }
        }
        why
    }
}

pub(crate) fn name<I: Interface>(protocol: Protocol) -> String {
    known::info::<I>(protocol).name.to_owned()
}

fn ranked<I: Interface>(protocols: &Protocols) -> Vec<Ranked> {
    let entry = |(rank, protocol): (u32, Protocol)| {
        let info = known::info::<I>(protocol);
        Ranked { name: info.name.to_owned(), rank, way: info.way }
    };
    (1..).zip(protocols.iter()).map(entry).collect()
}
