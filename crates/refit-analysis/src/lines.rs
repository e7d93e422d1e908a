//! Lines of source and inlined functions, from debug information.
//!
//! Debug information is read on demand only, never in order to set a probe: it may be many times
//! the size of the code.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use addr2line::{Loader, Location};

use crate::image::{Image, OpenError};

/// The debug information of a file: its own, or that which a distribution ships separately.
pub struct Lines {
    loader: Loader,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Lines").finish_non_exhaustive()
    }
}

/// The source of an instruction: a function, and a line of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The function's name, as symbols have it.
    pub function: Option<String>,
    /// The source file, as named on the compiler's command line.
    pub file: Option<String>,
    /// The line, counted from 1.
    pub line: Option<u32>,
}

impl Lines {
    /// Reads the debug information that belongs to `image`; `None` if there is none or it cannot be
    /// read.
    pub fn of(image: &Image) -> Option<Self> {
        let (path, alternative) = image.debug_file()?;
        // Without the file that several files share debug information in, lines are complete and
        // only some names are missing.
        let loader = Loader::new_with_sup(&path, alternative.as_ref());
        let loader = loader.or_else(|_| Loader::new_with_sup(&path, None::<&PathBuf>)).ok()?;
        Some(Self { loader })
    }

    /// Reads the debug information of the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is not for x86-64.
    pub fn open(path: &Path) -> Result<Option<Self>, OpenError> {
        Ok(Self::of(&Image::open(path)?))
    }

    /// Returns the source of the instruction at an address of the file: the innermost function
    /// first, then those into which it was inlined. Empty if no debug information covers the
    /// address.
    pub fn at(&self, address: u64) -> Vec<Origin> {
        let mut origins = Vec::new();
        let Ok(mut frames) = self.loader.find_frames(address) else { return origins };
        // Damaged information yields the frames that could be read; no real chain of inlined
        // functions is this long.
        while let Ok(Some(frame)) = frames.next()
            && origins.len() < 100
        {
            let function = frame.function.as_ref();
            let name = function.and_then(|one| one.raw_name().ok()).map(|name| name.into_owned());
            let location = frame.location.as_ref();
            origins.push(Origin {
                function: name,
                file: location.and_then(|place| place.file).map(str::to_owned),
                line: location.and_then(|place| place.line).filter(|line| *line > 0),
            });
        }
        origins.retain(|origin| *origin != Origin::default());
        origins
    }

    /// Returns the source files and lines of which the code in a range of addresses has parts.
    pub fn within(&self, range: Range<u64>) -> BTreeSet<(String, u32)> {
        let Ok(rows) = self.loader.find_location_range(range.start, range.end) else {
            return BTreeSet::new();
        };
        let line = |place: Location<'_>| Some((place.file?.to_owned(), place.line?));
        let lines = rows.filter_map(|(_, _, place)| line(place));
        lines.filter(|(_, line)| *line > 0).collect()
    }
}

/// Returns the name of a function as its source has it, if a compiler of C++ or Rust has encoded
/// it; otherwise the name as it is.
pub fn demangle(name: &str) -> String {
    addr2line::demangle_auto(name.into(), None).into_owned()
}

impl std::fmt::Display for Origin {
    /// Writes `file:line`, or as much of it as is known.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(to, "{file}:{line}"),
            (Some(file), None) => to.write_str(file),
            (None, _) => to.write_str("?"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_compilers_become_those_of_the_source() {
        for (name, source) in [
            ("malloc", "malloc"),
            ("_ZN3std2io5Write9write_all17h0123456789abcdefE", "std::io::Write::write_all"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("runtime.mallocgc", "runtime.mallocgc"),
            ("_Znot", "_Znot"),
        ] {
            assert_eq!(demangle(name), source);
        }
    }
}
