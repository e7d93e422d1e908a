//! The surroundings of a function: the facts of its module on which its flow depends.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

use super::exits::{self, Exit, exit_of};
use crate::functions::map::Map;
use crate::functions::{Function, FunctionId};
use crate::image::Image;

/// The facts about a module's functions on which the analysis of one of them depends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct World<'a> {
    pub(crate) image: &'a Image,
    /// Functions by ascending entry.
    pub(crate) functions: &'a [Function],
    pub(crate) map: &'a Map,
    /// Whether each function may return to its caller.
    pub(crate) returns: &'a [bool],
    /// Addresses within functions that others jump or call to, ascending.
    pub(crate) inner: &'a [u64],
}

impl<'a> World<'a> {
    pub(crate) fn function(&self, id: FunctionId) -> &'a Function {
        &self.functions[id.0 as usize]
    }

    /// Returns the function whose entry is `address`.
    pub(crate) fn entered_at(&self, address: u64) -> Option<FunctionId> {
        self.map.at(address).filter(|id| self.function(*id).entry == address)
    }

    /// Whether a call may return. Compilers write no code after a call that does not return. So a
    /// call does not return if its callee is known not to, or if it is at the end of a function and
    /// only padding follows.
    pub(crate) fn comes_back(&self, call: &Instruction) -> bool {
        let may = match exit_of(call) {
            Exit::Call(target) => {
                self.entered_at(target).is_none_or(|id| self.returns[id.0 as usize])
            }
            _ => !exits::import(self.image, call).is_some_and(exits::never_returns),
        };
        may && !self.is_filling(call.next_ip())
    }

    /// Whether the bytes at `address` belong to no function and do nothing.
    fn is_filling(&self, address: u64) -> bool {
        if self.map.at(address).is_some() || self.image.code_at(address).is_none() {
            return false;
        }
        let Some(bytes) = self.image.bytes_from(address) else { return false };
        let bytes = &bytes[..bytes.len().min(16)];
        let first = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        matches!(first.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
    }

    /// Returns the entries of `function` beside its own.
    pub(crate) fn inner_of(&self, function: &Function) -> impl Iterator<Item = u64> + use<'a> {
        let inner = self.inner;
        let ranges = function.ranges.clone();
        ranges.into_iter().flat_map(move |range| {
            let first = inner.partition_point(|a| *a < range.start);
            let last = inner.partition_point(|a| *a < range.end);
            // The list may come from a cache, and so have any content.
            inner.get(first..last).unwrap_or_default().iter().copied()
        })
    }
}
