//! The state of a thread that moves: what its instructions work on besides memory. What the kernel
//! keeps for it (descriptors, signals, number, children) stays at its origin.

use std::io;

use refit_sys::trace::{RegisterWords, Registers, Tracee, from_words, to_words};
use serde::{Deserialize, Serialize};

/// The registers of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThreadState {
    /// The general registers, in the kernel's order (`struct user_regs_struct`).
    general: RegisterWords,
    /// All others, as `XSAVE` lays them out.
    #[serde(with = "bytes")]
    extended: Vec<u8>,
}

impl ThreadState {
    /// Returns the state of a stopped thread, with general registers that may differ from its
    /// present ones.
    pub(crate) fn of(tracee: &Tracee, general: &Registers) -> io::Result<Self> {
        Ok(Self { general: to_words(general), extended: tracee.extended_state()? })
    }

    /// Returns the stack pointer.
    pub(crate) fn stack(&self) -> u64 {
        /// The position of `rsp` above.
        const AT: usize = 19;
        self.general[AT]
    }

    /// Returns the general registers.
    pub(crate) fn general(&self) -> Registers {
        from_words(&self.general)
    }

    /// Gives a stopped thread this state, with general registers that may differ.
    pub(crate) fn give(&self, tracee: &Tracee, general: &Registers) -> io::Result<()> {
        tracee.set_extended_state_but(&self.extended, &tracee.extended_state()?)?;
        tracee.set_registers(general)
    }
}

/// Bytes that are copied at once, not one by one, and without the zeros at the end: most programs
/// do not use the later registers. Their number with those zeros comes first, in two bytes.
mod bytes {
    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], into: S) -> Result<S::Ok, S::Error> {
        let length = u16::try_from(bytes.len()).map_err(serde::ser::Error::custom)?;
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        into.serialize_bytes(&[&length.to_le_bytes(), &bytes[..used]].concat())
    }

    fn whole<E: Error>(encoded: &[u8]) -> Result<Vec<u8>, E> {
        let (length, used) = encoded.split_first_chunk().ok_or_else(|| E::custom("no length"))?;
        let length = usize::from(u16::from_le_bytes(*length));
        if used.len() > length {
            return Err(E::custom("more than there are"));
        }
        let mut bytes = used.to_vec();
        bytes.resize(length, 0);
        Ok(bytes)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                whole(bytes)
            }

            fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                whole(&bytes)
            }
        }

        from.deserialize_byte_buf(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_at_the_end_are_restored() {
        for extended in
            [vec![], vec![0; 2688], vec![0, 7, 0, 0], [vec![1; 832], vec![0; 10176]].concat()]
        {
            let state = ThreadState { general: [5; 27], extended };
            let encoded = postcard::to_stdvec(&state).expect("encoded");
            let used = state.extended.iter().filter(|&&byte| byte != 0).count();
            assert!(encoded.len() < 27 + used + 8, "{}", encoded.len());
            assert_eq!(postcard::from_bytes(&encoded), Ok(state));
        }
    }

    #[test]
    fn more_bytes_than_the_length_are_refused() {
        #[derive(Deserialize)]
        struct Encoded(
            #[serde(with = "bytes")]
            #[expect(dead_code, reason = "it is not reached")]
            Vec<u8>,
        );
        for encoded in [&[][..], &[1], &[1, 0, 7, 7]] {
            let bytes = [&[encoded.len() as u8], encoded].concat();
            assert!(postcard::from_bytes::<Encoded>(&bytes).is_err(), "{encoded:?}");
        }
    }
}
