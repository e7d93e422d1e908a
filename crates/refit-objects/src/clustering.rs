//! The degree of clustering: which processors share a representative (Hui 2000, §3.3.2).
//!
//! Each implementation chooses a grouping, and the caller of a swap can choose another one. Every
//! grouping is correct, since a rep can serve calls from any processor; groupings differ only in
//! speed. A swap to the same implementation with another grouping changes only the grouping.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The assignment of processors to reps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clustering {
    /// As the implementation chooses.
    #[default]
    AsMade,
    /// One rep for all processors.
    One,
    /// One rep for each processor.
    PerProcessor,
    /// One rep for each group of that many neighbouring processors.
    Groups(usize),
    /// The cluster of each processor; processors beyond the list share that of the last.
    Map(Arc<[usize]>),
}

impl Clustering {
    /// Returns the cluster of a processor; `as_made` returns the implementation's choice.
    pub(crate) fn of(&self, processor: usize, as_made: impl FnOnce() -> usize) -> usize {
        match self {
            Clustering::AsMade => as_made(),
            Clustering::One => 0,
            Clustering::PerProcessor => processor,
            Clustering::Groups(size) => processor / size.max(&1),
            Clustering::Map(map) => map.get(processor).or(map.last()).copied().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Clustering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clustering::AsMade => f.write_str("as-made"),
            Clustering::One => f.write_str("one"),
            Clustering::PerProcessor => f.write_str("each"),
            Clustering::Groups(size) => write!(f, "groups:{size}"),
            Clustering::Map(map) => {
                let clusters: Vec<_> = map.iter().map(ToString::to_string).collect();
                write!(f, "map:{}", clusters.join(","))
            }
        }
    }
}

/// The error that a text is not a clustering.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} does not define which processors share a representative; write as-made, one, each, groups:4 or map:0,0,1,1"
)]
pub struct NoClustering(String);

impl FromStr for Clustering {
    type Err = NoClustering;

    fn from_str(text: &str) -> Result<Self, NoClustering> {
        let wrong = || NoClustering(text.to_owned());
        match text.split_once(':') {
            None if text == "as-made" => Ok(Clustering::AsMade),
            None if text == "one" => Ok(Clustering::One),
            None if text == "each" => Ok(Clustering::PerProcessor),
            Some(("groups", size)) => match size.parse() {
                Ok(size) if size > 0 => Ok(Clustering::Groups(size)),
                _ => Err(wrong()),
            },
            Some(("map", clusters)) => {
                let map: Result<Arc<[usize]>, _> = clusters.split(',').map(str::parse).collect();
                map.map(Clustering::Map).map_err(|_| wrong())
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        for text in ["as-made", "one", "each", "groups:4", "map:0,0,1,1", "map:7"] {
            assert_eq!(text.parse::<Clustering>().map(|c| c.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "two", "groups:0", "groups:", "map:", "map:1,,2", "map:-1", "one:1"] {
            let error = text.parse::<Clustering>().expect_err(text);
            assert!(error.to_string().contains("groups:4"), "{error}");
        }
    }

    #[test]
    fn every_processor_has_a_cluster() {
        let clusters = |text: &str| -> Vec<usize> {
            let clustering: Clustering = text.parse().expect("it is one");
            (0..6).map(|processor| clustering.of(processor, || 42)).collect()
        };
        assert_eq!(clusters("as-made"), [42; 6]);
        assert_eq!(clusters("one"), [0; 6]);
        assert_eq!(clusters("each"), [0, 1, 2, 3, 4, 5]);
        assert_eq!(clusters("groups:4"), [0, 0, 0, 0, 1, 1]);
        assert_eq!(clusters("map:3,1,3"), [3, 1, 3, 3, 3, 3]);
    }
}
