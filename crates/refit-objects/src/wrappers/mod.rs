//! Ready-made wrappers, created by name, which `refit wrap` attaches.
//!
//! Their counters are per processor, so that a wrapper adds no contention between threads.
//! `concurrency`, `sequential` and `fault` are the exceptions: they relate the calls of all threads
//! to each other.
//!
//! ```
//! use refit_objects::wrappers;
//! let names: Vec<_> = wrappers::known().iter().map(|w| w.name).collect();
//! assert_eq!(names, ["count", "latency", "concurrency", "sequential", "arguments", "fault"]);
//! ```

mod arguments;
mod cells;
mod concurrency;
mod count;
mod fault;
mod known;
mod latency;
mod meter;
mod options;
mod sequential;

use crate::description::InterfaceInfo;
use crate::wrapper::Wrapper;

use known::KNOWN;
pub use known::{WrapperKind, known};
pub(crate) use meter::Meter;
pub use options::{Setting, WrapperError};
use options::{Settings, list};

/// Creates a wrapper for objects of an interface.
///
/// # Errors
/// There is no such wrapper, or the settings are invalid; the error lists what there is.
pub fn by_name(
    name: &str,
    settings: &[Setting],
    interface: &'static InterfaceInfo,
) -> Result<Box<dyn Wrapper>, WrapperError> {
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
        let known = list(KNOWN.iter().map(|known| known.name));
        return Err(WrapperError::UnknownWrapper { name: name.to_owned(), known });
    };
    let settings = Settings::new(known, settings, interface)?;
    Ok(match known.name {
        "count" => Box::new(count::Count::new(interface)),
        "latency" => Box::new(latency::Latency::new(&settings)?),
        "concurrency" => Box::new(concurrency::Concurrency::new(&settings)?),
        "sequential" => Box::new(sequential::Sequential::new(&settings)?),
        "arguments" => Box::new(arguments::Arguments::new(&settings)?),
        _ => Box::new(fault::Fault::new(&settings)?),
    })
}
