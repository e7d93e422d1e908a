//! The context in which a request is handled: the state of the instance, and the client.

use std::sync::Arc;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::sync::watch;

use crate::accept::ReservingListener;
use crate::state::Core;

/// The state that the handlers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    /// Becomes true when the instance ends. Streams that would not end otherwise watch it.
    pub(crate) ending: watch::Receiver<bool>,
}

/// The credentials of the client from the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) uid: Option<u32>,
    pub(crate) pid: Option<i32>,
}

impl Peer {
    /// Returns a description of the requester for reports.
    pub(crate) fn owner(self) -> String {
        let uid = self.uid.map_or_else(|| "?".to_owned(), |uid| uid.to_string());
        match self.pid {
            Some(pid) => format!("uid {uid}, pid {pid}"),
            None => format!("uid {uid}"),
        }
    }
}

impl Connected<IncomingStream<'_, ReservingListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, ReservingListener>) -> Self {
        let credentials = stream.io().credentials();
        Peer { uid: credentials.map(|c| c.uid()), pid: credentials.and_then(|c| c.pid()) }
    }
}
