//! The last events of an instance, to find out why something hangs, and the route that serves them.

use axum::Json;
use refit_log::{Event, Recent};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::client::Client;
use crate::refusal::Refusal;
use crate::rejection::blocking;

/// The last events of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventsInfo {
    /// The number of older ones that are no longer kept.
    pub dropped: u64,
    /// The others, oldest first.
    pub events: Vec<EventInfo>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventInfo {
    /// Counts the events of the instance, from 0.
    pub number: u64,
    /// Nanoseconds since 1970-01-01 UTC, by the clock of its host.
    pub time_ns: u64,
    /// `ERROR`, `WARN`, `INFO` or `DEBUG`.
    pub level: String,
    /// The module that has recorded it.
    pub target: String,
    /// The name of the thread.
    pub thread: String,
    /// The spans that it happened in, outermost first, each with its fields.
    pub spans: Vec<String>,
    /// The message of the event.
    pub message: String,
    /// Its other fields, name and value, in the order of the source.
    pub fields: Vec<Vec<String>>,
}

impl From<Event> for EventInfo {
    fn from(event: Event) -> Self {
        let Event { number, time_ns, level, target, thread, spans, message, fields } = event;
        let fields = fields.into_iter().map(|(name, value)| vec![name, value]).collect();
        let (level, target) = (level.into_owned(), target.into_owned());
        Self { number, time_ns, level, target, thread, spans, message, fields }
    }
}

impl From<EventInfo> for Event {
    fn from(event: EventInfo) -> Self {
        let EventInfo { number, time_ns, level, target, thread, spans, message, fields } = event;
        let pair = |field: Vec<String>| {
            let mut of = field.into_iter();
            (of.next().unwrap_or_default(), of.next().unwrap_or_default())
        };
        let fields = fields.into_iter().map(pair).collect();
        let (level, target) = (level.into(), target.into());
        Self { number, time_ns, level, target, thread, spans, message, fields }
    }
}

/// The last events of the instance.
#[utoipa::path(get, path = "/debug/events", responses((status = 200, body = EventsInfo)))]
pub(crate) async fn events() -> Result<Json<EventsInfo>, Refusal> {
    blocking("read the last events", || {
        let Recent { dropped, events } = refit_log::recent();
        Ok(Json(EventsInfo { dropped, events: events.into_iter().map(EventInfo::from).collect() }))
    })
    .await
}

impl Client {
    /// Returns the last events of the instance.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn events(&self) -> Result<EventsInfo, Refusal> {
        self.get("read the last events", "/debug/events")
    }
}
