//! Knowledge of an interface's protocols beyond its declaration: the protocols that implementations
//! have named, and converters.
//!
//! It is kept under the *name* of the interface, since separately built code has its own copy of
//! everything else.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use refit_change::Way;

use super::exported::Exported;
use super::protocol::{Protocol, ProtocolInfo};
use crate::interface::{Interface, TransferError};

/// Converts state of one protocol to state of another.
pub(crate) type Convert = Arc<dyn Fn(Exported) -> Result<Exported, TransferError> + Send + Sync>;

/// A converter, as an edge between protocols.
#[derive(Clone)]
pub(crate) struct Converter {
    pub(crate) from: Protocol,
    pub(crate) to: Protocol,
    pub(crate) convert: Convert,
}

#[derive(Clone, Default)]
struct InterfaceProtocols {
    named: Vec<ProtocolInfo>,
    converters: Vec<Converter>,
}

/// Protects the protocols and converters. Held for one operation on those of an interface.
static KNOWN: Mutex<Option<HashMap<&'static str, InterfaceProtocols>>> = Mutex::new(None);

fn with<I: Interface, R>(act: impl FnOnce(&mut InterfaceProtocols) -> R) -> R {
    let mut known = KNOWN.lock();
    let interfaces = known.get_or_insert_default();
    act(interfaces.entry(I::info().name).or_default())
}

/// Returns the number of the protocol with this name and type.
pub(crate) fn intern<I: Interface, T>(name: &str, way: Way) -> Result<Protocol, TooManyProtocols> {
    let fingerprint = ProtocolInfo::of::<T>("", way).fingerprint();
    let number = |place: usize| Protocol(Protocol::FIRST_NAMED + u8::try_from(place).unwrap_or(31));
    with::<I, _>(|known| {
        let same = |p: &ProtocolInfo| p.name == name && p.fingerprint() == fingerprint;
        if let Some(place) = known.named.iter().position(same) {
            return Ok(number(place));
        }
        let place = known.named.len();
        if place >= usize::from(64 - Protocol::FIRST_NAMED) {
            let interface = I::info().name;
            return Err(TooManyProtocols { interface, name: name.to_owned() });
        }
        // Leaked once per protocol, which is known as long as the process lives.
        known.named.push(ProtocolInfo::of::<T>(name.to_owned().leak(), way));
        Ok(number(place))
    })
}

/// Returns the description of the protocol with this number.
pub(crate) fn info<I: Interface>(protocol: Protocol) -> ProtocolInfo {
    let number = usize::from(protocol.0);
    let found = match number.checked_sub(usize::from(Protocol::FIRST_NAMED)) {
        Some(place) => with::<I, _>(|known| known.named.get(place).copied()),
        None if number == 0 => Some(ProtocolInfo::of::<I::State>("canonical", Way::Copy)),
        None => I::protocols().get(number - 1).copied(),
    };
    found.unwrap_or(ProtocolInfo::of::<()>("unknown", Way::Copy))
}

/// Adds a converter. It replaces an earlier one for the same two protocols.
pub(crate) fn add_converter<I: Interface>(converter: Converter) {
    with::<I, _>(|known| {
        known.converters.retain(|c| (c.from, c.to) != (converter.from, converter.to));
        known.converters.push(converter);
    });
}

/// Returns all converters of the interface.
pub(crate) fn converters<I: Interface>() -> Vec<Converter> {
    with::<I, _>(|known| known.converters.clone())
}

/// The error that an interface can have no more protocols.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the protocol {name:?} of {interface}: implementations have named 32 others already; declare those that many \
     know in #[interface(protocols(…))]"
)]
pub struct TooManyProtocols {
    /// The interface.
    pub interface: &'static str,
    /// The requested protocol.
    pub name: String,
}
