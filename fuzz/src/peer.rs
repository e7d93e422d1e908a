//! Fuzzing of the input from another kernel instance: bytes of a connection, and the counters of
//! shared rings.

use std::io::Read;
use std::os::fd::AsFd;

use refit_sys::ring::{CAPACITY, Rings};

/// Reads the bytes as a hello and messages.
pub(crate) fn messages(bytes: &[u8]) {
    let (count, _) = refit_messages::rehearse(bytes);
    assert!(count * 28 <= bytes.len(), "{count} messages in {} bytes", bytes.len());
}

/// Reads the bytes as the words of a ring, which the other side may change between any two reads.
pub(crate) fn rings(bytes: &[u8]) {
    let rings = Rings::new(1).expect("there is memory");
    let fd = rings.as_fd().try_clone_to_owned().expect("there are descriptors");
    let other = Rings::open(fd, 1).expect("they are such rings");
    let (mut reader, mut writer) = (rings.reader(0), other.writer(0));
    // An ended ring never makes its reader wait.
    rings.end();
    let mut into = [0; 4096];
    for step in bytes.chunks(10) {
        let [which, length, word @ ..] = step else { return };
        let mut value = [0; 8];
        value[..word.len()].copy_from_slice(word);
        // The counter of the writer, that of the reader, and the two wakeup words.
        let at = u64::from(which % 4) * 64;
        rustix::io::pwrite(&rings, &value, at).expect("a memfd takes it");
        let length = usize::from(*length) * 16;
        if let Ok(count) = reader.read(&mut into[..length]) {
            assert!(count <= length && count <= CAPACITY);
        }
        let _ = writer.write(&into[..length], false);
    }
}
