//! What another kernel instance says: bytes of a connection, and the counts of rings that it shares.

use std::io::Read;
use std::os::fd::AsFd;

use refit_sys::ring::{CAPACITY, Rings};

/// As a hello and messages.
pub(crate) fn messages(bytes: &[u8]) {
    let (count, _) = refit_messages::rehearse(bytes);
    assert!(count * 28 <= bytes.len(), "{count} messages in {} bytes", bytes.len());
}

/// As the words of a ring, which the other side may change between any two looks.
pub(crate) fn rings(bytes: &[u8]) {
    let rings = Rings::new(1).expect("there is memory");
    let fd = rings.as_fd().try_clone_to_owned().expect("there are descriptors");
    let other = Rings::open(fd, 1).expect("they are such rings");
    let (mut reader, mut writer) = (rings.reader(0), other.writer(0));
    // The reader does not wait then.
    rings.end();
    let mut into = [0; 4096];
    for step in bytes.chunks(10) {
        let [which, length, word @ ..] = step else { return };
        let mut value = [0; 8];
        value[..word.len()].copy_from_slice(word);
        // What is written, what is read, the two bells.
        let at = u64::from(which % 4) * 64;
        rustix::io::pwrite(&rings, &value, at).expect("a memfd takes it");
        let length = usize::from(*length) * 16;
        if let Ok(count) = reader.read(&mut into[..length]) {
            assert!(count <= length && count <= CAPACITY);
        }
        let _ = writer.write(&into[..length], false);
    }
}
