//! The route by which another process of refit borrows a program that this instance traces, and its
//! client side.
//!
//! The connection is upgraded from HTTP to lines of JSON, one for each message of
//! [`refit_tracer::loan`]. When it is closed, the program goes on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use refit_tracer::loan::{LoanAnswer, LoanRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::client::{Client, post};
use crate::context::Shared;
use crate::refusal::{Refusal, no_process};
use crate::rejection::{blocking, rejected};
use crate::streams;
use crate::wire::LendRequest;

/// The protocol that the connection is upgraded to.
const PROTOCOL: HeaderValue = HeaderValue::from_static("refit-loan");

/// The maximum length of a message, in bytes.
const MAX_LINE: usize = 1 << 20;

/// The time that an instance may take for an answer: as long as a system call in the program, and
/// some more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Stops a process that this instance traces, and acts on its tasks as the client asks until the
/// client closes the connection.
#[utoipa::path(post, path = "/processes/{pid}/loan", params(("pid" = u32, Path,)), request_body = LendRequest, responses(
    (status = 101, description = "The connection is upgraded to `refit-loan`."),
    (status = 400, body = Refusal),
    (status = 404, body = Refusal),
    (status = 409, body = Refusal),
))]
pub(crate) async fn lend(
    State(shared): State<Shared>,
    Path(pid): Path<String>,
    mut request: Request,
) -> Result<Response, Refusal> {
    let operation = format!("lend process {pid}");
    let process = pid.parse().map_err(|_| no_process(&operation))?;
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let upgrade = upgrade.ok_or_else(|| {
        rejected(&operation, StatusCode::BAD_REQUEST, "it needs `Connection: Upgrade`")
    })?;
    let body = axum::body::to_bytes(request.into_body(), MAX_LINE).await.unwrap_or_default();
    let LendRequest { within_ms } = serde_json::from_slice(&body)
        .map_err(|e| rejected(&operation, StatusCode::BAD_REQUEST, &e.to_string()))?;
    let system = Arc::clone(&shared.core.system);
    // Not on this thread, which a loan under way needs: the memory of a program may have to come.
    let (unknown, followed) = (no_process(&operation), Arc::clone(&system));
    let find = move || followed.process(process).map(drop).ok_or(unknown);
    blocking(&operation, find).await?;
    let (say, said) = unbounded_channel();
    let (ask, mut asked) = unbounded_channel();
    streams::begin(&operation, move || {
        let failing = say.clone();
        let converse = move |answer| {
            say.send(answer).ok()?;
            asked.blocking_recv()
        };
        let lent = system.lend(process, Duration::from_millis(within_ms), Box::new(converse));
        if let Err(error) = lent {
            // The client may have disconnected.
            let _ = failing.send(LoanAnswer::Failed(error.raw_os_error().unwrap_or(EIO)));
        }
    })?;
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            // Errors end the loan, as the client's end does.
            let _ = serve(TokioIo::new(upgraded), said, ask).await;
        }
    });
    let headers =
        [(header::CONNECTION, HeaderValue::from_static("upgrade")), (header::UPGRADE, PROTOCOL)];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response())
}

/// The number of an error that has none.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// Passes answers to the client and its requests to the event loop, in turns.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut said: UnboundedReceiver<LoanAnswer>,
    ask: UnboundedSender<LoanRequest>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(answer) = said.recv().await {
        write(&mut stream, &answer).await?;
        ask.send(read(&mut stream).await?).map_err(io::Error::other)?;
    }
    Ok(())
}

async fn write<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

async fn read<T: DeserializeOwned>(
    stream: &mut BufReader<impl AsyncRead + Unpin>,
) -> io::Result<T> {
    let mut line = Vec::new();
    let mut limited = tokio::io::AsyncReadExt::take(stream, MAX_LINE as u64);
    if limited.read_until(b'\n', &mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

/// A program that an instance lends. Dropping it ends the loan.
#[derive(Debug)]
pub struct LentProgram {
    // Dropped before the runtime, which closes the connection.
    stream: BufReader<TokioIo<Upgraded>>,
    runtime: Runtime,
}

impl LentProgram {
    /// Receives the next answer.
    ///
    /// # Errors
    ///
    /// The instance has ended, or does not answer.
    pub fn receive(&mut self) -> io::Result<LoanAnswer> {
        let Self { stream, runtime } = self;
        runtime.block_on(async {
            tokio::time::timeout(ANSWER_TIMEOUT, read(stream)).await.map_err(io::Error::from)?
        })
    }

    /// Sends a request.
    ///
    /// # Errors
    ///
    /// The instance has ended.
    pub fn send(&mut self, request: LoanRequest) -> io::Result<()> {
        let Self { stream, runtime } = self;
        runtime.block_on(write(stream, &request))
    }
}

impl Client {
    /// Borrows a process that the instance traces: stops it `within` this time, and then acts on
    /// its tasks.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn lend(&self, pid: u32, within: Duration) -> Result<LentProgram, Refusal> {
        let operation = format!("lend process {pid}");
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let path = format!("/processes/{pid}/loan");
        let mut request = post(&operation, &path, &LendRequest { within_ms })?;
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, PROTOCOL);
        let (upgraded, runtime) = self.upgraded(&operation, request)?;
        Ok(LentProgram { stream: BufReader::new(TokioIo::new(upgraded)), runtime })
    }
}
