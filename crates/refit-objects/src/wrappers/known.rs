//! The wrappers that exist, with their options.

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

pub(super) static KNOWN: [WrapperKind; 6] = [
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
