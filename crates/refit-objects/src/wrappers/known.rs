//! The ready-made wrappers, with their options.

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
        about: "measures the duration of each method: median, 99th percentile, longest",
        options: &[METHOD],
    },
    WrapperKind { name: "concurrency", about: "counts concurrent calls", options: &[METHOD] },
    WrapperKind {
        name: "sequential",
        about: "measures the share of sequential accesses, and the length of sequential runs",
        options: &[
            METHOD,
            ("offset", "the argument with the position (default: offset)"),
            ("length", "the argument with the length (default: the first that has one)"),
            (
                "unit",
                "length that corresponds to an offset of 1 (default: 1); 4096 for page numbers",
            ),
        ],
    },
    WrapperKind {
        name: "arguments",
        about: "shows the distribution of the values of an argument, in powers of two",
        options: &[("argument", "name of the argument (required)"), METHOD],
    },
    WrapperKind {
        name: "fault",
        about: "delays calls or makes them fail",
        options: &[
            (
                "delay",
                "duration of the delay, e.g. 1ms; it is within the request, so swaps wait for it",
            ),
            ("error", "the errno with which calls fail, e.g. 5; only methods that can express it"),
            ("every", "only every N-th call (default: 1)"),
            METHOD,
        ],
    },
];

/// Returns the existing wrappers.
pub fn known() -> &'static [WrapperKind] {
    &KNOWN
}
