//! The auxiliary vector of a program: the values that the kernel passes to it at its start, read by
//! getauxval(3).
//!
//! The vector is a list of pairs of words, each a type (`AT_*`) and a value. The program finds it
//! on its stack, above its arguments and environment. The kernel keeps a copy, which it shows in
//! `/proc/PID/auxv` and never uses itself. So a tracer can change what the program sees while the
//! program is stopped before its first instruction ([`crate::launch::at_exec`]). A program ignores
//! a pair whose type is `AT_IGNORE`. Without `AT_SYSINFO_EHDR`, for example, it finds no vDSO, and
//! reads the time by system calls.

use std::io;

use crate::foreign::{AccessError, Memory};
use crate::memory::PAGE_SIZE_U64;

/// Bytes of a word.
const WORD: u64 = 8;
/// An upper bound of the bytes that arguments and environment take: pointers that fill a quarter of
/// the largest stack would be more.
const MAX_BYTES: u64 = 1 << 24;

/// Returns the vector of a process, as the kernel keeps it: type and value of each pair, without
/// the terminator.
///
/// # Errors
/// `ENOENT`: no such process. `EACCES`, `EPERM`: the caller may not trace it.
pub fn of(process: u32) -> io::Result<Vec<(u64, u64)>> {
    let bytes = std::fs::read(format!("/proc/{process}/auxv"))?;
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    let pairs = bytes.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
    Ok(pairs.take_while(|&(kind, _)| kind != libc::AT_NULL).collect())
}

/// The vector on the stack of a program that has not yet run its first instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnStack {
    /// The address of the first pair.
    pub address: u64,
    /// Type and value of each pair, without the terminator.
    pub pairs: Vec<(u64, u64)>,
}

impl OnStack {
    /// Finds the vector. `stack` is the stack pointer at the first instruction. It points to the
    /// number of arguments, followed by the arguments and the environment, each terminated by a
    /// zero word, and then the vector.
    ///
    /// # Errors
    /// [`AccessError`]; `EINVAL`: there is no such vector.
    pub fn find(memory: &Memory, stack: u64) -> Result<Self, AccessError> {
        let mut words = Words { memory, address: stack, read: Vec::new(), first: stack };
        let arguments = words.next()?;
        for _ in 0..arguments {
            words.next()?;
        }
        if words.next()? != 0 {
            return Err(none());
        }
        while words.next()? != 0 {}
        let address = words.address;
        let mut pairs = Vec::new();
        loop {
            let pair = (words.next()?, words.next()?);
            if pair.0 == libc::AT_NULL {
                return Ok(Self { address, pairs });
            }
            pairs.push(pair);
        }
    }

    /// Returns the value of a type.
    pub fn value(&self, kind: u64) -> Option<u64> {
        self.pairs.iter().find(|pair| pair.0 == kind).map(|pair| pair.1)
    }

    /// Replaces the first pair of this type by another pair. Returns whether there was one.
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn replace(
        &mut self,
        memory: &Memory,
        kind: u64,
        with: (u64, u64),
    ) -> Result<bool, AccessError> {
        let Some(at) = self.pairs.iter().position(|pair| pair.0 == kind) else {
            return Ok(false);
        };
        let bytes = [with.0.to_ne_bytes(), with.1.to_ne_bytes()].concat();
        memory.write(self.address + 2 * WORD * at as u64, &bytes)?;
        self.pairs[at] = with;
        Ok(true)
    }

    /// Changes the pair of a type to one that the program ignores. Returns whether there was one.
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn hide(&mut self, memory: &Memory, kind: u64) -> Result<bool, AccessError> {
        let value = self.value(kind).unwrap_or(0);
        self.replace(memory, kind, (libc::AT_IGNORE, value))
    }
}

/// An iterator over the words of another process's memory.
struct Words<'a> {
    memory: &'a Memory,
    /// The address of the next word.
    address: u64,
    /// Words that are already read, in reverse order: the next one is the last.
    read: Vec<u64>,
    first: u64,
}

impl Words<'_> {
    fn next(&mut self) -> Result<u64, AccessError> {
        if self.address - self.first > MAX_BYTES {
            return Err(none());
        }
        if self.read.is_empty() {
            // Each read ends at a page boundary, so that it touches no page that is not needed.
            let length = PAGE_SIZE_U64 - self.address % PAGE_SIZE_U64;
            let mut bytes = vec![0; length as usize];
            self.memory.read(self.address, &mut bytes)?;
            let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
            self.read = bytes.chunks_exact(WORD as usize).rev().map(word).collect();
        }
        self.address += WORD;
        // A stack pointer is aligned to words, so a read yields at least one; with any other
        // `stack` there may be none.
        self.read.pop().ok_or_else(none)
    }
}

fn none() -> AccessError {
    AccessError::System(io::Error::from_raw_os_error(libc::EINVAL))
}
