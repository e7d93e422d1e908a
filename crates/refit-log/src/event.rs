//! One event, as the ring keeps it and users see it.

use std::borrow::Cow;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use refit_sys::printable;
use serde::{Deserialize, Serialize};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The number of the event in its process, from 0.
    pub number: u64,
    /// Nanoseconds since 1970-01-01 UTC, by the clock of its host.
    pub time_ns: u64,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub level: Cow<'static, str>,
    /// The module that recorded it.
    pub target: Cow<'static, str>,
    /// The name of the thread.
    pub thread: String,
    /// The spans in which it happened, outermost first, each with its fields.
    pub spans: Vec<String>,
    /// The message.
    pub message: String,
    /// The other fields, in the order of the source.
    pub fields: Vec<(String, String)>,
}

/// Returns the time now, as [`Event::time_ns`].
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Event {
    /// Formats one line without its end. Characters that would act on a terminal are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.time_ns / 1_000_000_000, self.time_ns % 1_000_000_000);
        let of_day = seconds % 86_400;
        let (hours, minutes) = (of_day / 3600, of_day / 60 % 60);
        let mut text = format!(
            "{hours:02}:{minutes:02}:{:02}.{:06} {:5} {} [{}]",
            of_day % 60,
            rest / 1000,
            self.level,
            self.target,
            self.thread
        );
        for span in &self.spans {
            text.push(' ');
            text.push_str(span);
        }
        text.push_str(": ");
        text.push_str(&self.message);
        for (name, value) in &self.fields {
            text.push_str(&format!(" {name}={value}"));
        }
        f.write_str(&printable::line(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_its_fields_hold() {
        let event = Event {
            number: 3,
            time_ns: 3_661_000_002_000,
            level: "WARN".into(),
            target: "refit_migrate::node".into(),
            thread: "main".to_owned(),
            spans: vec!["move{group=0.7.1}".to_owned()],
            message: "peer lost".to_owned(),
            fields: vec![("why".to_owned(), "a\nb\u{1b}[31m".to_owned())],
        };
        let text = event.to_string();
        assert!(text.starts_with("01:01:01.000002 WARN  refit_migrate::node [main] move{group="));
        assert!(!text.contains('\n') && !text.contains('\u{1b}'), "{text:?}");
    }
}
