//! Who a thread is, for reports that name it.

/// Linux id of the calling thread.
pub fn id() -> u32 {
    // SAFETY: no arguments, no memory; always succeeds.
    let tid = unsafe { libc::gettid() };
    u32::try_from(tid).unwrap_or(0)
}

/// Name of a thread of this process as the kernel knows it; empty if it has ended.
pub fn name(tid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Lets another thread run on this processor.
pub fn give_way() {
    // SAFETY: no arguments, no memory.
    unsafe { libc::sched_yield() };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_finds_its_own_name() {
        let named = std::thread::Builder::new().name("refit-named".into());
        let found =
            named.spawn(|| super::name(super::id())).expect("a thread can be started").join();
        assert_eq!(found.expect("it does not panic"), "refit-named");
    }
}
