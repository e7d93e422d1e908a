//! The other end of the control API: blocking calls to an instance.
//!
//! Every call is a connection of its own. It is driven by a current-thread runtime inside the client, so that
//! callers need to know nothing about asynchronous code.

use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

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

use crate::directory::reason;
use crate::refusal::{Kind, Refusal};
use crate::wire::{
    CacheAnswer, CacheMode, CacheRequest, ChangesQuery, Health, JournalLine, Mount, MountRequest,
    OBJECTS_HEADER, ObjectInfo, ObjectQuery, Swap,
};

/// How long an instance may take to answer what it need only look up. An instance that lives but does not
/// accept any more (it may be out of descriptors) must not hang whoever asks.
const PATIENCE: Duration = Duration::from_secs(10);

/// Calls one instance.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    runtime: Runtime,
}

/// An answer of many lines that is read as it grows. Dropping it tells the instance that nobody reads any
/// more; a swap is then rolled back where it stands.
#[derive(Debug)]
pub struct Lines<T> {
    runtime: Runtime,
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
        Ok(Client { socket: socket.to_owned(), runtime: runtime()? })
    }

    /// Whether the instance lives.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn health(&self) -> Result<Health, Refusal> {
        self.get("ask for its health", "/health")
    }

    /// Objects whose names match, by name.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn objects(&self, glob: &str) -> Result<Vec<ObjectInfo>, Refusal> {
        let asked = format!("list {glob}");
        let query = ObjectQuery { glob: Some(glob.to_owned()) };
        self.get(&asked, &with_query(&asked, "/objects", &query)?)
    }

    /// Swaps; the reports come as the changes end.
    ///
    /// # Errors
    /// It does not answer or refuses; nothing has been swapped then.
    pub fn swap(&self, swap: &Swap) -> Result<Lines<refit_change::Report>, Refusal> {
        let asked = format!("swap {} to {}", swap.glob, swap.implementation);
        Lines::begin(&self.socket, &asked, post(&asked, "/swap", swap)?)
    }

    /// Reads the journal.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn changes(&self, query: &ChangesQuery) -> Result<Lines<JournalLine>, Refusal> {
        let asked = "read the journal";
        let path = with_query(asked, "/changes", query)?;
        Lines::begin(&self.socket, asked, request(asked, "GET", &path, Bytes::new())?)
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
        self.json(&asked, post(&asked, "/mounts", mount)?)
    }

    /// Unmounts; returns when everything has been written back.
    ///
    /// # Errors
    /// It does not answer or refuses; the mount goes on being served then.
    pub fn unmount(&self, id: u32) -> Result<(), Refusal> {
        let asked = format!("unmount mount {id}");
        let request = request(&asked, "DELETE", &format!("/mounts/{id}"), Bytes::new())?;
        self.body(&asked, request).map(drop)
    }

    /// Changes who caches the files that match; returns how many of them are known now.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn set_cache_mode(&self, glob: &str, mode: CacheMode) -> Result<u64, Refusal> {
        let asked = format!("change the cache mode of {glob}");
        let body = CacheRequest { glob: glob.to_owned(), mode };
        let answer: CacheAnswer = self.json(&asked, post(&asked, "/cache", &body)?)?;
        Ok(answer.files)
    }

    /// Asks what can be answered at once.
    fn get<T: DeserializeOwned>(&self, asked: &str, path: &str) -> Result<T, Refusal> {
        let request = request(asked, "GET", path, Bytes::new())?;
        let answer = self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, self.exchange(asked, request)).await
        });
        let body = answer.unwrap_or_else(|_| Err(silent(&self.socket, asked)))?;
        serde_json::from_slice(&body).map_err(|e| not_understood(asked, &e))
    }

    fn json<T: DeserializeOwned>(
        &self,
        asked: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<T, Refusal> {
        let body = self.body(asked, request)?;
        serde_json::from_slice(&body).map_err(|e| not_understood(asked, &e))
    }

    fn body(&self, asked: &str, request: Request<Full<Bytes>>) -> Result<Bytes, Refusal> {
        self.runtime.block_on(self.exchange(asked, request))
    }

    async fn exchange(&self, asked: &str, request: Request<Full<Bytes>>) -> Result<Bytes, Refusal> {
        let response = send(&self.socket, asked, request).await?;
        collect(asked, response.into_body()).await
    }
}

impl<T> Lines<T> {
    fn begin(socket: &Path, asked: &str, request: Request<Full<Bytes>>) -> Result<Self, Refusal> {
        let runtime = runtime()?;
        let response = runtime.block_on(send(socket, asked, request))?;
        let expected = response
            .headers()
            .get(OBJECTS_HEADER)
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.parse().ok());
        Ok(Lines {
            runtime,
            body: response.into_body(),
            read: Vec::new(),
            at: 0,
            expected,
            asked: asked.to_owned(),
            item: PhantomData,
        })
    }

    /// How many lines will come at most, if that is known.
    pub fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// The next whole line, without its end.
    fn line(&mut self) -> Option<Result<&[u8], Refusal>> {
        let mut searched = self.at;
        let end = loop {
            if let Some(i) = self.read[searched..].iter().position(|b| *b == b'\n') {
                break searched + i;
            }
            self.read.drain(..self.at);
            self.at = 0;
            searched = self.read.len();
            match self.runtime.block_on(self.body.frame()) {
                Some(Ok(frame)) => self.read.extend(frame.data_ref().into_iter().flatten()),
                Some(Err(e)) => return Some(Err(broken_off(&self.asked, &e))),
                None => return None,
            }
        };
        let line = &self.read[self.at..end];
        self.at = end + 1;
        Some(Ok(line))
    }
}

impl<T: DeserializeOwned> Iterator for Lines<T> {
    type Item = Result<T, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = match self.line()? {
            Ok(line) => Ok(serde_json::from_slice(line)),
            Err(refusal) => Err(refusal),
        };
        Some(item.and_then(|parsed| parsed.map_err(|e| not_understood(&self.asked, &e))))
    }
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

fn post<T: Serialize>(asked: &str, path: &str, body: &T) -> Result<Request<Full<Bytes>>, Refusal> {
    let body = serde_json::to_vec(body).map_err(|e| {
        Refusal::new(Kind::Malformed, asked, e.to_string(), "names that are sent must be UTF-8")
    })?;
    request(asked, "POST", path, Bytes::from(body))
}

fn with_query<T: Serialize>(asked: &str, path: &str, query: &T) -> Result<String, Refusal> {
    let query = serde_urlencoded::to_string(query).map_err(|e| {
        Refusal::new(Kind::Malformed, asked, e.to_string(), "ask for something simpler")
    })?;
    Ok(format!("{path}?{query}"))
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

fn silent(socket: &Path, asked: &str) -> Refusal {
    Refusal::new(
        Kind::Unreachable,
        asked,
        format!("instance {} does not answer", pid_of(socket)),
        "see whether it has run out of open files (`refit doctor`), or end it",
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
