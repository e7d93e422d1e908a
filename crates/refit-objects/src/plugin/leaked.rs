//! Texts that live as long as the process.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Returns a copy of a text that lives as long as the process; one copy of each text.
pub(crate) fn leaked(text: &str) -> &'static str {
    static LEAKED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut leaked = LEAKED.lock();
    if let Some(text) = leaked.get(text) {
        return text;
    }
    let text: &'static str = Box::leak(text.into());
    leaked.insert(text);
    text
}
