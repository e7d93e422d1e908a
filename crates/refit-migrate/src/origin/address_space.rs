//! The memory of a group, at its origin: private memory becomes frames that other nodes can map,
//! piece by piece, when they look it up.
//!
//! One memfd holds all frames of a group, and a page's offset in it is its address. So neighbouring
//! frames stay one mapping, an address says where its frame is, and no table is needed: memory is
//! shared if the kernel shows it as frames. A page that is shared never becomes private again while
//! another node may have it mapped.
//!
//! This breaks copy-on-write before a mapping leaves (Katz 2014, §5.7.3): private memory is copied
//! into frames while all threads are stopped, so that no thread writes to what is being copied.

mod advised;
mod contents;
mod convert;
mod fault_around;
mod known_frames;
mod make_private;
mod moving;
mod proc_title;
mod robust;
mod vma_attributes;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use refit_messages::InstanceId;
use refit_sys::agent::{Agent, Call};
use refit_sys::maps::{self, Kind, Mapping as LocalMapping, Maps};
use refit_sys::patch_area::is_area;
use refit_tracer::Supervisor;

use crate::dsm::PageHomeHandle;
use crate::frames::{self, access, is_frames};
use crate::origin::address_space::contents::{is_of_file, resident_bytes, written};
use crate::origin::address_space::known_frames::KnownFrames;
use crate::origin::address_space::vma_attributes::Former;
use crate::origin::consistency;
use crate::page::PAGE_SIZE;
use crate::protocol::messages::Mapping;
use crate::quota::Quota;
use crate::syscalls::ours;

/// The time within which all threads stop.
const STOP_ALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest distance below a stack at which an access counts as the stack's growth.
const MAX_STACK_GROWTH: u64 = 64 << 20;

/// A group's memory at its origin.
pub(crate) struct AddressSpace {
    process: u32,
    pub(crate) window: Range<u64>,
    pub(crate) frames: Arc<File>,
    pub(crate) agent: Arc<Agent>,
    /// The agent's task. `/proc` shows the memory by this number, but by the process's only until
    /// the first thread has ended.
    pub(crate) agent_task: u32,
    maps: Maps,
    /// The agent's descriptor of the frames.
    pub(crate) number: u32,
    pub(crate) supervisor: Arc<Supervisor>,
    /// The page home, where pages move.
    pub(crate) page_home: Option<PageHomeHandle>,
    former: Arc<Former>,
    known_frames: KnownFrames,
    quota: Arc<Quota>,
}

impl AddressSpace {
    pub(crate) fn new(
        process: u32,
        window: Range<u64>,
        frames: File,
        ((agent, agent_task), number): ((Agent, u32), u32),
        (supervisor, quota): (Arc<Supervisor>, Arc<Quota>),
    ) -> io::Result<Self> {
        let (frames, agent, former) = (Arc::new(frames), Arc::new(agent), Arc::new(Former::new()));
        let (page_home, maps) = (None, Maps::open(agent_task)?);
        quota.count(&frames);
        Ok(Self {
            process,
            window,
            frames,
            agent,
            agent_task,
            maps,
            number,
            supervisor,
            page_home,
            former,
            known_frames: KnownFrames::default(),
            quota,
        })
    }

    /// Returns what is at an address, and whether private memory has just become frames for it.
    ///
    /// # Errors
    /// Those of the system; the node has no memory left for the frames
    /// ([`io::ErrorKind::QuotaExceeded`]).
    pub(crate) fn look_up(&mut self, address: u64) -> io::Result<(Mapping, bool)> {
        let found = self.find(address);
        if let Ok((Mapping::Frames { range, .. }, _)) = &found {
            self.known_frames.note(range);
        }
        found
    }

    fn find(&self, address: u64) -> io::Result<(Mapping, bool)> {
        let no = |mapping| Ok((mapping, false));
        let found = self.maps.from(address)?.and_then(|next| find(next, address));
        let Some((mut mapping, grows)) = found else { return no(Mapping::Nothing) };
        let inside = self.window.contains(&mapping.range.start);
        if inside || !(mapping.readable || mapping.writable || mapping.executable) {
            return no(Mapping::Nothing);
        }
        if is_frames(&mapping) {
            let (access, range) = (access(&mapping), mapping.range);
            return no(Mapping::Frames { range, access });
        }
        match mapping.kind() {
            Kind::KernelCode | Kind::KernelData | Kind::Other => return no(Mapping::Nothing),
            // Files stay where they are: other hosts do not have them.
            _ if mapping.shared && self.page_home.is_some() => return no(Mapping::Nothing),
            _ if mapping.shared => return no(self.file(&mapping, Vec::new())),
            _ if self.page_home.is_some() => {}
            _ if is_of_file(&mapping) && !mapping.writable => {
                let written = written(self.agent_task, &mapping.range)?;
                // Changed code stays what it is here, so that it can be changed again, and is known
                // by the name of its file.
                if mapping.executable || written.is_empty() {
                    return no(self.file(&mapping, written));
                }
            }
            _ => {}
        }
        let advice = self.former.advice(self.agent_task, mapping.range.start)?;
        // Memory that the kernel may drop, or whose faults the program serves itself, is touched at
        // the origin.
        if [*b"dp", *b"um", *b"uw", *b"ui"].iter().any(|flag| advice.has(*flag)) {
            return no(Mapping::Nothing);
        }
        if grows || advice.has(*b"gd") {
            mapping.range.start = stack_begin(&maps::of(self.agent_task)?, &mapping.range);
        }
        let (range, access) = (mapping.range.clone(), access(&mapping));
        self.share(mapping)?;
        Ok((Mapping::Frames { range, access }, true))
    }

    fn file(&self, mapping: &LocalMapping, written: Vec<Range<u64>>) -> Mapping {
        let Range { start, end } = mapping.range;
        Mapping::File {
            range: start..end,
            access: access(mapping),
            offset: mapping.offset,
            shared: mapping.shared,
            path: format!("/proc/{}/map_files/{start:x}-{end:x}", self.agent_task),
            written,
            task: self.agent_task,
        }
    }

    /// Checks that there is memory for the frames that are needed at once when what is at an
    /// address is touched elsewhere.
    pub(crate) fn check_room(&self, address: u64) -> io::Result<()> {
        if self.quota.owned().is_none() {
            return Ok(());
        }
        let found = self.maps.from(address)?.and_then(|next| find(next, address));
        match found {
            Some((mapping, _)) if !mapping.shared && !is_of_file(&mapping) => {
                Ok(self.quota.check_room(resident_bytes(self.agent_task, &mapping)?)?)
            }
            _ => Ok(()),
        }
    }

    /// Returns what replicas on this host have that is not here, if anything.
    pub(crate) fn violation(&self, replicas: &BTreeMap<InstanceId, u32>) -> Option<String> {
        let (origin, window) = (self.agent_task, &self.window);
        let moves = self.page_home.is_some();
        consistency::Memory { origin, replicas, window, moves }.violation()
    }

    /// Checks that its pages can move between hosts.
    ///
    /// # Errors
    /// Code of refit's is in the program, which is on this host only.
    pub(crate) fn check_unprobed(&self) -> io::Result<()> {
        if maps::of(self.agent_task)?.iter().any(is_area) {
            let why = "it is probed, and its pages would move between hosts; end the probes first";
            return Err(io::Error::other(why));
        }
        Ok(())
    }

    /// Notes that a thread gives advice about memory that is not frames yet.
    pub(crate) fn note_advice(&self) {
        self.former.note_advice();
    }

    /// Returns the parts of a range that are frames.
    pub(crate) fn frames_in(&self, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
        Ok(frames::within(self.agent_task, range)?
            .into_iter()
            .map(|mapping| mapping.range)
            .collect())
    }

    /// Has the agent make a call.
    pub(crate) fn call(&self, number: i64, arguments: [u64; 6]) -> io::Result<i64> {
        let arguments = ours(number, arguments);
        let answers = self.agent.make(&[Call { number, arguments }], &mut [])?;
        Ok(answers.first().copied().unwrap_or(-i64::from(libc::EIO)))
    }
}

/// Returns `mapping`, the first one that ends behind an address, if it is at the address, and
/// whether it is a stack that would grow to the address.
fn find(mapping: LocalMapping, address: u64) -> Option<(LocalMapping, bool)> {
    let stack = mapping.kind() == Kind::Stack;
    let near = mapping.range.start.saturating_sub(MAX_STACK_GROWTH) <= address;
    (mapping.range.contains(&address) || stack && near).then_some((mapping, stack))
}

/// Returns where a stack must begin that cannot grow any more: as far down as it may grow, and a
/// gap above what is below.
fn stack_begin(mappings: &[LocalMapping], stack: &Range<u64>) -> u64 {
    /// The kernel's gap (`stack_guard_gap`).
    const GAP: u64 = 256 * PAGE_SIZE;
    let below = mappings.iter().map(|mapping| mapping.range.end).filter(|&end| end <= stack.start);
    let free = below.max().unwrap_or(0) + GAP;
    free.max(stack.end.saturating_sub(8 << 20)).min(stack.start)
}
