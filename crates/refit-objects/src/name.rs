//! Names of objects, `interface:instance`, either fixed or computed when they are shown.

use std::fmt;
use std::sync::Arc;

/// The instance part of an object's name.
#[derive(Clone)]
pub struct Name(Kind);

#[derive(Clone)]
enum Kind {
    Fixed(Arc<str>),
    Lazy(Arc<dyn Fn() -> String + Send + Sync>),
}

impl Name {
    /// Creates a name that can change, like the path of a file: `of` is called whenever the name is
    /// shown. It is called outside of any lock of the object system and must not call objects.
    pub fn lazy(of: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Name(Kind::Lazy(Arc::new(of)))
    }

    /// Returns the current name.
    pub fn get(&self) -> String {
        match &self.0 {
            Kind::Fixed(name) => name.to_string(),
            Kind::Lazy(of) => of(),
        }
    }
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Name(Kind::Fixed(name.into()))
    }
}

impl From<String> for Name {
    fn from(name: String) -> Self {
        Name(Kind::Fixed(name.into()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Name").field(&self.get()).finish()
    }
}
