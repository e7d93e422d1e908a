//! CPU latency requests: keeping processors out of idle states (Linux, `admin-guide/pm/cpuidle`,
//! "Power Management Quality of Service").
//!
//! An idle processor has to be woken before it can run work that another one hands to it. That
//! takes microseconds, and tens of them on a virtual machine whose host has descheduled it. Threads
//! that pass work back and forth pay this for every hand-over. As long as any process holds
//! [`DEVICE`] open and requests a latency of zero, the kernel's idle loop spins, on all processors.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The device that takes the request; as a rule only the superuser may open it.
pub const DEVICE: &str = "/dev/cpu_dma_latency";

/// A request that keeps processors out of idle states until it is dropped or its process ends.
#[derive(Debug)]
pub struct Awake(#[expect(dead_code, reason = "it is held, not used")] File);

impl Awake {
    /// Makes the request.
    ///
    /// # Errors
    /// The errors of opening or writing [`DEVICE`].
    pub fn hold() -> io::Result<Self> {
        let mut device = File::options().write(true).open(DEVICE)?;
        // The latency in microseconds, in the byte order of the machine.
        device.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self(device))
    }
}

/// A request that several users share: held while any of them needs it.
#[derive(Debug, Default)]
pub struct Watch {
    held: Mutex<Weak<Awake>>,
}

impl Watch {
    /// Returns a handle; processors stay out of idle states until all handles are dropped.
    ///
    /// # Errors
    /// As [`Awake::hold`].
    pub fn keep(&self) -> io::Result<Arc<Awake>> {
        let mut held = self.held.lock();
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
            // This user may not open the device.
            Err(error) => return assert_ne!(error.kind(), io::ErrorKind::InvalidInput),
        };
        let second = watch.keep().expect("it is held");
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        let mut latency = [1; 4];
        File::open(DEVICE).and_then(|mut file| file.read_exact(&mut latency)).expect("it is told");
        assert_eq!(i32::from_ne_bytes(latency), 0);
        drop(second);
        assert!(watch.held.lock().upgrade().is_none());
    }
}
