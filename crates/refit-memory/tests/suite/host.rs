//! A file on a host that the test controls, and a cache over it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use refit_memory::{
    CLOCK, CacheError, CacheParts, DiskWork, FileCacheFactory, FileCacheRef, FileRepresentative,
    FileRepresentativeInterface, FileRepresentativeRef, FramePool, PAGE_SIZE, PhysicalMemoryRef,
    ReplacementPolicyFactory, ReplacementPolicyRef, create_file_cache, create_physical_memory,
    create_policy, destroy_file_cache,
};
use refit_objects::change::Drained;
use refit_objects::transfer::{AtDeadline, DrainOptions};
use refit_objects::{Implementations, OwnedRep, Root, SwapOptions, TransferError};

pub(crate) const IMPLEMENTATIONS: [&str; 3] = ["shared", "partitioned", "sequential"];
pub(crate) use refit_sys::memory::PAGE_SIZE_U64;
/// The number of bytes after which `partitioned` moves on to the next partition.
pub(crate) const RANGE: u64 = 64 * PAGE_SIZE_U64;
pub(crate) const EIO: i32 = 5;

/// A call of the host, with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read(u64, u64),
    Write(u64, u64),
    Truncate(u64),
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    calls: Vec<Call>,
    fail_reads: bool,
    fail_writes: bool,
    /// Whether calls wait.
    shut: bool,
    waiting: usize,
    /// Messages with which the next calls panic instead of being executed.
    panics: VecDeque<&'static str>,
}

/// A file in memory whose calls can be counted, failed and delayed.
#[derive(Debug, Default)]
pub(crate) struct HostFile {
    state: Mutex<State>,
    changed: Condvar,
}

/// Releases the calls of [`HostFile::hold`] on drop.
pub(crate) struct HoldGuard<'a>(&'a HostFile);

impl Drop for HoldGuard<'_> {
    fn drop(&mut self) {
        self.0.state().shut = false;
        self.0.changed.notify_all();
    }
}

impl HostFile {
    pub(crate) fn new(bytes: Vec<u8>) -> Arc<Self> {
        let state = Mutex::new(State { bytes, ..State::default() });
        Arc::new(Self { state, changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    pub(crate) fn change(&self, f: impl FnOnce(&mut Vec<u8>)) {
        f(&mut self.state().bytes);
    }

    /// Returns the calls since the previous call of this function.
    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    pub(crate) fn fail(&self, reads: bool, writes: bool) {
        let mut state = self.state();
        (state.fail_reads, state.fail_writes) = (reads, writes);
    }

    pub(crate) fn panic_next(&self, why: &'static str) {
        self.state().panics.push_back(why);
    }

    /// Makes calls of the host wait from now on until the result is dropped. Dropping it also when
    /// a test fails keeps the other threads of the test from waiting for ever.
    pub(crate) fn hold(&self) -> HoldGuard<'_> {
        self.state().shut = true;
        HoldGuard(self)
    }

    /// Waits until `calls` calls of the host are waiting.
    pub(crate) fn wait_for_waiting(&self, calls: usize) {
        let mut state = self.state();
        while state.waiting < calls {
            state = self.changed.wait(state).unwrap();
        }
    }

    fn enter(&self, call: Call) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.calls.push(call);
        state.waiting += 1;
        self.changed.notify_all();
        while state.shut {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting -= 1;
        if let Some(why) = state.panics.pop_front() {
            panic!("{why}");
        }
        state
    }
}

/// The object's representative and also its root, as there is one implementation.
struct HostRep(Arc<HostFile>);

impl Root<FileRepresentativeInterface> for HostRep {
    fn implementation(&self) -> &str {
        "host"
    }

    fn make_rep(&self, _processor: usize) -> OwnedRep<FileRepresentativeInterface> {
        FileRepresentativeInterface::rep(HostRep(Arc::clone(&self.0)))
    }

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}

/// An empty set of other implementations.
struct NoOther;

impl Implementations<FileRepresentativeInterface> for NoOther {
    fn names(&self) -> Vec<&'static str> {
        vec![]
    }

    fn root(&self, _name: &str) -> Option<Box<dyn Root<FileRepresentativeInterface>>> {
        None
    }
}

/// Returns the CLOCK policy. It has no state of its own, so all tests share one.
pub(crate) fn policy() -> ReplacementPolicyRef {
    static POLICY: OnceLock<ReplacementPolicyRef> = OnceLock::new();
    let factory = || ReplacementPolicyFactory::new("test", CLOCK);
    *POLICY.get_or_init(|| create_policy(&factory(), "test").expect("it is built in"))
}

pub(crate) fn representative(host: &Arc<HostFile>) -> FileRepresentativeRef {
    refit_objects::create("host", Box::new(HostRep(Arc::clone(host))), Arc::new(NoOther))
}

impl FileRepresentative for HostRep {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32> {
        let state = self.0.enter(Call::Read(offset, buf.len() as u64));
        if state.fail_reads {
            return Err(EIO);
        }
        let from = state.bytes.len().min(offset as usize);
        let len = buf.len().min(state.bytes.len() - from);
        buf[..len].copy_from_slice(&state.bytes[from..from + len]);
        Ok(len)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32> {
        let mut state = self.0.enter(Call::Write(offset, data.len() as u64));
        if state.fail_writes {
            return Err(EIO);
        }
        let end = offset as usize + data.len();
        if state.bytes.len() < end {
            state.bytes.resize(end, 0);
        }
        state.bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    fn truncate(&self, size: u64) -> Result<(), i32> {
        let mut state = self.0.enter(Call::Truncate(size));
        if state.fail_writes {
            return Err(EIO);
        }
        state.bytes.resize(size as usize, 0);
        Ok(())
    }

    fn size(&self) -> Result<u64, i32> {
        Ok(self.0.state().bytes.len() as u64)
    }

    fn sync(&self, _data_only: bool) -> Result<(), i32> {
        Ok(())
    }

    fn punch(&self, start: u64, end: u64) -> Result<(), i32> {
        let mut state = self.0.state();
        let there = state.bytes.len();
        state.bytes[there.min(start as usize)..there.min(end as usize)].fill(0);
        Ok(())
    }

    fn sync_work(&self, _data_only: bool) -> Result<DiskWork, i32> {
        Ok(DiskWork::none())
    }

    fn fetch_work(&self, _offset: u64, _len: u64) -> Result<DiskWork, i32> {
        Ok(DiskWork::none())
    }
}

/// A cache with the objects below it, and its calls in the form in which a file server makes them.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) host: Arc<HostFile>,
    pub(crate) frames: Arc<FramePool>,
    pub(crate) pm: PhysicalMemoryRef,
    pub(crate) cache: FileCacheRef,
    /// The number of times that a call is repeated for lack of frames. If dirty pages cannot be
    /// written, the remaining frames may never suffice for one call.
    pub(crate) attempts: usize,
}

impl Subject {
    pub(crate) fn new(implementation: &str, frames: usize, bytes: Vec<u8>) -> Self {
        let frames = FramePool::new(frames as u64 * PAGE_SIZE_U64).unwrap();
        let pm = create_physical_memory("test", Arc::clone(&frames), policy());
        Self::on(implementation, pm, frames, bytes)
    }

    /// Creates another cache over the same frames.
    pub(crate) fn on(
        implementation: &str,
        pm: PhysicalMemoryRef,
        frames: Arc<FramePool>,
        bytes: Vec<u8>,
    ) -> Self {
        let size = bytes.len() as u64;
        let host = HostFile::new(bytes);
        let fr = representative(&host);
        let parts = CacheParts { pm, frames: Arc::clone(&frames), fr };
        let cache =
            create_file_cache(&FileCacheFactory::new("test", implementation), "test", parts, size)
                .unwrap();
        Self { host, frames, pm, cache, attempts: 30 }
    }

    pub(crate) fn swap(&self, to: &str) {
        // Nobody requested it: it is the protocol that both sides prefer.
        assert_eq!(self.swap_with(to, None), ["stripes"]);
    }

    pub(crate) fn swap_by(&self, to: &str, protocol: &str) {
        assert_eq!(self.swap_with(to, Some(protocol.to_owned())), [protocol]);
    }

    /// Swaps lazily and moves only `batches` batches of two pages. Calls, and the next swap, move
    /// the rest. Returns the outcome of the drain.
    pub(crate) fn swap_lazily(&self, to: &str, batches: u64) -> Drained {
        let (enough, seen) = (Arc::new(AtomicBool::new(batches == 0)), AtomicU64::new(0));
        let watch = {
            let enough = Arc::clone(&enough);
            move |_| enough.store(seen.fetch_add(1, Relaxed) + 1 >= batches, Relaxed)
        };
        // Without a batch the drain is over before it has begun; otherwise its requester goes away
        // after it has seen the batches.
        let deadline = if batches == 0 { Duration::ZERO } else { Duration::from_secs(60) };
        let at_deadline = AtDeadline::Report;
        let drain = DrainOptions { batch: 2, deadline, at_deadline, watch: Some(Arc::new(watch)) };
        let options = SwapOptions {
            deadline: Duration::from_secs(60),
            protocol: Some("lazy".to_owned()),
            cancel: (batches > 0).then_some(enough),
            drain,
            ..SwapOptions::default()
        };
        let report = refit_objects::swap_named(self.cache.id(), to, 0, &options);
        assert!(report.committed(), "{report:?}");
        let drained = report.transfers.into_iter().next().and_then(|moved| moved.drained);
        drained.expect("it was drained")
    }

    fn swap_with(&self, to: &str, protocol: Option<String>) -> Vec<String> {
        let deadline = Duration::from_secs(60);
        let options = SwapOptions { deadline, protocol, ..SwapOptions::default() };
        let report = refit_objects::swap_named(self.cache.id(), to, 0, &options);
        assert!(report.committed(), "{report:?}");
        let moved = report.transfers.into_iter().next().expect("state was moved");
        assert!(moved.items.is_some() || moved.route == ["stripes"], "{moved:?}");
        moved.route
    }

    /// Repeats a call for `len` bytes until it finds enough frames.
    pub(crate) fn with_frames<R>(
        &self,
        len: usize,
        mut call: impl FnMut(&FileCacheRef) -> Result<R, CacheError>,
    ) -> Result<R, CacheError> {
        for _ in 0..self.attempts {
            match call(&self.cache) {
                Err(CacheError::NoFrame) => {
                    if self.reclaim(len / PAGE_SIZE + 2) == 0 {
                        std::thread::yield_now();
                    }
                }
                result => return result,
            }
        }
        Err(CacheError::NoFrame)
    }

    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, CacheError> {
        let mut buf = vec![0xee; len];
        let got = self.with_frames(len, |cache| cache.read(offset, &mut buf))?;
        buf.truncate(got);
        Ok(buf)
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), CacheError> {
        let written = self.with_frames(data.len(), |cache| cache.write(offset, data))?;
        assert_eq!(written, data.len());
        Ok(())
    }

    pub(crate) fn reclaim(&self, wanted: usize) -> usize {
        refit_memory::reclaim(self.pm, &self.frames, wanted).freed
    }

    pub(crate) fn flush(&self) -> u64 {
        self.cache.flush(0, u64::MAX).unwrap()
    }

    /// Destroys the cache, and checks that no page of the file is cached and that no frame is lost.
    pub(crate) fn check_all_free(&self) {
        self.cache.discard();
        let stats = self.cache.stats();
        assert_eq!((stats.resident, stats.dirty), (0, 0));
        assert_eq!(self.frames.free_frames(), self.frames.frames());
        destroy_file_cache(self.cache, &self.frames);
    }
}

/// Returns bytes that differ from place to place.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let byte = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1;
    (0..len as u64).map(|i| byte(seed.wrapping_mul(1_000_003).wrapping_add(i))).collect()
}

/// Runs a test on a cache of each implementation.
pub(crate) fn each(frames: usize, bytes: &[u8], test: impl Fn(&Subject)) {
    each_of(&IMPLEMENTATIONS, frames, bytes, test);
}

/// Runs a test on each implementation that keeps pages for as long as there are frames.
pub(crate) fn each_that_keeps(frames: usize, bytes: &[u8], test: impl Fn(&Subject)) {
    each_of(&IMPLEMENTATIONS[..2], frames, bytes, test);
}

fn each_of(implementations: &[&str], frames: usize, bytes: &[u8], test: impl Fn(&Subject)) {
    for implementation in implementations {
        eprintln!("implementation: {implementation}");
        let subject = Subject::new(implementation, frames, bytes.to_vec());
        test(&subject);
        subject.check_all_free();
    }
}
