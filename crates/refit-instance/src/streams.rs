//! Answers that grow while they are read: reports as changes end, and the journal as it is written.
//!
//! The work is done on a blocking thread that passes lines to the connection through a channel.
//! When the client disconnects, the connection drops its end of the channel and with it the guard
//! that cancels the change in progress. Lines that are ready at the same time are sent together: a
//! swap of ten thousand objects takes some hundred writes, not ten thousand. When there is nothing
//! to send for a while, an empty line shows that the instance is alive, so that the client can
//! distinguish a quiet journal from an instance that hangs.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, Interval, interval_at};
use tokio_stream::Stream;

use crate::directory::reason;
use crate::refusal::{Kind, Refusal};

/// The number of lines that may be ready before their producer waits for the reader.
const MAX_READY: usize = 1024;

/// The interval between two empty lines. Clients wait for several intervals.
const EMPTY_LINE_INTERVAL: Duration = Duration::from_secs(2);

/// The maximum number of streaming answers, each of which has a thread. Further ones are refused,
/// so that a client that follows many answers does not block others.
const MAX_STREAMS: usize = 1024;

/// The number of streaming answers in progress.
static OPEN_STREAMS: AtomicUsize = AtomicUsize::new(0);

/// Counts a streaming answer for as long as it exists.
struct StreamGuard;

impl StreamGuard {
    fn begin() -> Option<Self> {
        // Relaxed, because the count guards no data.
        let before = OPEN_STREAMS.fetch_add(1, Ordering::Relaxed);
        let guard = StreamGuard;
        (before < MAX_STREAMS).then_some(guard)
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        OPEN_STREAMS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Produces the lines of an answer on a thread of its own, because it lasts as long as the client
/// reads, and the threads for single answers are few.
///
/// # Errors
///
/// There are too many streaming answers, or the host cannot create a thread.
pub(crate) fn begin(operation: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
    let Some(guard) = StreamGuard::begin() else {
        let obstacle = format!("{MAX_STREAMS} streaming answers are in progress already");
        return Err(Refusal::new(Kind::Busy, operation, obstacle, "end some of them first"));
    };
    let run = move || {
        let _growing = guard;
        work();
    };
    let begun = std::thread::Builder::new().name("refit-change".into()).spawn(run);
    begun.map(drop).map_err(|e| Refusal::new(Kind::Failed, operation, reason(&e), "try again"))
}

/// Signals the producer of lines that the client has disconnected.
#[derive(Debug)]
struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        // Pairs with the load in the producer; nothing else is published with it.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the two ends of an answer of lines of type `T`, and a flag that becomes true when the
/// client has disconnected.
pub(crate) fn lines<T: Serialize + Send + 'static>() -> (Sender<T>, Arc<AtomicBool>, Response) {
    let (sender, receiver) = mpsc::channel(MAX_READY);
    let disconnected = Arc::new(AtomicBool::new(false));
    let body = Body::from_stream(chunks(receiver, Cancel(Arc::clone(&disconnected))));
    let mut response = body.into_response();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    (sender, disconnected, response)
}

fn chunks<T: Serialize + Send + 'static>(
    receiver: Receiver<T>,
    cancel: Cancel,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let beat = interval_at(Instant::now() + EMPTY_LINE_INTERVAL, EMPTY_LINE_INTERVAL);
    Chunks { receiver, waiting: Vec::new(), beat, _cancel: cancel }
}

struct Chunks<T> {
    receiver: Receiver<T>,
    waiting: Vec<T>,
    beat: Interval,
    _cancel: Cancel,
}

// Nothing in it is pinned: the items are moved in and out as plain values.
impl<T> Unpin for Chunks<T> {}

impl<T: Serialize> Stream for Chunks<T> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let Chunks { receiver, waiting, beat, .. } = self.get_mut();
        let Poll::Ready(n) = receiver.poll_recv_many(cx, waiting, MAX_READY) else {
            return beat.poll_tick(cx).map(|_| Some(Ok(Bytes::from_static(b"\n"))));
        };
        if n == 0 {
            return Poll::Ready(None);
        }
        let mut text = Vec::with_capacity(n * 512);
        for item in waiting.drain(..) {
            // Plain data can always be serialized; a line that could not be is omitted as a whole.
            let start = text.len();
            match serde_json::to_writer(&mut text, &item) {
                Ok(()) => text.push(b'\n'),
                Err(_) => text.truncate(start),
            }
        }
        Poll::Ready(Some(Ok(Bytes::from(text))))
    }
}
