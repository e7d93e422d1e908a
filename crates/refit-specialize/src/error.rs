//! Why a function has no version.

/// Why no version of a function can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoVersion {
    /// Not all of its control flow is understood.
    #[error("it cannot be copied: not all its jumps are understood, or it follows no convention")]
    Uncopied,
    /// The function calls one to which the address of its caller matters.
    #[error("it calls a function to which the address of its caller matters, such as setjmp")]
    Callers,
    /// The function has too many instructions.
    #[error(
        "it has {instructions} instructions; versions are made of functions with at most {most}"
    )]
    Large {
        /// Their number.
        instructions: usize,
        /// The greatest number.
        most: usize,
    },
    /// An instruction is not in the file.
    #[error("the instruction at {address:#x} is not in the file")]
    NoCode {
        /// Its address.
        address: u64,
    },
    /// The tests would destroy something that the function reads.
    #[error(
        "it, or its caller, reads flags or register r11 that the test of the value changes at its entry"
    )]
    Entry,
    /// The version does not have the state of the function where it should.
    #[error("the version for {value:#x} would differ from the function at {address:#x}")]
    Inexact {
        /// The value.
        value: u64,
        /// The address.
        address: u64,
    },
    /// Nothing can be computed in advance.
    #[error("knowing the value makes no instruction of it unnecessary")]
    Nothing,
}
