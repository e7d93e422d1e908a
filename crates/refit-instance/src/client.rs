//! The client side of the control API: blocking calls to an instance.
//!
//! Every call uses a connection of its own. It is driven by a current-thread runtime inside the
//! client, so that callers need no asynchronous code.

mod requests;
mod starved;

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

use crate::directory::{self, reason};
use crate::refusal::{Kind, Refusal};
use crate::wire::OBJECTS_HEADER;

/// The time for which an instance may be silent before it is taken to hang. Streams send a line
/// every two seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of times that it may be silent that long because it gets no processor.
const MAX_STARVED: u32 = 6;

/// The time that an instance may take for a request that is work and not only a query, such as
/// writing everything back and unmounting.
pub(crate) const WORK_TIMEOUT: Duration = Duration::from_secs(600);

/// A client of one instance.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    runtime: Runtime,
    pub(crate) timeout: Duration,
}

/// An answer of many lines that is read as it grows. Dropping it tells the instance that the client
/// no longer reads; a swap in progress is then rolled back.
#[derive(Debug)]
pub struct Lines<T> {
    socket: PathBuf,
    runtime: Runtime,
    pub(crate) timeout: Duration,
    /// The time for which the client has waited for data without receiving any.
    waited: Duration,
    /// The number of times that it waited longer, since the instance got no processor.
    starved: u32,
    body: Incoming,
    read: Vec<u8>,
    at: usize,
    expected: Option<u64>,
    operation: String,
    item: PhantomData<T>,
}

impl Client {
    /// Creates a client of the instance that listens on `socket`, without connecting to it.
    ///
    /// # Errors
    ///
    /// The host has run out of descriptors.
    pub fn new(socket: &Path) -> Result<Self, Refusal> {
        Ok(Client { socket: socket.to_owned(), runtime: runtime()?, timeout: SILENCE_TIMEOUT })
    }

    /// Sets how long the instance may be silent before a call fails; the default is ten seconds.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns whether a process listens on the socket, busy or not. Sends no request.
    #[must_use]
    pub fn is_there(&self) -> bool {
        directory::listens(&self.socket)
    }

    /// Sends a query that can be answered at once.
    pub(crate) fn get<T: DeserializeOwned>(
        &self,
        operation: &str,
        path: &str,
    ) -> Result<T, Refusal> {
        let request = get(operation, path)?;
        understood(operation, &self.body(self.timeout, operation, request)?)
    }

    /// As [`get`](Self::get); `None` if there is no such thing.
    pub(crate) fn find<T: DeserializeOwned>(
        &self,
        operation: &str,
        path: &str,
    ) -> Result<Option<T>, Refusal> {
        match self.get(operation, path) {
            Ok(found) => Ok(Some(found)),
            Err(refusal) if refusal.kind == Kind::Unknown => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    pub(crate) fn body(
        &self,
        timeout: Duration,
        operation: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<Bytes, Refusal> {
        let exchange = async {
            let response = send(&self.socket, operation, request).await?;
            collect(operation, response.into_body()).await
        };
        self.within(timeout, operation, &self.runtime, exchange)
    }

    /// Upgrades a connection, which the runtime drives.
    pub(crate) fn upgraded(
        &self,
        operation: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<(Upgraded, Runtime), Refusal> {
        let runtime = runtime()?;
        let sent = send_upgrade(&self.socket, operation, request);
        Ok((self.within(self.timeout, operation, &runtime, sent)?, runtime))
    }

    pub(crate) fn lines<T>(
        &self,
        operation: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<Lines<T>, Refusal> {
        let runtime = runtime()?;
        let sent = send(&self.socket, operation, request);
        let response = self.within(self.timeout, operation, &runtime, sent)?;
        let expected = response.headers().get(OBJECTS_HEADER);
        Ok(Lines {
            socket: self.socket.clone(),
            runtime,
            timeout: self.timeout,
            waited: Duration::ZERO,
            starved: 0,
            expected: expected.and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok()),
            body: response.into_body(),
            read: Vec::new(),
            at: 0,
            operation: operation.to_owned(),
            item: PhantomData,
        })
    }

    fn within<T>(
        &self,
        timeout: Duration,
        operation: &str,
        runtime: &Runtime,
        answer: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let mut answer = std::pin::pin!(answer);
        for _ in 0..=MAX_STARVED {
            let in_time = async { tokio::time::timeout(timeout, &mut answer).await };
            if let Ok(answer) = runtime.block_on(in_time) {
                return answer;
            }
            if !starved::waits_for_a_processor(&self.socket) {
                break;
            }
        }
        Err(silent(&self.socket, operation, timeout))
    }
}

/// The result of waiting for a line.
enum Read {
    /// The range of the buffer that contains the line.
    Line(Range<usize>),
    /// No line arrived in the given time.
    Quiet,
    /// The answer has ended.
    End,
}

impl<T> Lines<T> {
    /// Returns the maximum number of lines that will arrive, if it is known.
    pub fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// Returns the next line that is not empty.
    fn line(&mut self, until: Option<Instant>) -> Result<Read, Refusal> {
        loop {
            let unread = &self.read[self.at..];
            if let Some(length) = unread.iter().position(|b| *b == b'\n') {
                let line = self.at..self.at + length;
                self.at = line.end + 1;
                if line.is_empty() {
                    continue;
                }
                return Ok(Read::Line(line));
            }
            self.read.drain(..self.at);
            self.at = 0;
            if !self.more(until)? {
                let over = until.is_some_and(|until| Instant::now() >= until);
                return Ok(if over { Read::Quiet } else { Read::End });
            }
        }
    }

    /// Reads more data. Returns `false` if none arrived in time or the answer has ended.
    fn more(&mut self, until: Option<Instant>) -> Result<bool, Refusal> {
        loop {
            let began = Instant::now();
            let left = until.map_or(self.timeout, |u| u.saturating_duration_since(began));
            if left.is_zero() {
                return Ok(false);
            }
            let wait = left.min(self.timeout.saturating_sub(self.waited));
            let body = &mut self.body;
            let frame =
                self.runtime.block_on(async { tokio::time::timeout(wait, body.frame()).await });
            match frame {
                Ok(Some(Ok(frame))) => {
                    (self.waited, self.starved) = (Duration::ZERO, 0);
                    self.read.extend(frame.data_ref().into_iter().flatten());
                    return Ok(true);
                }
                Ok(Some(Err(e))) => return Err(broken_off(&self.operation, &e)),
                Ok(None) => return Ok(false),
                Err(_) => self.waited += began.elapsed(),
            }
            if self.waited >= self.timeout {
                if self.starved < MAX_STARVED && starved::waits_for_a_processor(&self.socket) {
                    (self.waited, self.starved) = (Duration::ZERO, self.starved + 1);
                    continue;
                }
                return Err(silent(&self.socket, &self.operation, self.timeout));
            }
        }
    }
}

impl<T: DeserializeOwned> Lines<T> {
    /// Returns the next line if it arrives within `time`: `None` if the answer has ended,
    /// `Ok(None)` if no line arrived.
    pub fn next_within(&mut self, time: Duration) -> Option<Result<Option<T>, Refusal>> {
        self.take(Instant::now().checked_add(time))
    }

    fn take(&mut self, until: Option<Instant>) -> Option<Result<Option<T>, Refusal>> {
        match self.line(until) {
            Ok(Read::Line(line)) => Some(understood(&self.operation, &self.read[line]).map(Some)),
            Ok(Read::Quiet) => Some(Ok(None)),
            Ok(Read::End) => None,
            Err(refusal) => Some(Err(refusal)),
        }
    }
}

impl<T: DeserializeOwned> Iterator for Lines<T> {
    type Item = Result<T, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(None).and_then(Result::transpose)
    }
}

pub(crate) fn understood<T: DeserializeOwned>(operation: &str, text: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(text).map_err(|e| not_understood(operation, &e))
}

fn runtime() -> Result<Runtime, Refusal> {
    Builder::new_current_thread().enable_all().build().map_err(|e| {
        Refusal::new(
            Kind::Failed,
            "call an instance",
            reason(&e),
            "raise the limit on open files (ulimit -n)",
        )
    })
}

pub(crate) fn post<T: Serialize>(
    operation: &str,
    path: &str,
    body: &T,
) -> Result<Request<Full<Bytes>>, Refusal> {
    let body = serde_json::to_vec(body).map_err(|e| {
        Refusal::new(Kind::Malformed, operation, e.to_string(), "use names in UTF-8")
    })?;
    request(operation, "POST", path, Bytes::from(body))
}

pub(crate) fn with_query<T: Serialize>(
    operation: &str,
    path: &str,
    query: &T,
) -> Result<String, Refusal> {
    let query = serde_urlencoded::to_string(query).map_err(|e| {
        Refusal::new(Kind::Malformed, operation, e.to_string(), "simplify the request")
    })?;
    Ok(format!("{path}?{query}"))
}

pub(crate) fn get(operation: &str, path: &str) -> Result<Request<Full<Bytes>>, Refusal> {
    request(operation, "GET", path, Bytes::new())
}

fn request(
    operation: &str,
    method: &str,
    path: &str,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, Refusal> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "refit")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(|e| Refusal::new(Kind::Malformed, operation, e.to_string(), "reduce the request"))
}

async fn send(
    socket: &Path,
    operation: &str,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Refusal> {
    let response = exchange(socket, operation, request).await?;
    if response.status().is_success() {
        return Ok(response);
    }
    Err(refused(operation, response).await)
}

/// Sends a request to upgrade the connection, and returns what it has become.
async fn send_upgrade(
    socket: &Path,
    operation: &str,
    request: Request<Full<Bytes>>,
) -> Result<Upgraded, Refusal> {
    let response = exchange(socket, operation, request).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return hyper::upgrade::on(response).await.map_err(|e| broken_off(operation, &e));
    }
    Err(refused(operation, response).await)
}

/// Sends a request, and returns the answer, whatever it is.
async fn exchange(
    socket: &Path,
    operation: &str,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Refusal> {
    let stream =
        UnixStream::connect(socket).await.map_err(|e| unreachable(socket, operation, &e))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| broken_off(operation, &e))?;
    // Errors of the connection are also returned by the calls below.
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    sender.send_request(request).await.map_err(|e| broken_off(operation, &e))
}

/// Returns the refusal that an answer contains.
async fn refused(operation: &str, response: Response<Incoming>) -> Refusal {
    let status = response.status();
    match collect(operation, response.into_body()).await {
        Ok(body) => serde_json::from_slice(&body).unwrap_or_else(|_| said(operation, status)),
        Err(refusal) => refusal,
    }
}

async fn collect(operation: &str, body: Incoming) -> Result<Bytes, Refusal> {
    Ok(body.collect().await.map_err(|e| broken_off(operation, &e))?.to_bytes())
}

fn silent(socket: &Path, operation: &str, timeout: Duration) -> Refusal {
    let pid = pid_of(socket);
    Refusal::new(
        Kind::Unreachable,
        operation,
        format!("instance {pid} has not answered for {} s", timeout.as_secs_f64()),
        format!(
            "check whether process {pid} is stopped or busy; it may still carry out the request"
        ),
    )
}

fn pid_of(socket: &Path) -> String {
    socket.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

fn unreachable(socket: &Path, operation: &str, e: &io::Error) -> Refusal {
    let pid = pid_of(socket);
    let (obstacle, remedy) = match e.kind() {
        io::ErrorKind::ConnectionRefused => {
            (format!("instance {pid} is dead"), "start one with `refit mount`")
        }
        io::ErrorKind::NotFound => (
            format!("there is no instance {pid}"),
            "list instances with `refit mounts`, `refit ps` or `refit instances`",
        ),
        io::ErrorKind::WouldBlock => (
            format!("instance {pid} accepts no more connections; too many are waiting"),
            "check whether its process is stopped or busy",
        ),
        _ => (
            format!("{}: {}", socket.display(), reason(e)),
            "run refit as the user who started the instance",
        ),
    };
    Refusal::new(Kind::Unreachable, operation, obstacle, remedy)
}

fn broken_off(operation: &str, e: &hyper::Error) -> Refusal {
    Refusal::new(
        Kind::Unreachable,
        operation,
        format!("the instance closed the connection ({e})"),
        "check whether it still runs; a change in progress is rolled back",
    )
}

fn not_understood(operation: &str, e: &serde_json::Error) -> Refusal {
    Refusal::new(
        Kind::Failed,
        operation,
        format!("the answer cannot be decoded ({e})"),
        "use the same version of refit at both ends",
    )
}

fn said(operation: &str, status: StatusCode) -> Refusal {
    Refusal::new(
        Kind::Failed,
        operation,
        format!("the instance answered {status}"),
        "use the same version of refit at both ends",
    )
}
