//! The `key=value` options of ready-made wrappers, and their errors.

use std::time::Duration;

use super::known::WrapperKind;
use crate::argument::Kind;
use crate::description::{ArgumentInfo, InterfaceInfo, MethodShape};

/// A key and its value.
pub type Setting = (String, String);

/// The reason that a wrapper could not be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrapperError {
    /// There is no wrapper with this name.
    #[error("no wrapper is called {name:?}; there are: {known}")]
    UnknownWrapper {
        /// The given name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// The wrapper has no such option.
    #[error("{wrapper} has no option {option:?}; {}", has(.known))]
    UnknownOption {
        /// The wrapper.
        wrapper: String,
        /// The given key.
        option: String,
        /// The existing keys.
        known: String,
    },
    /// An option was given twice.
    #[error("{wrapper}: the option {option} was given twice; give it once")]
    Twice {
        /// The wrapper.
        wrapper: String,
        /// The key.
        option: String,
    },
    /// A required option was not given.
    #[error("{wrapper} needs {option}=…; {remedy}")]
    Missing {
        /// The wrapper.
        wrapper: String,
        /// The key.
        option: String,
        /// Possible values.
        remedy: String,
    },
    /// The value of an option is invalid.
    #[error("{wrapper}: {option}={value} is invalid; {remedy}")]
    BadValue {
        /// The wrapper.
        wrapper: String,
        /// The key.
        option: String,
        /// The given value.
        value: String,
        /// Possible values.
        remedy: String,
    },
    /// No method of the interface has the arguments or the result that the wrapper needs.
    #[error("{wrapper} cannot be used on {interface} objects: {why}")]
    Unfit {
        /// The wrapper.
        wrapper: String,
        /// The name of the interface.
        interface: String,
        /// The reason.
        why: String,
    },
}

fn has(known: &str) -> String {
    if known.is_empty() { "it has none".into() } else { format!("there are: {known}") }
}

/// Joins names with commas.
pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Returns `method=…` as it was set.
pub(super) fn only(interface: &InterfaceInfo, method: Option<usize>) -> String {
    let method = method.and_then(|n| interface.methods.get(n));
    method.map_or_else(String::new, |m| format!("method={}", m.name))
}

/// Options whose keys have been checked.
pub(super) struct Settings<'a> {
    known: &'static WrapperKind,
    given: &'a [Setting],
    pub(super) interface: &'static InterfaceInfo,
}

impl<'a> Settings<'a> {
    pub(super) fn new(
        known: &'static WrapperKind,
        given: &'a [Setting],
        interface: &'static InterfaceInfo,
    ) -> Result<Self, WrapperError> {
        for (n, (key, _)) in given.iter().enumerate() {
            let (wrapper, option) = (known.name.to_owned(), key.clone());
            if !known.options.iter().any(|(k, _)| k == key) {
                let known = list(known.options.iter().map(|(k, _)| *k));
                return Err(WrapperError::UnknownOption { wrapper, option, known });
            }
            if given[..n].iter().any(|(k, _)| k == key) {
                return Err(WrapperError::Twice { wrapper, option });
            }
        }
        Ok(Settings { known, given, interface })
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.given.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Returns the options as they were given.
    pub(super) fn given(&self) -> String {
        let texts: Vec<_> = self.given.iter().map(|(k, v)| format!("{k}={v}")).collect();
        texts.join(" ")
    }

    pub(super) fn bad(&self, key: &str, remedy: impl Into<String>) -> WrapperError {
        WrapperError::BadValue {
            wrapper: self.known.name.into(),
            option: key.into(),
            value: self.text(key).unwrap_or_default().into(),
            remedy: remedy.into(),
        }
    }

    pub(super) fn missing(&self, key: &str, remedy: impl Into<String>) -> WrapperError {
        let (wrapper, option) = (self.known.name.into(), key.into());
        WrapperError::Missing { wrapper, option, remedy: remedy.into() }
    }

    pub(super) fn unfit(&self, why: impl Into<String>) -> WrapperError {
        WrapperError::Unfit {
            wrapper: self.known.name.into(),
            interface: self.interface.name.into(),
            why: why.into(),
        }
    }

    /// Returns a number of at least 1.
    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, WrapperError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        match text.parse() {
            Ok(n) if n > 0 => Ok(Some(n)),
            _ => Err(self.bad(key, "write a whole number from 1")),
        }
    }

    /// Returns a time such as `1ms`.
    pub(super) fn duration(&self, key: &str) -> Result<Option<Duration>, WrapperError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let per_unit = match unit {
            "ns" => Some(1),
            "us" | "µs" => Some(1_000),
            "ms" => Some(1_000_000),
            "s" => Some(1_000_000_000),
            _ => None,
        };
        let nanos = number.parse::<u64>().ok().zip(per_unit).and_then(|(n, u)| n.checked_mul(u));
        let time = nanos.map(Duration::from_nanos);
        time.map(Some).ok_or_else(|| self.bad(key, "write a time, e.g. 200us, 1ms or 2s"))
    }

    /// Returns the number of the method that `method=` names.
    pub(super) fn method(&self) -> Result<Option<usize>, WrapperError> {
        let Some(name) = self.text("method") else { return Ok(None) };
        let methods = self.interface.methods;
        let found = methods.iter().position(|m| m.name == name);
        let there = || list(methods.iter().map(|m| m.name));
        let interface = self.interface.name;
        found.map(Some).ok_or_else(|| {
            self.bad("method", format!("methods of {interface} objects are: {}", there()))
        })
    }

    /// Returns, for each chosen method, the index of the first argument that `fits`.
    pub(super) fn arguments(
        &self,
        fits: impl Fn(&ArgumentInfo) -> bool,
    ) -> Result<Vec<Option<usize>>, WrapperError> {
        let only = self.method()?;
        let shapes = self.interface.interposer.methods.iter().enumerate();
        let of = |(n, shape): (usize, &MethodShape)| {
            let chosen = only.is_none_or(|only| only == n);
            chosen.then(|| shape.arguments.iter().position(&fits)).flatten()
        };
        Ok(shapes.map(of).collect())
    }

    /// Returns the possible values for an argument that does not exist: `read.offset, read.buf …`.
    pub(super) fn visible_arguments(&self) -> String {
        let interface = self.interface;
        let methods = interface.methods.iter().zip(interface.interposer.methods);
        let mut names = Vec::new();
        for (_, shape) in methods {
            for argument in shape.arguments {
                if (argument.kind)() != Kind::Opaque && !names.contains(&argument.name) {
                    names.push(argument.name);
                }
            }
        }
        match names[..] {
            [] => format!("methods of {} objects have none that can be seen", interface.name),
            _ => format!("there are: {}", list(names)),
        }
    }
}
