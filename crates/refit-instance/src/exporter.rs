//! Metrics over TCP, for scrapers that cannot connect to a Unix socket.

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

/// The interval at which the thread checks whether it should end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A function that returns the text for each request, or the reason why there is none.
pub type MakeText = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Serves `GET /metrics` at `address` until `ended` is true. Calls `listening` with the actual
/// address, since port 0 means any port.
///
/// # Errors
///
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
            // Relaxed, because the flag publishes no other data.
            while !ended.load(Ordering::Relaxed) {
                tokio::time::sleep(POLL_INTERVAL).await;
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
            "internal error of refit (a panic, see its standard error)".to_owned(),
        ),
    }
}
