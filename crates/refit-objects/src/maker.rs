//! Factories without their type: the class, the implementation of new objects, and the number of
//! living objects.
//!
//! # Locks
//!
//! | lock | protects |
//! |---|---|
//! | [`Maker::serves`] | the implementation of new objects; held shared while one is created |
//! | `MAKERS` | the list of factories; nothing is called with it held |
//!
//! No thread holds both.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

/// A factory without its type.
#[derive(Debug)]
pub(crate) struct Maker {
    pub(crate) class: String,
    /// The purpose of the factory, for example a mount.
    pub(crate) name: String,
    pub(crate) serves: RwLock<Serves>,
    /// The number of living objects.
    pub(crate) instances: AtomicUsize,
}

/// The implementation of new objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Serves {
    pub(crate) implementation: String,
    /// Incremented at every change of `implementation`.
    pub(crate) since: u64,
}

/// The factory of an object.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) maker: Arc<Maker>,
    /// [`Serves::since`] when the object was created.
    pub(crate) since: u64,
}

impl Origin {
    pub(crate) fn new(maker: &Arc<Maker>, since: u64) -> Self {
        maker.instances.fetch_add(1, Ordering::Relaxed);
        Origin { maker: Arc::clone(maker), since }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.maker.instances.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All factories, for upgrades of a class.
static MAKERS: Mutex<Vec<Weak<Maker>>> = Mutex::new(Vec::new());

impl Maker {
    /// Creates a factory without its type, and lists it.
    pub(crate) fn new(class: &str, name: String, implementation: String) -> Arc<Self> {
        let serves = Serves { implementation, since: 0 };
        let maker = Arc::new(Maker {
            class: class.to_owned(),
            name,
            serves: RwLock::new(serves),
            instances: AtomicUsize::new(0),
        });
        let mut makers = MAKERS.lock();
        makers.retain(|maker| maker.strong_count() > 0);
        makers.push(Arc::downgrade(&maker));
        maker
    }

    pub(crate) fn serving(&self) -> String {
        self.serves.read().implementation.clone()
    }

    /// Sets the implementation of new objects. Returns the previous one.
    pub(crate) fn serve(&self, implementation: &str) -> Serves {
        let mut serves = self.serves.write();
        let since = serves.since + 1;
        let now = Serves { implementation: implementation.to_owned(), since };
        std::mem::replace(&mut serves, now)
    }
}

/// Returns all factories.
pub(crate) fn makers() -> Vec<Arc<Maker>> {
    let makers = MAKERS.lock();
    makers.iter().filter_map(Weak::upgrade).collect()
}

/// Returns the factories of a class; none if there is no such class.
pub(crate) fn makers_of(class: &str) -> Vec<Arc<Maker>> {
    makers().into_iter().filter(|maker| maker.class == class).collect()
}
