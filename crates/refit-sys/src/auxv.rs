//! What the kernel tells a program that starts: its auxiliary vector, getauxval(3).
//!
//! Pairs of words, a kind and a value each (`AT_*`). The program finds them on its stack, above its arguments and environment;
//! the kernel keeps a copy, which it shows in `/proc/PID/auxv` and never reads. A program that stands before its first
//! instruction ([`crate::launch::at_exec`]) can be told something else: a pair whose kind is made `AT_IGNORE` is not there
//! for it. Without `AT_SYSINFO_EHDR` it finds no vDSO, and makes system calls where that would have told the time.

use std::io;

use crate::foreign::{Memory, Refused};

/// Bytes of a word.
const WORD: u64 = 8;
/// Bytes that are read at once; what is read ends where such a piece ends, so that no page is touched that is not needed.
const PIECE: u64 = 4096;
/// What arguments and environment hold at most: pointers for a quarter of the largest stack would be more than that.
const MOST: u64 = 1 << 24;

/// The vector of a process, as the kernel keeps it: kind and value, without the end.
///
/// # Errors
/// `ENOENT`: no such process. `EACCES`, `EPERM`: the caller may not trace it.
pub fn of(process: u32) -> io::Result<Vec<(u64, u64)>> {
    let bytes = std::fs::read(format!("/proc/{process}/auxv"))?;
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    let pairs = bytes.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
    Ok(pairs.take_while(|&(kind, _)| kind != libc::AT_NULL).collect())
}

/// The vector on the stack of a program that has not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnStack {
    /// Where its first pair is.
    pub address: u64,
    /// Kind and value, without the end.
    pub pairs: Vec<(u64, u64)>,
}

impl OnStack {
    /// Finds it: `stack` is the stack pointer at the first instruction, where the number of arguments is, then the arguments,
    /// the environment, each with a zero behind it, and then the vector.
    ///
    /// # Errors
    /// [`Refused`]; `EINVAL`: no such thing is there.
    pub fn find(memory: &Memory, stack: u64) -> Result<Self, Refused> {
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

    /// The value of a kind.
    pub fn value(&self, kind: u64) -> Option<u64> {
        self.pairs.iter().find(|pair| pair.0 == kind).map(|pair| pair.1)
    }

    /// Puts another pair in the place of the first of this kind; whether there is one.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn replace(
        &mut self,
        memory: &Memory,
        kind: u64,
        with: (u64, u64),
    ) -> Result<bool, Refused> {
        let Some(at) = self.pairs.iter().position(|pair| pair.0 == kind) else {
            return Ok(false);
        };
        let bytes = [with.0.to_ne_bytes(), with.1.to_ne_bytes()].concat();
        memory.write(self.address + 2 * WORD * at as u64, &bytes)?;
        self.pairs[at] = with;
        Ok(true)
    }

    /// Makes a kind something that the program ignores; whether there is one.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn hide(&mut self, memory: &Memory, kind: u64) -> Result<bool, Refused> {
        let value = self.value(kind).unwrap_or(0);
        self.replace(memory, kind, (libc::AT_IGNORE, value))
    }
}

/// Words of another process, one after the other.
struct Words<'a> {
    memory: &'a Memory,
    /// The next one's.
    address: u64,
    /// What is read already from there on, the next one at the end.
    read: Vec<u64>,
    first: u64,
}

impl Words<'_> {
    fn next(&mut self) -> Result<u64, Refused> {
        if self.address - self.first > MOST {
            return Err(none());
        }
        if self.read.is_empty() {
            let mut bytes = vec![0; (PIECE - self.address % PIECE) as usize];
            self.memory.read(self.address, &mut bytes)?;
            let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
            self.read = bytes.chunks_exact(WORD as usize).rev().map(word).collect();
        }
        self.address += WORD;
        // A stack pointer is aligned: a piece holds a word at least, or none that it could be.
        self.read.pop().ok_or_else(none)
    }
}

fn none() -> Refused {
    Refused::System(io::Error::from_raw_os_error(libc::EINVAL))
}
