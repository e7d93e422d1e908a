//! Takes events from `tracing`, and puts them into the ring and on standard error.

use std::io::{self, Write};
use std::sync::Arc;

use tracing::span::{self, Attributes, Id};
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use crate::event::{Event, now_ns};
use crate::filter::Filter;
use crate::record::{Fields, Record};
use crate::ring;

/// The form in which events are written to standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A line for people, with the time of day in UTC.
    #[default]
    Text,
    /// A JSON object per line.
    Json,
    /// A line for `systemd-journald`, which begins with the priority (sd-daemon(3)) and lacks the
    /// time, which the journal adds.
    Journal,
}

/// The most verbose level that the ring keeps.
const KEPT: Level = Level::DEBUG;

/// The target of events that [`crate::say`] has written already.
pub(crate) const SAID: &str = "refit::said";

/// Puts events into the ring and on standard error.
pub(crate) struct Recorder {
    filter: Filter,
    format: Format,
}

impl Recorder {
    pub(crate) fn new(filter: Filter, format: Format) -> Self {
        Self { filter, format }
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        is_kept(metadata) || self.filter.permits(metadata)
    }

    fn write(&self, event: &Event) {
        let line = match self.format {
            Format::Text => event.to_string(),
            Format::Json => serde_json::to_string(event).unwrap_or_default(),
            Format::Journal => {
                let text = event.to_string();
                // The time of day is the first word.
                let text = text.split_once(' ').map_or(&*text, |(_, rest)| rest);
                format!("<{}>{text}", priority(&event.level))
            }
        };
        // Without a reader the event is lost there.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Returns whether the ring keeps an event: those of refit's own crates, except the most verbose.
fn is_kept(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= KEPT && metadata.target().starts_with("refit")
}

/// Returns the priority of a level (syslog(3)).
fn priority(level: &str) -> u8 {
    match level {
        "ERROR" => 3,
        "WARN" => 4,
        "INFO" => 6,
        _ => 7,
    }
}

/// A span as events show it: `name{fields}`.
struct SpanText {
    fields: Fields,
    shown: Arc<str>,
}

impl SpanText {
    fn new(name: &str, fields: Fields) -> Self {
        let shown = Arc::from(format!("{name}{{{fields}}}"));
        Self { fields, shown }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.most().max(LevelFilter::from_level(KEPT)))
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            let text = SpanText::new(span.name(), fields);
            span.extensions_mut().insert(text);
        }
    }

    fn on_record(&self, id: &Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(text) = span.extensions_mut().get_mut::<SpanText>()
        {
            let mut fields = std::mem::take(&mut text.fields);
            values.record(&mut fields);
            *text = SpanText::new(span.name(), fields);
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let spans = context.event_scope(event).map_or_else(Vec::new, |scope| {
            let shown = |span: SpanRef<'_, S>| {
                span.extensions().get::<SpanText>().map(|text| Arc::clone(&text.shown))
            };
            scope.from_root().filter_map(shown).collect()
        });
        let record = Record::new(now_ns(), event, spans);
        if metadata.target() != SAID && self.filter.permits(metadata) {
            self.write(&record.event(0));
        }
        if is_kept(metadata) {
            ring::push(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn events_are_kept_with_their_fields_and_spans() {
        let _alone = ring::ALONE.lock();
        let filter = Filter::parse("off").expect("a filter");
        let subscriber = tracing_subscriber::registry().with(Recorder::new(filter, Format::Text));
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::debug_span!("move", group = "0.7.1", to = tracing::field::Empty);
            span.record("to", 3);
            let _inside = span.enter();
            tracing::debug!(thread = 7, why = %"a reason", "recalled for the test of fields");
            tracing::trace!("recalled for the test of fields, in detail");
        });
        let recent = ring::recent().events;
        let of = |message: &str| recent.iter().find(|event| event.message == message);
        let event = of("recalled for the test of fields").expect("it is kept");
        assert_eq!(event.spans, ["move{group=0.7.1 to=3}"]);
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(event.fields, [field("thread", "7"), field("why", "a reason")]);
        assert_eq!(event.level, "DEBUG");
        assert!(of("recalled for the test of fields, in detail").is_none());
    }
}
