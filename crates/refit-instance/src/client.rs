//! The other end of the control API: blocking calls to an instance.
//!
//! Every call is a connection of its own. It is driven by a current-thread runtime inside the client, so that
//! callers need to know nothing about asynchronous code.

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

use crate::directory::{self, reason};
use crate::refusal::{Kind, Refusal};
use crate::wire::{
    Adapt, CacheAnswer, CacheMode, CacheRequest, ChangesQuery, ClassInfo, EndRecordQuery, Health,
    JournalLine, KnownWrapper, Mount, MountRequest, OBJECTS_HEADER, ObjectInfo, ObjectQuery, Pause,
    ProcessInfo, RecordRequest, Recorded, Swap, Unwrap, Upgrade, UpgradeLine, Wrap,
};

/// How long an instance may be silent before it is taken to hang. Streams say something every other second.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long an instance may take for what is work and not only an answer: to write everything back and unmount.
pub(crate) const LONG_PATIENCE: Duration = Duration::from_secs(600);

/// Calls one instance.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    runtime: Runtime,
    pub(crate) patience: Duration,
}

/// An answer of many lines that is read as it grows. Dropping it tells the instance that nobody reads any
/// more; a swap is then rolled back where it stands.
#[derive(Debug)]
pub struct Lines<T> {
    socket: PathBuf,
    runtime: Runtime,
    pub(crate) patience: Duration,
    /// For how long nothing has come while we waited for it.
    waited: Duration,
    body: Incoming,
    read: Vec<u8>,
    at: usize,
    expected: Option<u64>,
    asked: String,
    item: PhantomData<T>,
}

impl Client {
    /// A client of the instance that listens there. Nothing is asked yet.
    ///
    /// # Errors
    /// The host is out of descriptors.
    pub fn new(socket: &Path) -> Result<Self, Refusal> {
        Ok(Client { socket: socket.to_owned(), runtime: runtime()?, patience: PATIENCE })
    }

    /// Changes how long the instance may be silent before a call gives up; ten seconds otherwise.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Whether somebody listens there still, busy or not. Nothing is asked.
    #[must_use]
    pub fn is_there(&self) -> bool {
        directory::listens(&self.socket)
    }

    /// Whether the instance lives.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn health(&self) -> Result<Health, Refusal> {
        self.get("ask for its health", "/health")
    }

    /// What the instance counts, as OpenMetrics text.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn metrics(&self) -> Result<String, Refusal> {
        let asked = "read metrics";
        let text = self.body(self.patience, asked, get(asked, "/metrics")?)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Objects whose names match, by name.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn objects(&self, glob: &str) -> Result<Vec<ObjectInfo>, Refusal> {
        self.objects_of(glob, None)
    }

    /// The same, of one mount only.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn objects_of(&self, glob: &str, mount: Option<&str>) -> Result<Vec<ObjectInfo>, Refusal> {
        let asked = format!("list {glob}");
        let query = ObjectQuery { glob: Some(glob.to_owned()), mount: mount.map(str::to_owned) };
        self.get(&asked, &with_query(&asked, "/objects", &query)?)
    }

    /// Swaps; the reports come as the changes end.
    ///
    /// # Errors
    /// It does not answer or refuses; nothing has been swapped then.
    pub fn swap(&self, swap: &Swap) -> Result<Lines<refit_change::Report>, Refusal> {
        let asked = format!("swap {} to {}", swap.glob, swap.implementation);
        self.lines(&asked, post(&asked, "/swap", swap)?)
    }

    /// Has caches swapped by how they are used, for as long as the lines are read; the reports come as changes end.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn adapt(&self, adapt: &Adapt) -> Result<Lines<refit_change::Report>, Refusal> {
        let asked = format!("adapt {}", adapt.glob);
        self.lines(&asked, post(&asked, "/adapt", adapt)?)
    }

    /// The classes that there are, a line for each factory.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn classes(&self) -> Result<Vec<ClassInfo>, Refusal> {
        self.get("list classes", "/classes")
    }

    /// Upgrades a class; how far it is, and its report in the end.
    ///
    /// # Errors
    /// It does not answer or refuses; nothing has been swapped then.
    pub fn upgrade(&self, upgrade: &Upgrade) -> Result<Lines<UpgradeLine>, Refusal> {
        let asked = format!("upgrade {} to {}", upgrade.class, upgrade.implementation);
        self.lines(&asked, post(&asked, "/upgrade", upgrade)?)
    }

    /// Holds the upgrade of a class up, or lets it go on.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn pause(&self, class: &str, paused: bool) -> Result<(), Refusal> {
        let asked = format!("{} the upgrade of {class}", if paused { "pause" } else { "resume" });
        let body = Pause { class: class.to_owned(), paused };
        self.body(self.patience, &asked, post(&asked, "/pause", &body)?).map(drop)
    }

    /// Wraps; the reports come as the changes end.
    ///
    /// # Errors
    /// It does not answer or refuses; nothing has been wrapped then.
    pub fn wrap(&self, wrap: &Wrap) -> Result<Lines<refit_change::Report>, Refusal> {
        let asked = format!("wrap {} in {}", wrap.glob, wrap.wrapper);
        self.lines(&asked, post(&asked, "/wrap", wrap)?)
    }

    /// Unwraps; the reports come as the changes end.
    ///
    /// # Errors
    /// It does not answer or refuses; nothing has been unwrapped then.
    pub fn unwrap(&self, unwrap: &Unwrap) -> Result<Lines<refit_change::Report>, Refusal> {
        let asked = format!("unwrap {}", unwrap.glob);
        self.lines(&asked, post(&asked, "/unwrap", unwrap)?)
    }

    /// Wrappers that can be attached.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn wrappers(&self) -> Result<Vec<KnownWrapper>, Refusal> {
        self.get("list wrappers", "/wrappers")
    }

    /// Reads the journal.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn changes(&self, query: &ChangesQuery) -> Result<Lines<JournalLine>, Refusal> {
        let asked = "read the journal";
        let path = with_query(asked, "/changes", query)?;
        self.lines(asked, get(asked, &path)?)
    }

    /// Processes of the program that runs under it, by number.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn processes(&self) -> Result<Vec<ProcessInfo>, Refusal> {
        self.get("list processes", "/processes")
    }

    /// What is mounted.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn mounts(&self) -> Result<Vec<Mount>, Refusal> {
        self.get("list mounts", "/mounts")
    }

    /// Mounts; returns when the mount serves.
    ///
    /// # Errors
    /// It does not answer or refuses; nothing is mounted then.
    pub fn mount(&self, mount: &MountRequest) -> Result<Mount, Refusal> {
        let asked = format!("mount {}", mount.mountpoint.display());
        let answer = self.body(LONG_PATIENCE, &asked, post(&asked, "/mounts", mount)?)?;
        understood(&asked, &answer)
    }

    /// Has the instance take part in a recording, whose session is at the path.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn record(&self, session: &Path) -> Result<(), Refusal> {
        let asked = format!("record into {}", session.display());
        let body = RecordRequest { session: session.to_owned() };
        self.body(self.patience, &asked, post(&asked, "/record", &body)?).map(drop)
    }

    /// Where the sessions are that it takes part in.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn recorded(&self) -> Result<Vec<PathBuf>, Refusal> {
        self.get::<Recorded>("ask for its recordings", "/record").map(|recorded| recorded.sessions)
    }

    /// Ends its part in the recording whose session it was given by this path.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn end_record(&self, session: &Path) -> Result<(), Refusal> {
        let asked = "end the recording";
        let query = EndRecordQuery { session: Some(crate::path_text::text(session)) };
        let path = with_query(asked, "/record", &query)?;
        let request = request(asked, "DELETE", &path, Bytes::new())?;
        self.body(self.patience, asked, request).map(drop)
    }

    /// Unmounts; returns when everything has been stored. With `discard` it gives up what cannot be stored.
    ///
    /// # Errors
    /// It does not answer or refuses; the mount goes on being served then.
    pub fn unmount(&self, id: u32, discard: bool) -> Result<(), Refusal> {
        let asked = format!("unmount mount {id}");
        let request =
            request(&asked, "DELETE", &format!("/mounts/{id}?discard={discard}"), Bytes::new())?;
        self.body(LONG_PATIENCE, &asked, request).map(drop)
    }

    /// Changes who caches the files that match; returns how many of them are known now.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn set_cache_mode(&self, glob: &str, mode: CacheMode) -> Result<u64, Refusal> {
        let asked = format!("change the cache mode of {glob}");
        let body = CacheRequest { glob: glob.to_owned(), mode };
        let answer = self.body(LONG_PATIENCE, &asked, post(&asked, "/cache", &body)?)?;
        understood::<CacheAnswer>(&asked, &answer).map(|answer| answer.files)
    }

    /// Asks what can be answered at once.
    pub(crate) fn get<T: DeserializeOwned>(&self, asked: &str, path: &str) -> Result<T, Refusal> {
        let request = get(asked, path)?;
        understood(asked, &self.body(self.patience, asked, request)?)
    }

    pub(crate) fn body(
        &self,
        patience: Duration,
        asked: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<Bytes, Refusal> {
        let exchange = async {
            let response = send(&self.socket, asked, request).await?;
            collect(asked, response.into_body()).await
        };
        self.within(patience, asked, &self.runtime, exchange)
    }

    pub(crate) fn lines<T>(
        &self,
        asked: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<Lines<T>, Refusal> {
        let runtime = runtime()?;
        let sent = send(&self.socket, asked, request);
        let response = self.within(self.patience, asked, &runtime, sent)?;
        let expected = response.headers().get(OBJECTS_HEADER);
        Ok(Lines {
            socket: self.socket.clone(),
            runtime,
            patience: self.patience,
            waited: Duration::ZERO,
            expected: expected.and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok()),
            body: response.into_body(),
            read: Vec::new(),
            at: 0,
            asked: asked.to_owned(),
            item: PhantomData,
        })
    }

    fn within<T>(
        &self,
        patience: Duration,
        asked: &str,
        runtime: &Runtime,
        answer: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let in_time = runtime.block_on(async { tokio::time::timeout(patience, answer).await });
        in_time.unwrap_or_else(|_| Err(silent(&self.socket, asked, patience)))
    }
}

/// What became of waiting for a line.
enum Read {
    /// It stands here in what was read.
    Line(Range<usize>),
    /// None came in the time given.
    Quiet,
    /// None will come.
    End,
}

impl<T> Lines<T> {
    /// How many lines will come at most, if that is known.
    pub fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// The next line that is not empty.
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

    /// Reads on; false if nothing came in time, or nothing will.
    fn more(&mut self, until: Option<Instant>) -> Result<bool, Refusal> {
        loop {
            let began = Instant::now();
            let left = until.map_or(self.patience, |u| u.saturating_duration_since(began));
            if left.is_zero() {
                return Ok(false);
            }
            let wait = left.min(self.patience.saturating_sub(self.waited));
            let body = &mut self.body;
            let frame =
                self.runtime.block_on(async { tokio::time::timeout(wait, body.frame()).await });
            match frame {
                Ok(Some(Ok(frame))) => {
                    self.waited = Duration::ZERO;
                    self.read.extend(frame.data_ref().into_iter().flatten());
                    return Ok(true);
                }
                Ok(Some(Err(e))) => return Err(broken_off(&self.asked, &e)),
                Ok(None) => return Ok(false),
                Err(_) => self.waited += began.elapsed(),
            }
            if self.waited >= self.patience {
                return Err(silent(&self.socket, &self.asked, self.patience));
            }
        }
    }
}

impl<T: DeserializeOwned> Lines<T> {
    /// The next line, if it comes within that time: `None` when there are no more, `Ok(None)` when none came.
    pub fn next_within(&mut self, time: Duration) -> Option<Result<Option<T>, Refusal>> {
        self.take(Instant::now().checked_add(time))
    }

    fn take(&mut self, until: Option<Instant>) -> Option<Result<Option<T>, Refusal>> {
        match self.line(until) {
            Ok(Read::Line(line)) => Some(understood(&self.asked, &self.read[line]).map(Some)),
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

pub(crate) fn understood<T: DeserializeOwned>(asked: &str, text: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(text).map_err(|e| not_understood(asked, &e))
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
    asked: &str,
    path: &str,
    body: &T,
) -> Result<Request<Full<Bytes>>, Refusal> {
    let body = serde_json::to_vec(body).map_err(|e| {
        Refusal::new(Kind::Malformed, asked, e.to_string(), "names that are sent must be UTF-8")
    })?;
    request(asked, "POST", path, Bytes::from(body))
}

pub(crate) fn with_query<T: Serialize>(
    asked: &str,
    path: &str,
    query: &T,
) -> Result<String, Refusal> {
    let query = serde_urlencoded::to_string(query).map_err(|e| {
        Refusal::new(Kind::Malformed, asked, e.to_string(), "ask for something simpler")
    })?;
    Ok(format!("{path}?{query}"))
}

pub(crate) fn get(asked: &str, path: &str) -> Result<Request<Full<Bytes>>, Refusal> {
    request(asked, "GET", path, Bytes::new())
}

fn request(
    asked: &str,
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
        .map_err(|e| Refusal::new(Kind::Malformed, asked, e.to_string(), "ask for less at once"))
}

async fn send(
    socket: &Path,
    asked: &str,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Refusal> {
    let stream = UnixStream::connect(socket).await.map_err(|e| unreachable(socket, asked, &e))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| broken_off(asked, &e))?;
    // Its errors come out of the calls below as well.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let response = sender.send_request(request).await.map_err(|e| broken_off(asked, &e))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let body = collect(asked, response.into_body()).await?;
    Err(serde_json::from_slice(&body).unwrap_or_else(|_| said(asked, status)))
}

async fn collect(asked: &str, body: Incoming) -> Result<Bytes, Refusal> {
    Ok(body.collect().await.map_err(|e| broken_off(asked, &e))?.to_bytes())
}

fn silent(socket: &Path, asked: &str, patience: Duration) -> Refusal {
    let pid = pid_of(socket);
    Refusal::new(
        Kind::Unreachable,
        asked,
        format!("instance {pid} has not answered for {} s", patience.as_secs_f64()),
        format!("see whether process {pid} is stopped or busy; it may still do what was asked"),
    )
}

fn pid_of(socket: &Path) -> String {
    socket.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

fn unreachable(socket: &Path, asked: &str, e: &io::Error) -> Refusal {
    let pid = pid_of(socket);
    let (obstacle, remedy) = match e.kind() {
        io::ErrorKind::ConnectionRefused => {
            (format!("instance {pid} is dead"), "start one with `refit mount`")
        }
        io::ErrorKind::NotFound => {
            (format!("there is no instance {pid}"), "see `refit mounts` for what there is")
        }
        io::ErrorKind::WouldBlock => (
            format!("instance {pid} takes no more callers; too many are waiting"),
            "see whether its process is stopped or busy",
        ),
        _ => (format!("{}: {}", socket.display(), reason(e)), "ask as the user who started it"),
    };
    Refusal::new(Kind::Unreachable, asked, obstacle, remedy)
}

fn broken_off(asked: &str, e: &hyper::Error) -> Refusal {
    Refusal::new(
        Kind::Unreachable,
        asked,
        format!("the instance broke off ({e})"),
        "see whether it still runs; what was in progress is rolled back",
    )
}

fn not_understood(asked: &str, e: &serde_json::Error) -> Refusal {
    Refusal::new(
        Kind::Failed,
        asked,
        format!("the answer makes no sense ({e})"),
        "use the same version of refit at both ends",
    )
}

fn said(asked: &str, status: StatusCode) -> Refusal {
    Refusal::new(
        Kind::Failed,
        asked,
        format!("the instance said {status}"),
        "use the same version of refit at both ends",
    )
}
