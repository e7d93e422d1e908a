//! FNV-1a, 64 bits: the same in every build and on every compiler, which the standard library's
//! hasher does not promise.

/// The initial value of a hash.
pub const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues `hash` with these bytes.
pub const fn fnv1a(bytes: &[u8], mut hash: u64) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}
