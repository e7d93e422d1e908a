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
    /// If given, only objects of this mount match.
    mount: Option<String>,
}

impl Glob {
    /// Creates a pattern. Every text is a valid one.
    pub fn new(text: &str) -> Self {
        Glob { text: text.to_owned(), mount: None }
    }

    /// Returns the same pattern restricted to objects of one mount, if given.
    #[must_use]
    pub fn of_mount(self, mount: Option<&str>) -> Self {
        Glob { mount: mount.map(str::to_owned), ..self }
    }

    /// Returns whether an object matches. Its [mount](ObjectInfo::mount) must be known.
    pub(crate) fn selects(&self, object: &ObjectInfo) -> bool {
        self.matches(&object.name)
            && self.mount.as_ref().is_none_or(|m| object.mount.as_ref() == Some(m))
    }

    /// Returns the text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the pattern matches only the name that is spelled like it.
    pub fn is_literal(&self) -> bool {
        glob::is_literal(self.text.as_bytes())
    }

    /// Returns whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        glob::matches(self.text.as_bytes(), name.as_bytes())
    }
}
