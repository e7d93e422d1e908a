//! Ready-made wrappers, created by name, which `refit wrap` attaches.
//!
//! They count per processor, so that threads do not contend that would not contend without them.
//! `concurrency` and `sequential` are the exceptions, since they observe relations between the
//! calls of all threads.
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
mod latency;
mod meter;
mod options;
mod sequential;

use crate::rep::InterfaceInfo;
use crate::wrapper::Wrapper;

pub(crate) use meter::Meter;
pub use options::{Setting, WrapperError};
use options::{Settings, list};

/// A wrapper that can be created by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct WrapperKind {
    /// The name of the wrapper.
    pub name: &'static str,
    /// Its description, in a line.
    pub about: &'static str,
    /// Its options, as pairs of a key and its meaning.
    pub options: &'static [(&'static str, &'static str)],
}

const METHOD: (&str, &str) = ("method", "only calls of this method");

static KNOWN: [WrapperKind; 6] = [
    WrapperKind {
        name: "count",
        about: "counts calls, errors and panics of each method",
        options: &[],
    },
    WrapperKind {
        name: "latency",
        about: "measures how long each method takes: median, 99th percentile, longest",
        options: &[METHOD],
    },
    WrapperKind {
        name: "concurrency",
        about: "counts calls that are inside at the same time",
        options: &[METHOD],
    },
    WrapperKind {
        name: "sequential",
        about: "tells whether accesses follow each other, and how long such runs are",
        options: &[
            METHOD,
            ("offset", "the argument that says where (offset)"),
            ("length", "the argument that says how much; without it: the first with a length"),
            ("unit", "how much of a length an offset of 1 is (1); 4096 for numbers of pages"),
        ],
    },
    WrapperKind {
        name: "arguments",
        about: "shows how the values of an argument are spread, in powers of two",
        options: &[("argument", "its name; must be given"), METHOD],
    },
    WrapperKind {
        name: "fault",
        about: "delays calls or lets them fail",
        options: &[
            ("delay", "for how long, e.g. 1ms; within the request, so swaps wait for it too"),
            ("error", "the errno with which calls fail, e.g. 5; only methods that can express it"),
            ("every", "only every N-th call (1)"),
            METHOD,
        ],
    },
];

/// Returns the existing wrappers.
pub fn known() -> &'static [WrapperKind] {
    &KNOWN
}

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

/// Returns `method=…` as it was set.
fn only(interface: &InterfaceInfo, method: Option<usize>) -> String {
    let method = method.and_then(|n| interface.methods.get(n));
    method.map_or_else(String::new, |m| format!("method={}", m.name))
}
