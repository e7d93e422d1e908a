//! How a node is set up.

use std::net::SocketAddr;
use std::time::Duration;

use refit_messages::Security;

use crate::dsm::Window;
use crate::lookup::Protocol;
use crate::mm_lock::Lock;

/// How an instance is with others.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where instances of other hosts can join it.
    pub listen: Option<SocketAddr>,
    /// Instances of other hosts that it joins.
    pub join: Vec<String>,
    /// Who may be one of those.
    pub security: Security,
    /// After so much silence an instance of another host counts as dead.
    pub silence: Duration,
    /// Whether pages move to instances of the same host, too, which could borrow them.
    pub always_move: bool,
    /// How many pages are moved at once.
    pub window: Window,
    /// How programs' instances find what is mapped at an address, at first.
    pub retrieval: Protocol,
    /// How they agree on who may change the memory.
    pub lock: Lock,
    /// Whether processors of this host stay awake while there are programs that have moved.
    pub awake: bool,
    /// How many bytes of memory it owns for programs that move; `None`: as much as there is.
    pub memory: Option<u64>,
}

impl Default for Setting {
    /// One host.
    fn default() -> Self {
        Self {
            listen: None,
            join: Vec::new(),
            security: Security::None { anywhere: false },
            silence: Duration::from_secs(1),
            always_move: false,
            window: Window::Adaptive,
            retrieval: Protocol::Directory,
            lock: Lock::Queue,
            awake: false,
            memory: None,
        }
    }
}
