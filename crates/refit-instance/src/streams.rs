//! Answers that grow while they are read: reports as changes end, the journal as it is written.
//!
//! The work is done on a blocking thread that hands lines to the connection through a channel. When the
//! requester goes away the connection drops its end of the channel, and with it the guard that cancels the
//! change in progress. Lines that are ready together leave together: a swap of ten thousand objects is some
//! hundred writes, not ten thousand. When there is nothing to say for a while, an empty line says that the
//! instance lives, so that whoever waits can tell a quiet journal from an instance that hangs.

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

/// Lines that may be ready before the one who makes them has to wait for the one who reads them.
const READY: usize = 1024;

/// Between two empty lines. Clients wait for several of them.
const BEAT: Duration = Duration::from_secs(2);

/// Answers that grow at the same time at most; each has a thread. What is more than this is refused, so that whoever follows many things
/// does not keep others from an answer.
const STREAMS: usize = 1024;

/// Answers that grow now.
static GROWING: AtomicUsize = AtomicUsize::new(0);

/// Counts an answer that grows for as long as it lives.
struct Growing;

impl Growing {
    fn begin() -> Option<Self> {
        // Relaxed: a count, which guards nothing.
        let before = GROWING.fetch_add(1, Ordering::Relaxed);
        let growing = Growing;
        (before < STREAMS).then_some(growing)
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        GROWING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Makes the lines of an answer on a thread of its own: it may take as long as somebody reads, and threads that answer at once are few.
///
/// # Errors
/// So many answers grow already, or the host has no thread to give.
pub(crate) fn begin(asked: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
    let Some(growing) = Growing::begin() else {
        let obstacle = format!("{STREAMS} answers are being followed already");
        return Err(Refusal::new(Kind::Busy, asked, obstacle, "end some of them first"));
    };
    let run = move || {
        let _growing = growing;
        work();
    };
    let begun = std::thread::Builder::new().name("refit-change".into()).spawn(run);
    begun.map(drop).map_err(|e| Refusal::new(Kind::Failed, asked, reason(&e), "try again"))
}

/// Tells the one who makes lines that nobody wants them any more.
#[derive(Debug)]
struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        // Pairs with the load in whoever does the work; nothing else is published with it.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The two ends of an answer of lines of type `T`; the flag becomes true when the requester has gone.
pub(crate) fn lines<T: Serialize + Send + 'static>() -> (Sender<T>, Arc<AtomicBool>, Response) {
    let (sender, receiver) = mpsc::channel(READY);
    let gone = Arc::new(AtomicBool::new(false));
    let body = Body::from_stream(chunks(receiver, Cancel(Arc::clone(&gone))));
    let mut response = body.into_response();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    (sender, gone, response)
}

fn chunks<T: Serialize + Send + 'static>(
    receiver: Receiver<T>,
    cancel: Cancel,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let beat = interval_at(Instant::now() + BEAT, BEAT);
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
        let Poll::Ready(n) = receiver.poll_recv_many(cx, waiting, READY) else {
            return beat.poll_tick(cx).map(|_| Some(Ok(Bytes::from_static(b"\n"))));
        };
        if n == 0 {
            return Poll::Ready(None);
        }
        let mut text = Vec::with_capacity(n * 512);
        for item in waiting.drain(..) {
            // Plain data always serialises; a line that did not would be left out whole.
            let start = text.len();
            match serde_json::to_writer(&mut text, &item) {
                Ok(()) => text.push(b'\n'),
                Err(_) => text.truncate(start),
            }
        }
        Poll::Ready(Some(Ok(Bytes::from(text))))
    }
}
