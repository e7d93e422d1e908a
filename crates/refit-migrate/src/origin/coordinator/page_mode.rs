//! Switches a group from borrowed pages to pages that move.
//!
//! Nodes of one host borrow pages. Once a thread goes to another host, all nodes but the origin,
//! including those of this host, have pages of their own: so each group uses one protocol at a
//! time. During the switch all threads are at their origin.

use std::io;
use std::sync::Arc;

use refit_messages::Transport;
use refit_sys::shadow_stub::Slot;
use refit_tracer::NotMovable;

use crate::dsm::{PageHome, Window};
use crate::origin::coordinator::{Coordinator, new_epoch};
use crate::origin::syscall_proxy::Proxy;
use crate::protocol::messages::{Descriptor, GroupParams, MemoryMode, Teardown};

impl Coordinator {
    /// Returns whether a thread can leave for where it is wanted; not yet, if others have to return
    /// first.
    ///
    /// # Errors
    /// It cannot leave at all.
    pub(super) fn ready_for(&mut self, id: u32) -> io::Result<bool> {
        if self.tree.supervisor.limits_itself(self.group.process) {
            return Err(NotMovable::LimitsItself.into());
        }
        let to = self.threads.get(&id).map(|thread| thread.wanted);
        let peers = self.layer.peers();
        let peer = peers.iter().find(|peer| Some(peer.id) == to);
        let far = peer.is_some_and(|peer| peer.transport == Transport::Tcp);
        if self.space.page_home.is_some()
            || !(far || self.page_policy.always_move || self.switching_mode)
        {
            return Ok(true);
        }
        self.space.check_unprobed()?;
        self.switching_mode = true;
        let away: Vec<u32> = self
            .threads
            .iter()
            .filter(|(_, thread)| thread.away_at().is_some())
            .map(|(&id, _)| id)
            .collect();
        if !away.is_empty() {
            away.into_iter().for_each(|id| self.recall(id));
            return Ok(false);
        }
        self.ledger.close(&self.layer);
        self.ready.clear();
        self.epoch = new_epoch();
        let teardown = Teardown { group: self.group, thread: None };
        for node in std::mem::take(&mut self.destinations) {
            // A node that is lost has nothing any more.
            let _ = self.layer.send(node, &teardown, &[]);
        }
        self.threads.values_mut().for_each(|thread| thread.ready_at.clear());
        let moved = self.move_pages();
        self.switching_mode = false;
        moved.map(|()| true)
    }

    fn move_pages(&mut self) -> io::Result<()> {
        let (group, layer, window) = (self.group, self.layer.clone(), self.page_policy.window);
        let (ledger, killer) = (Arc::clone(&self.ledger), Arc::clone(&self.killer));
        // At once: the coordinator may wait for a thread that waits for the page.
        let on_lost = move |why: &str| killer.kill(why);
        self.space.begin_moving(|frames, userfault| {
            PageHome::begin(group, &layer, (frames, userfault), (window, ledger), on_lost)
        })?;
        if let Some(page_home) = &self.space.page_home {
            self.remote_programs.set_page_home(group.process, page_home.clone());
            self.tree.threads.pages_move(self.coordinator_id);
        }
        Ok(())
    }

    /// Starts the proxy of a thread that is about to depart, whose calls will come by messages, if
    /// its destination shares no memory.
    pub(super) fn start_proxy(&self, id: u32, residency: u64, slot: Slot) -> io::Result<()> {
        let Some(thread) = self.threads.get(&id) else { return Ok(()) };
        if let Some(page_home) = self.space.page_home.clone() {
            let of = (self.group, id, residency);
            let proxy = Proxy::begin(of, slot, page_home, &self.layer, thread.wanted)?;
            self.remote_programs.set_proxy(self.group.process, id, proxy);
        }
        Ok(())
    }

    pub(super) fn params(&self) -> GroupParams {
        use std::os::fd::{AsFd, AsRawFd};
        let own = std::process::id();
        let hold = if self.space.page_home.is_some() {
            let window = match self.page_policy.window {
                Window::Fixed(count) => count.max(1),
                Window::Adaptive => 0,
            };
            MemoryMode::Move { window }
        } else {
            /// A mapping made in vain costs a tenth of one that has to be looked up (`bench/run
            /// moves`), and each has been needed by some node before.
            const FAULT_AROUND: u16 = 15;
            let beside = match self.page_policy.window {
                Window::Fixed(count) => count.saturating_sub(1),
                Window::Adaptive => FAULT_AROUND,
            };
            MemoryMode::Borrow {
                frames: Descriptor { process: own, number: self.space.frames.as_raw_fd() },
                slots: Descriptor { process: own, number: self.slots.as_fd().as_raw_fd() },
                beside,
            }
        };
        let window = self.space.window.clone();
        let (calls_home, lock, epoch) = (self.tree.calls_here, self.lock, self.epoch);
        GroupParams { window, hold, calls_home, lock, epoch }
    }
}
