//! Metrics over TCP, for scrapers that cannot ask a Unix socket.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;

use crate::metrics;

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Makes the text for each reading; the error says why there is none.
pub type MakeText = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Serves `GET /metrics` at the address until `ended` is true. `listening` is told where, since port 0 means any.
///
/// # Errors
/// The address cannot be listened on, or `listening` fails.
pub fn serve(
    address: SocketAddr,
    text: MakeText,
    ended: &AtomicBool,
    listening: impl FnOnce(SocketAddr) -> io::Result<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        listening(listener.local_addr()?)?;
        let app = Router::new().route("/metrics", get(move || answer(Arc::clone(&text))));
        let over = async {
            // Relaxed: nothing else is read on the strength of it.
            while !ended.load(Ordering::Relaxed) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            served = async { axum::serve(listener, app).await } => served,
            () = over => Ok(()),
        }
    })
}

async fn answer(text: MakeText) -> impl IntoResponse {
    let made = tokio::task::spawn_blocking(move || text()).await;
    match made {
        Ok(Ok(text)) => (StatusCode::OK, [(CONTENT_TYPE, metrics::CONTENT_TYPE)], text),
        Ok(Err(why)) => (StatusCode::SERVICE_UNAVAILABLE, [(CONTENT_TYPE, "text/plain")], why),
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(CONTENT_TYPE, "text/plain")],
            "refit made a mistake (a panic, see its standard error)".to_owned(),
        ),
    }
}
