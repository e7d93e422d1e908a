//! The bytes of a program's code that are not those of its file.

use std::io;
use std::ops::Range;

use crate::process::Program;
use crate::why::Why;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 16;

/// The addresses of bytes of a program's code that are not those of its file, ascending: probes,
/// knobs that are set, and what other tools have changed.
#[derive(Clone, Debug, Default)]
pub struct Changed(Vec<u64>);

impl Changed {
    /// Compares the program with the code of a file, given with the addresses at which the program
    /// has it, ascending.
    ///
    /// # Errors
    /// [`Why::Changed`]: the program does not have code there.
    pub fn new<'c>(
        program: &Program,
        code: impl IntoIterator<Item = (u64, &'c [u8])>,
    ) -> Result<Self, Why> {
        Self::compare(|address, into| program.read(address, into), code)
    }

    fn compare<'c>(
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
        code: impl IntoIterator<Item = (u64, &'c [u8])>,
    ) -> Result<Self, Why> {
        let mut changed = Vec::new();
        let mut now = vec![0; CHUNK];
        for (begin, bytes) in code {
            for (address, then) in (begin..).step_by(CHUNK).zip(bytes.chunks(CHUNK)) {
                let now = &mut now[..then.len()];
                read(address, now).map_err(|_| Why::Changed { address })?;
                if now != then {
                    let differs =
                        |(at, (now, then)): (u64, (&u8, &u8))| (now != then).then_some(at);
                    changed.extend((address..).zip(now.iter().zip(then)).filter_map(differs));
                }
            }
        }
        Ok(Self(changed))
    }

    /// Whether one of them is in a range.
    pub fn is_within(&self, range: &Range<u64>) -> bool {
        let at = self.0.partition_point(|&address| address < range.start);
        self.0.get(at).is_some_and(|address| range.contains(address))
    }

    /// Returns the addresses.
    pub fn addresses(&self) -> &[u64] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_differ_are_found_in_the_ranges_that_have_them() {
        let text = vec![7_u8; 3 * CHUNK + 5];
        let mut file = text.clone();
        for at in [0, CHUNK - 1, CHUNK, 3 * CHUNK + 4] {
            file[at] = 8;
        }
        let chunk = CHUNK as u64;
        let begin = 10 * chunk + 3;
        let read = |address: u64, into: &mut [u8]| {
            let at = usize::try_from(address - begin).map_err(io::Error::other)?;
            let bytes = text.get(at..at + into.len()).ok_or(io::ErrorKind::NotFound)?;
            into.copy_from_slice(bytes);
            Ok(())
        };
        let changed = Changed::compare(read, [(begin, &file[..])]).expect("readable");
        let at: Vec<u64> = changed.addresses().iter().map(|address| address - begin).collect();
        assert_eq!(at, [0, chunk - 1, chunk, 3 * chunk + 4]);
        assert!(changed.is_within(&(begin..begin + 1)));
        assert!(!changed.is_within(&(begin + 1..begin + chunk - 1)));
        let behind = begin + text.len() as u64;
        assert!(Changed::compare(read, [(behind, &file[..1])]).is_err());
    }
}
