//! Converters between protocols, registered by implementations.

use std::sync::Arc;

use refit_change::Way;

use super::exported::Exported;
use super::known::{Convert, Converter, add_converter, info};
use super::typed::Typed;
use crate::interface::{Interface, TransferError};

/// Registers a converter, by which roots that have no protocol in common can be swapped
/// nevertheless. It replaces an earlier one for the same two protocols.
///
/// # Errors
/// One of the protocols is partitioned, and parts are not converted.
pub fn register_converter<I: Interface, A: Send + 'static, B: Send + 'static>(
    from: Typed<I, A>,
    to: Typed<I, B>,
    convert: impl Fn(A) -> Result<B, TransferError> + Send + Sync + 'static,
) -> Result<(), NotConvertible> {
    for protocol in [from.id(), to.id()] {
        let info = info::<I>(protocol);
        if info.way == Way::Partitioned {
            return Err(NotConvertible { protocol: info.name });
        }
    }
    let convert: Convert = Arc::new(move |exported: Exported| {
        let Exported { items, bytes, complete, .. } = exported;
        let mut packed = to.pack(convert(from.unpack(exported)?)?);
        (packed.items, packed.bytes, packed.complete) = (items, bytes, complete);
        Ok(packed)
    });
    let (from, to) = (from.id(), to.id());
    add_converter::<I>(Converter { from, to, convert });
    Ok(())
}

/// The error that a partitioned protocol cannot be one end of a converter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a converter of the protocol {protocol:?}: the protocol transfers state in partitions; declare one that copies state for conversions"
)]
pub struct NotConvertible {
    /// The name of the protocol.
    pub protocol: &'static str,
}
