//! Paths in JSON: as [`printable::name`] writes them, since JSON has no bytes and a path need not be UTF-8.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use refit_sys::printable;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes a path as text.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text(path))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    String::deserialize(from).map(|text| path(&text))
}

/// The path that a text stands for.
pub(crate) fn path(text: &str) -> PathBuf {
    OsString::from_vec(printable::bytes(text)).into()
}

/// The text that stands for a path.
pub(crate) fn text(path: &Path) -> String {
    printable::name(path.as_os_str().as_bytes())
}

/// The same for a path that need not be there.
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

/// The same for any number of paths.
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
