//! Lines of source that instructions were made from, and functions that were made part of others, as debug information tells.
//!
//! It is read when it is asked for, and never on the way to a probe: it may be many times the size of the code.

use std::path::{Path, PathBuf};

use addr2line::Loader;

use crate::image::{Image, OpenError};

/// The debug information of a file: its own, or that which a distribution keeps apart.
pub struct Lines {
    loader: Loader,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Lines").finish_non_exhaustive()
    }
}

/// Where an instruction comes from: a function, and a line of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The function's name, as symbols have it.
    pub function: Option<String>,
    /// The file, as the compiler was told it.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
}

impl Lines {
    /// The debug information that belongs to `image`; none if there is none, or it cannot be read.
    pub fn of(image: &Image) -> Option<Self> {
        let (path, alternative) = image.debug_file()?;
        // Where what is common to several files is missing, lines are there all the same, and some names are not.
        let loader = Loader::new_with_sup(&path, alternative.as_ref());
        let loader = loader.or_else(|_| Loader::new_with_sup(&path, None::<&PathBuf>)).ok()?;
        Some(Self { loader })
    }

    /// The same, for the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is not for x86-64.
    pub fn open(path: &Path) -> Result<Option<Self>, OpenError> {
        Ok(Self::of(&Image::open(path)?))
    }

    /// Where the instruction at an address of the file comes from: the innermost function first, then those into which it was
    /// inlined. Empty if nobody says.
    pub fn at(&self, address: u64) -> Vec<Origin> {
        let mut origins = Vec::new();
        let Ok(mut frames) = self.loader.find_frames(address) else { return origins };
        // Damaged information tells as much as could be read; no chain of inlined functions is this long.
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
}

impl std::fmt::Display for Origin {
    /// `file:line`, as far as it is known.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(to, "{file}:{line}"),
            (Some(file), None) => to.write_str(file),
            (None, _) => to.write_str("?"),
        }
    }
}
