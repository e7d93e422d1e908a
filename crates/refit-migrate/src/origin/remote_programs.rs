//! Serves destinations that share no memory: pages of programs of this node, and
//! calls of their threads.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};
use refit_messages::InstanceId;

use crate::dsm::{Access, PageHomeHandle};
use crate::origin::syscall_proxy::Proxy;
use crate::protocol::messages::{Fetch, SyscallRequest};

/// By process.
#[derive(Default)]
pub(crate) struct RemotePrograms {
    programs: Mutex<BTreeMap<u32, Program>>,
}

#[derive(Default)]
struct Program {
    page_home: Option<PageHomeHandle>,
    /// By thread.
    proxies: BTreeMap<u32, Proxy>,
}

impl RemotePrograms {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, Program>> {
        self.programs.lock()
    }

    /// Sets the page home of a process, which serves fetches from now on.
    pub(crate) fn set_page_home(&self, process: u32, page_home: PageHomeHandle) {
        self.all().entry(process).or_default().page_home = Some(page_home);
    }

    /// Sets the proxy of a thread, which makes its calls from now on.
    pub(crate) fn set_proxy(&self, process: u32, thread: u32, proxy: Proxy) {
        self.all().entry(process).or_default().proxies.insert(thread, proxy);
    }

    /// Notes that a thread which has departed in a call has arrived.
    pub(crate) fn arrived_in_call(&self, process: u32, thread: u32) {
        if let Some(proxy) = self.all().get(&process).and_then(|one| one.proxies.get(&thread)) {
            proxy.await_result();
        }
    }

    /// Ends the proxy of a thread that returns, or has ended. Returns the result of the call that
    /// the thread may be in, if it is known.
    pub(crate) fn end_proxy(&self, process: u32, thread: u32) -> Option<u64> {
        let proxy = self.all().get_mut(&process)?.proxies.remove(&thread);
        proxy?.end()
    }

    /// Forgets a process that has ended.
    pub(crate) fn forget(&self, process: u32) {
        let Some(program) = self.all().remove(&process) else { return };
        program.page_home.iter().for_each(PageHomeHandle::close);
        for proxy in program.proxies.into_values() {
            proxy.end();
        }
    }

    pub(crate) fn fetch(&self, by: InstanceId, fetch: Fetch) {
        let Fetch { group, page, count, write } = fetch;
        let access = Access::of(write);
        if let Some(page_home) =
            self.all().get(&group.process).and_then(|one| one.page_home.as_ref())
        {
            page_home.fetch(by, page, count, access);
        }
    }

    pub(crate) fn make(&self, make: SyscallRequest) {
        if let Some(program) = self.all().get(&make.group.process)
            && let Some(proxy) = program.proxies.get(&make.thread)
        {
            proxy.call(make);
        }
    }
}
