//! The settings of a node.

use std::net::SocketAddr;
use std::time::Duration;

use refit_messages::Security;

use crate::dsm::Window;
use crate::lookup::Protocol;
use crate::mm_lock::Lock;

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where nodes of other hosts can join it.
    pub listen: Option<SocketAddr>,
    /// The nodes of other hosts that it joins.
    pub join: Vec<String>,
    /// The way in which it and nodes of other hosts authenticate each other.
    pub security: Security,
    /// A node of another host counts as lost after this time of silence.
    pub silence: Duration,
    /// Whether pages move to nodes of the same host, too, which could borrow them.
    pub always_move: bool,
    /// The number of pages that are requested at once.
    pub window: Window,
    /// The protocol by which nodes look up what is mapped at an address, at first.
    pub retrieval: Protocol,
    /// The protocol by which nodes agree on which may change the memory.
    pub lock: Lock,
    /// Whether processors of this host stay awake while a program is away.
    pub awake: bool,
    /// The number of bytes of memory that it owns for programs that move; `None`: as much as there
    /// is.
    pub memory: Option<u64>,
}

impl Default for Setting {
    /// Returns the settings of a node of a single host.
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
