//! Patterns that select objects by name, and by mount.

use refit_sys::glob;

use crate::wire::ObjectInfo;

/// A pattern over object names ([`refit_sys::glob`]).
///
/// ```
/// use refit_instance::Glob;
/// assert!(Glob::new("fcm:/logs/*").matches("fcm:/logs/2026/nov"));
/// assert!(!Glob::new("fcm:/logs/?").matches("fcm:/logs/10"));
/// ```
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    /// Only objects of this mount.
    mount: Option<String>,
}

impl Glob {
    /// Every text is a pattern.
    pub fn new(text: &str) -> Self {
        Glob { text: text.to_owned(), mount: None }
    }

    /// The same pattern, for objects of one mount only.
    #[must_use]
    pub fn of_mount(self, mount: Option<&str>) -> Self {
        Glob { mount: mount.map(str::to_owned), ..self }
    }

    /// Whether an object is meant, whose [mount](ObjectInfo::mount) is known.
    pub(crate) fn selects(&self, object: &ObjectInfo) -> bool {
        self.matches(&object.name)
            && self.mount.as_ref().is_none_or(|m| object.mount.as_ref() == Some(m))
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern can match only the name that is spelled like it.
    pub fn is_literal(&self) -> bool {
        glob::is_literal(self.text.as_bytes())
    }

    /// Whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        glob::matches(self.text.as_bytes(), name.as_bytes())
    }
}
