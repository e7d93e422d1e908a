//! Keeping processors from going to sleep while they have nothing to do (Linux, `admin-guide/pm/cpuidle`, "Power Management Quality of Service").
//!
//! One that sleeps has to be woken before it does what another one has for it, which takes microseconds, and tens of them on a virtual machine,
//! whose host has put it aside. Who hands work to and fro waits for that each time. The kernel lets its idle loop spin, on all processors, while anybody
//! who may open [`DEVICE`] asks for a latency of none.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Where that is asked for; for the superuser, mostly.
pub const DEVICE: &str = "/dev/cpu_dma_latency";

/// Processors stay awake until it is dropped, or its process ends.
#[derive(Debug)]
pub struct Awake(#[expect(dead_code, reason = "it is held, not used")] File);

impl Awake {
    /// Asks for it.
    ///
    /// # Errors
    /// What the system says of [`DEVICE`].
    pub fn hold() -> io::Result<Self> {
        let mut device = File::options().write(true).open(DEVICE)?;
        // Microseconds, as the kernel has them in memory.
        device.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self(device))
    }
}

/// What several want, each for a while: held while anybody does.
#[derive(Debug, Default)]
pub struct Watch {
    held: Mutex<Weak<Awake>>,
}

impl Watch {
    /// Processors stay awake until what all were given is dropped.
    ///
    /// # Errors
    /// As [`Awake::hold`].
    pub fn keep(&self) -> io::Result<Arc<Awake>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(awake) = held.upgrade() {
            return Ok(awake);
        }
        let awake = Arc::new(Awake::hold()?);
        *held = Arc::downgrade(&awake);
        Ok(awake)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn while_anybody_wants_it_the_kernel_knows() {
        let watch = Watch::default();
        let first = match watch.keep() {
            Ok(first) => first,
            // Not for this user.
            Err(error) => return assert_ne!(error.kind(), io::ErrorKind::InvalidInput),
        };
        let second = watch.keep().expect("it is held");
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        let mut latency = [1; 4];
        File::open(DEVICE).and_then(|mut told| told.read_exact(&mut latency)).expect("it is told");
        assert_eq!(i32::from_ne_bytes(latency), 0);
        drop(second);
        assert!(watch.held.lock().unwrap().upgrade().is_none());
    }
}
