//! The server of the control API: a thread with a socket and a current-thread runtime, and the
//! check of its clients.
//!
//! The socket's mode and directory keep other users out. The credentials of the peer are checked as
//! well, since a descriptor can be passed on and a mode can be changed. A client that is refused
//! receives an answer that says so.

use std::fs;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tracing::{debug, trace, warn};

use crate::accept::ReservingListener;
use crate::api;
use crate::context::{Peer, Shared};
use crate::refusal::{Kind, Refusal};
use crate::rejection::rejected;
use crate::state::Core;

/// The number of threads for requests that have a single answer, such as mounts; further ones wait.
/// Streaming answers have threads of their own.
const BLOCKING_THREADS: usize = 96;

/// The time within which answers have to be sent after the instance has been told to end.
const GRACE: Duration = Duration::from_secs(2);

/// The thread that serves the control API.
pub(crate) struct Server {
    socket: PathBuf,
    end: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(
        core: Arc<Core>,
        listener: StdListener,
        socket: PathBuf,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("refit-change")
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            ReservingListener::new(UnixListener::from_std(listener)?)?
        };
        let (end, ending) = watch::channel(false);
        let thread = thread::Builder::new().name("refit-control".into()).spawn(move || {
            runtime.block_on(serve(Shared { core, ending }, listener));
            // Changes in progress have been cancelled; each ends by itself within its deadline.
            runtime.shutdown_background();
        })?;
        Ok(Server { socket, end, thread: Some(thread) })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The socket is removed first, so that no new client connects.
        let _ = fs::remove_file(&self.socket);
        let _ = self.end.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(shared: Shared, listener: ReservingListener) {
    let mut ending = shared.ending.clone();
    let mut last_call = shared.ending.clone();
    let app: Router = api::router(shared.clone())
        .layer(middleware::from_fn_with_state(shared, only_owner_and_root))
        .layer(middleware::from_fn(with_body_read));
    let service = app.into_make_service_with_connect_info::<Peer>();
    let served = axum::serve(listener, service).with_graceful_shutdown(async move {
        let _ = ending.wait_for(|end| *end).await;
    });
    let too_long = async move {
        let _ = last_call.wait_for(|end| *end).await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        _ = async { served.await } => {}
        () = too_long => {}
    }
}

/// Serves a request and records it: requests for changes at level `DEBUG`, requests that only read
/// at level `TRACE`.
async fn recorded(request: Request, peer: Peer, next: Next) -> Response {
    static REQUESTS: AtomicU64 = AtomicU64::new(0);
    // Relaxed: the number only has to be unique.
    let number = REQUESTS.fetch_add(1, Ordering::Relaxed);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let reads = method == Method::GET;
    if reads {
        trace!(request = number, path, peer = peer.owner(), "a request to read");
    } else {
        debug!(request = number, %method, path, peer = peer.owner(), "a request");
    }
    let response = next.run(request).await;
    if reads {
        trace!(request = number, status = response.status().as_u16(), "is answered");
    } else {
        debug!(request = number, status = response.status().as_u16(), "is answered");
    }
    response
}

/// Reads the body of a request before it is served, whatever the answer will be. A connection on
/// which an answer leaves some of the body unread is closed, and a client that sends its next
/// request at that moment gets no answer to it.
async fn with_body_read(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let operation = format!("{} {}", head.method, head.uri.path());
    match axum::body::to_bytes(body, api::BODY_BYTES).await {
        Ok(body) => next.run(Request::from_parts(head, body.into())).await,
        Err(error) => {
            rejected(&operation, StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()).into_response()
        }
    }
}

async fn only_owner_and_root(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    if peer.uid == Some(0) || peer.uid == Some(shared.core.uid) {
        return recorded(request, peer, next).await;
    }
    warn!(peer = peer.owner(), path = request.uri().path(), "a request is forbidden");
    Refusal::new(
        Kind::Forbidden,
        format!("{} {}", request.method(), request.uri().path()),
        format!("this instance belongs to uid {}; you are {}", shared.core.uid, peer.owner()),
        "run refit as that user or as root",
    )
    .into_response()
}
