//! The processor that a thread runs on, in about one nanosecond.
//!
//! glibc registers a `struct rseq` for every thread (since 2.35); the kernel updates its `cpu_id`
//! whenever the thread returns from the kernel. Reading it takes two loads. Where rseq is not
//! available (old glibc, `GLIBC_TUNABLES=glibc.pthread.rseq=0`, some sandboxes), `sched_getcpu`
//! replaces it at several times the cost.
//!
//! The result is a hint: the thread can be moved right after it was read.
//!
//! For tests, `REFIT_PROCESSORS=130` simulates that many processors, with each thread on a random
//! one of them at each query: a machine that is larger, busier and less steady than any that tests
//! run on.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering::Relaxed};

/// Offset of `struct rseq` from the thread pointer; 0 if rseq cannot be used.
static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);
/// The result of [`count`]; 0 before the first query.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The source of processor numbers on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `struct rseq`, two loads.
    Rseq,
    /// `sched_getcpu`.
    GetCpu,
    /// Simulated, because `REFIT_PROCESSORS` is set.
    Simulated,
}

/// Returns the number of the processor that runs this thread, which is below [`count`].
#[inline(always)]
pub fn current() -> usize {
    let offset = RSEQ_OFFSET.load(Relaxed);
    // SAFETY: only `prepare` stores an offset, and it checks what it stores.
    let found = if offset == 0 { None } else { unsafe { read_rseq(offset) } };
    found.unwrap_or_else(ask_kernel)
}

/// # Safety
/// `offset` must be the checked value of `__rseq_offset`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn read_rseq(offset: isize) -> Option<usize> {
    let cpu: u32;
    // SAFETY: `offset` is the value that glibc exports as `__rseq_offset`, checked in `prepare`
    // together with `__rseq_size` to cover `cpu_id` (offset 4); the area lives as long as its
    // thread. Not `pure`: two reads may differ, since the thread can be moved between them.
    unsafe {
        std::arch::asm!(
            "mov {cpu:e}, fs:[{offset} + 4]",
            cpu = lateout(reg) cpu,
            offset = in(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
    }
    // `cpu_id` is -1 or -2 in a thread that is not registered; as u32 both exceed any count.
    (cpu < COUNT.load(Relaxed)).then_some(cpu as usize)
}

/// Not implemented for other architectures, which have the area elsewhere.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn read_rseq(_offset: isize) -> Option<usize> {
    None
}

/// The address at which the kernel stores a thread's processor. Valid for that thread only.
#[derive(Clone, Copy, Debug)]
pub struct MyProcessor(NonNull<u32>);

impl MyProcessor {
    /// Returns the address for the calling thread; `None` unless [`source`] is [`Source::Rseq`].
    pub fn find() -> Option<Self> {
        (source() == Source::Rseq).then(thread_pointer).flatten().and_then(|thread| {
            const CPU_ID: isize = 4;
            let area = thread.wrapping_offset(RSEQ_OFFSET.load(Relaxed) + CPU_ID);
            NonNull::new(area.cast_mut().cast()).map(MyProcessor)
        })
    }

    /// Returns the number of the processor that the thread runs on; [`count`] or more if the kernel
    /// does not report it.
    #[inline(always)]
    pub fn number(self) -> u32 {
        // SAFETY: `find` computed it from the thread's own area, which `prepare` has checked to
        // cover this field, and which lives as long as the thread; being a raw pointer it stays
        // with the thread. Volatile, because the kernel writes it.
        unsafe { self.0.read_volatile() }
    }
}

/// Returns the thread pointer, to which `__rseq_offset` is relative.
fn thread_pointer() -> Option<*const u8> {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: *const u8;
        // SAFETY: the x86-64 ABI stores the thread pointer at the address that it points to.
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) pointer,
                options(nostack, preserves_flags, readonly));
        }
        Some(pointer)
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Binds the calling thread, and threads that it creates later, to this processor. Returns whether
/// that succeeded.
pub fn bind(processor: usize) -> bool {
    only(processor).is_some_and(|set| keep_to(&set))
}

/// Returns the set of one processor; `None` if no set can hold it.
fn only(processor: usize) -> Option<libc::cpu_set_t> {
    (processor < size_of::<libc::cpu_set_t>() * 8).then(|| {
        // SAFETY: a zeroed cpu_set_t is an empty set; the processor is within it, as checked above.
        unsafe {
            let mut only: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor, &mut only);
            only
        }
    })
}

/// Restricts the calling thread to these processors. Returns whether that succeeded.
fn keep_to(set: &libc::cpu_set_t) -> bool {
    // SAFETY: the call reads a set of the size passed; 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const *set) == 0 }
}

/// Moves the calling thread to a processor at once, and leaves its affinity as it was. Returns
/// whether it got there; it can be moved away again right after.
pub fn move_to(processor: usize) -> bool {
    Bound::to(processor).is_some()
}

/// A guard that binds the calling thread to one processor, and restores its former affinity when
/// dropped.
pub struct Bound {
    before: libc::cpu_set_t,
    /// Belongs to one thread.
    _of_thread: PhantomData<*const ()>,
}

impl Bound {
    /// Binds the thread; `None` if it may not run there.
    pub fn to(processor: usize) -> Option<Self> {
        let only = only(processor)?;
        // SAFETY: a zeroed cpu_set_t is an empty set; the call writes one of the size that is
        // passed, and 0 is the calling thread. Any set can hold a processor that `only` can name.
        let (before, may) = unsafe {
            let mut before: libc::cpu_set_t = std::mem::zeroed();
            let is_known = libc::sched_getaffinity(0, size_of_val(&before), &raw mut before) == 0;
            (before, is_known && libc::CPU_ISSET(processor, &before))
        };
        (may && keep_to(&only)).then_some(Self { before, _of_thread: PhantomData })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // This runs on the bound thread, which may return to where it was.
        keep_to(&self.before);
    }
}

#[cold]
fn ask_kernel() -> usize {
    if let Some(processors) = simulated() {
        return random() % processors as usize;
    }
    // SAFETY: no arguments, no memory; -1 on failure.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).unwrap_or(0).min(count() - 1)
}

/// Returns the number of processors that this host can ever have: the highest possible number plus
/// one.
pub fn count() -> usize {
    prepare();
    COUNT.load(Relaxed) as usize
}

/// Returns the source of processor numbers on this host.
pub fn source() -> Source {
    prepare();
    match simulated() {
        Some(_) => Source::Simulated,
        None if RSEQ_OFFSET.load(Relaxed) != 0 => Source::Rseq,
        None => Source::GetCpu,
    }
}

/// Finds, once, the number of processors and the offset of `struct rseq`.
pub fn prepare() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        COUNT.store(simulated().unwrap_or_else(possible), Relaxed);
        let offset = if simulated().is_some() { None } else { rseq_offset() };
        RSEQ_OFFSET.store(offset.unwrap_or(0), Relaxed);
    });
}

/// Returns the number of processors that a test simulates, if any.
fn simulated() -> Option<u32> {
    const MAX_SIMULATED: u32 = 4096;
    static WANTED: OnceLock<Option<u32>> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let wanted = std::env::var("REFIT_PROCESSORS").ok()?.parse().ok()?;
        (1..=MAX_SIMULATED).contains(&wanted).then_some(wanted)
    })
}

/// Returns the next number of a thread's own random sequence (xorshift). The sequences of threads
/// differ.
fn random() -> usize {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    STATE.with(|state| {
        // The address differs between threads; any seed but 0 will do.
        let mut x = match state.get() {
            0 => std::ptr::from_ref(state).addr() as u64 | 1,
            x => x,
        };
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        (x >> 33) as usize
    })
}

/// Returns the highest number in `/sys/devices/system/cpu/possible` plus one; processors can be
/// sparse and can be added later.
fn possible() -> u32 {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let highest = listed.trim().rsplit([',', '-']).next().and_then(|n| n.parse::<u32>().ok());
    let online = std::thread::available_parallelism().map_or(1, |n| n.get());
    let online = u32::try_from(online).unwrap_or(u32::MAX);
    highest.map_or(online, |h| h.saturating_add(1)).max(1)
}

/// Returns glibc's `__rseq_offset`, if its rseq area is registered and holds `cpu_id`. The symbol
/// is looked up by name, so that the program also runs with an older libc that lacks it.
fn rseq_offset() -> Option<isize> {
    const END_OF_CPU_ID: u32 = 8;
    let size = symbol(c"__rseq_size")?.cast::<u32>();
    let offset = symbol(c"__rseq_offset")?.cast::<isize>();
    // SAFETY: both symbols are exported constants of libc of these types (glibc 2.35,
    // `sys/rseq.h`).
    let (size, offset) = unsafe { (size.read(), offset.read()) };
    (size >= END_OF_CPU_ID && offset != 0).then_some(offset)
}

fn symbol(name: &std::ffi::CStr) -> Option<*const std::ffi::c_void> {
    // SAFETY: `name` is a C string; RTLD_DEFAULT searches what is loaded already.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_that_of_the_kernel_when_the_thread_is_pinned() {
        prepare();
        for cpu in 0..count() {
            if bind(cpu) {
                assert_eq!(current(), cpu);
            }
        }
    }

    #[test]
    fn the_number_is_below_the_count() {
        let beyond = (0..1000).any(|_| current() >= count());
        assert!(!beyond);
    }
}
