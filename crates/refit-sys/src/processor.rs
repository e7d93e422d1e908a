//! The processor a thread runs on, in about one nanosecond.
//!
//! glibc registers a `struct rseq` for every thread (since 2.35); the kernel keeps its `cpu_id` right whenever the
//! thread comes back from the kernel. Reading it is two loads. Where rseq is off (old glibc,
//! `GLIBC_TUNABLES=glibc.pthread.rseq=0`, some sandboxes) `sched_getcpu` answers instead, at several times the price.
//!
//! The answer is a hint: the thread can be moved right after it was read.
//!
//! For tests, `REFIT_PROCESSORS=130` makes believe that there are so many, and that a thread is on any of them whenever
//! it asks: a machine that is larger, busier and less steady than any that tests run on.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering::Relaxed};

/// Distance from the thread pointer to `struct rseq`; 0 where rseq cannot be used.
static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);
/// What [`count`] answers; 0 before it was asked for the first time.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// How the processor number is found on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `struct rseq`, two loads.
    Rseq,
    /// `sched_getcpu`.
    GetCpu,
    /// Made up, because `REFIT_PROCESSORS` says so.
    MadeUp,
}

/// Number of the processor that runs this thread, below [`count`].
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
    // SAFETY: `offset` is the value glibc exports as `__rseq_offset`, checked in `prepare` together with
    // `__rseq_size` to cover `cpu_id` (offset 4); the area lives as long as its thread. Not `pure`: two
    // reads may differ, since the thread can be moved between them.
    unsafe {
        std::arch::asm!(
            "mov {cpu:e}, fs:[{offset} + 4]",
            cpu = lateout(reg) cpu,
            offset = in(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
    }
    // `cpu_id` is -1 or -2 in a thread that is not registered; as u32 both are beyond any count.
    (cpu < COUNT.load(Relaxed)).then_some(cpu as usize)
}

/// Other architectures find the area elsewhere.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn read_rseq(_offset: isize) -> Option<usize> {
    None
}

/// Where the kernel tells a thread its processor. For that thread only.
#[derive(Clone, Copy, Debug)]
pub struct MyProcessor(NonNull<u32>);

impl MyProcessor {
    /// The calling thread's; `None` unless [`source`] is [`Source::Rseq`].
    pub fn find() -> Option<Self> {
        (source() == Source::Rseq).then(thread_pointer).flatten().and_then(|thread| {
            const CPU_ID: isize = 4;
            let area = thread.wrapping_offset(RSEQ_OFFSET.load(Relaxed) + CPU_ID);
            NonNull::new(area.cast_mut().cast()).map(MyProcessor)
        })
    }

    /// The number of the processor that the thread runs on; [`count`] or more if the kernel does not tell.
    #[inline(always)]
    pub fn number(self) -> u32 {
        // SAFETY: `find` made it of the thread's own area, which `prepare` has checked to cover this field, and which
        // lives as long as the thread; being a raw pointer it stays with the thread. Volatile: the kernel writes it.
        unsafe { self.0.read_volatile() }
    }
}

/// What `__rseq_offset` counts from.
fn thread_pointer() -> Option<*const u8> {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: *const u8;
        // SAFETY: the x86-64 ABI keeps the thread pointer at the beginning of what it points to.
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) pointer,
                options(nostack, preserves_flags, readonly));
        }
        Some(pointer)
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Lets the calling thread, and those that it makes, run on this processor only. Whether that can be.
pub fn bind(processor: usize) -> bool {
    only(processor).is_some_and(|set| keep_to(&set))
}

/// The set of one processor; `None`: no set can name it.
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

/// The calling thread runs on these processors; whether it may.
fn keep_to(set: &libc::cpu_set_t) -> bool {
    // SAFETY: a set of the size that is told is read; 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const *set) == 0 }
}

/// Moves the calling thread to a processor, now, and leaves it as free as it was. Whether it came there; it can be
/// moved away again right after.
pub fn move_to(processor: usize) -> bool {
    Bound::to(processor).is_some()
}

/// The calling thread stays on one processor, and is as free as it was before when this is dropped.
pub struct Bound {
    before: libc::cpu_set_t,
    /// It is of one thread.
    _of_thread: PhantomData<*const ()>,
}

impl Bound {
    /// `None`: it may not be there.
    pub fn to(processor: usize) -> Option<Self> {
        let only = only(processor)?;
        // SAFETY: a zeroed cpu_set_t is an empty set; the call writes one of the size it is told, and 0 is the calling
        // thread. A processor that `only` can name is within any set.
        let (before, may) = unsafe {
            let mut before: libc::cpu_set_t = std::mem::zeroed();
            let told = libc::sched_getaffinity(0, size_of_val(&before), &raw mut before) == 0;
            (before, told && libc::CPU_ISSET(processor, &before))
        };
        (may && keep_to(&only)).then_some(Self { before, _of_thread: PhantomData })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Of the thread that was bound: it is no other's. What it might before it may again.
        keep_to(&self.before);
    }
}

#[cold]
fn ask_kernel() -> usize {
    if let Some(processors) = made_up() {
        return roll() % processors as usize;
    }
    // SAFETY: no arguments, no memory; -1 on failure.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).unwrap_or(0).min(count() - 1)
}

/// Number of processors that this host can ever have: one more than the highest possible number.
pub fn count() -> usize {
    prepare();
    COUNT.load(Relaxed) as usize
}

/// How the number is found here.
pub fn source() -> Source {
    prepare();
    match made_up() {
        Some(_) => Source::MadeUp,
        None if RSEQ_OFFSET.load(Relaxed) != 0 => Source::Rseq,
        None => Source::GetCpu,
    }
}

/// Finds out once how many processors there are and where `struct rseq` is.
pub fn prepare() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        COUNT.store(made_up().unwrap_or_else(possible), Relaxed);
        let offset = if made_up().is_some() { None } else { rseq_offset() };
        RSEQ_OFFSET.store(offset.unwrap_or(0), Relaxed);
    });
}

/// How many processors a test wants there to be.
fn made_up() -> Option<u32> {
    const MOST: u32 = 4096;
    static WANTED: OnceLock<Option<u32>> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let wanted = std::env::var("REFIT_PROCESSORS").ok()?.parse().ok()?;
        (1..=MOST).contains(&wanted).then_some(wanted)
    })
}

/// The next number of a thread's own sequence (xorshift); different in each thread, and none is better than another.
fn roll() -> usize {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    STATE.with(|state| {
        // The address tells threads apart; any seed but 0 does.
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

/// Highest number in `/sys/devices/system/cpu/possible` plus one; processors can be sparse and can come later.
fn possible() -> u32 {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let highest = listed.trim().rsplit([',', '-']).next().and_then(|n| n.parse::<u32>().ok());
    let online = std::thread::available_parallelism().map_or(1, |n| n.get());
    let online = u32::try_from(online).unwrap_or(u32::MAX);
    highest.map_or(online, |h| h.saturating_add(1)).max(1)
}

/// glibc's `__rseq_offset`, if its rseq area is registered and holds `cpu_id`. Looked up by name, so that an older
/// libc without it can still run the program.
fn rseq_offset() -> Option<isize> {
    const END_OF_CPU_ID: u32 = 8;
    let size = symbol(c"__rseq_size")?.cast::<u32>();
    let offset = symbol(c"__rseq_offset")?.cast::<isize>();
    // SAFETY: both symbols are exported constants of libc of these types (glibc 2.35, `sys/rseq.h`).
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
