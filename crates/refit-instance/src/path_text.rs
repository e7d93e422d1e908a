//! Paths in JSON, in the form of [`printable::name`]: JSON has no byte strings, and a path need not
//! be UTF-8.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use refit_sys::printable;
use serde::{Deserialize, Deserializer, Serializer};

/// Serializes a path as text.
///
/// # Errors
///
/// Returns the error of the serializer.
pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text(path))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    String::deserialize(from).map(|text| path(&text))
}

/// Returns the path that a text represents.
pub(crate) fn path(text: &str) -> PathBuf {
    OsString::from_vec(printable::bytes(text)).into()
}

/// Returns the text that represents a path.
pub(crate) fn text(path: &Path) -> String {
    printable::name(path.as_os_str().as_bytes())
}

/// The same functions for an optional path.
pub(crate) mod optional {
    use super::*;

    #[expect(clippy::ref_option, reason = "the signature that serde calls")]
    pub(crate) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match path {
            Some(path) => super::serialize(path, to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        Ok(text.map(|text| path(&text)))
    }
}

/// The same functions for a list of paths.
pub(crate) mod several {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| text(path)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        Ok(texts.iter().map(|text| path(text)).collect())
    }
}
