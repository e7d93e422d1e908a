//! A module: one file and everything that is known of its code.

use std::path::Path;

use crate::flow::Flow;
use crate::functions::{Function, FunctionId};
use crate::image::{Image, OpenError};

/// One ELF file and what its code does.
#[derive(Debug)]
pub struct Module {
    image: Image,
    functions: Vec<Function>,
}

impl Module {
    /// Reads and analyses the file at `path`, or takes the analysis from the cache.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or is not for x86-64.
    pub fn open(_path: impl AsRef<Path>) -> Result<Self, OpenError> {
        unimplemented!("skeleton")
    }

    /// The file.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// All functions by ascending entry; a [`FunctionId`] is an index.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The function of this number.
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id.0 as usize]
    }

    /// Functions that `wanted` names: a pattern over names (`*` and `?`), or an address (`0x1234`) within a function.
    pub fn find(&self, _wanted: &str) -> Vec<FunctionId> {
        unimplemented!("skeleton")
    }

    /// The function that the byte at `address` belongs to.
    pub fn function_at(&self, _address: u64) -> Option<FunctionId> {
        unimplemented!("skeleton")
    }

    /// Names of functions that are much like `name`, the nearest first, ten at most.
    pub fn near(&self, _name: &str) -> Vec<String> {
        unimplemented!("skeleton")
    }

    /// Control flow and live registers of a function.
    pub fn flow(&self, _id: FunctionId) -> Flow {
        unimplemented!("skeleton")
    }

    /// Whether all jumps of a function were understood; see [`Flow::targets_known`].
    pub fn jump_targets_known(&self, id: FunctionId) -> bool {
        self.flow(id).targets_known()
    }

    /// `length` bytes at `address`, as they are in the file; none if they are not all in it.
    pub fn bytes(&self, _address: u64, _length: usize) -> Option<&[u8]> {
        unimplemented!("skeleton")
    }
}
