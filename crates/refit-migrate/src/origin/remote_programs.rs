//! What other hosts ask for by messages of programs that began here: pages, and calls of their threads.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on its pages are given there.
    pub(crate) fn lend(&self, process: u32, page_home: PageHomeHandle) {
        self.all().entry(process).or_default().page_home = Some(page_home);
    }

    /// From now on its calls are brought there.
    pub(crate) fn stand_for(&self, process: u32, thread: u32, proxy: Proxy) {
        self.all().entry(process).or_default().proxies.insert(thread, proxy);
    }

    /// A thread that has left in a call is there.
    pub(crate) fn has_arrived(&self, process: u32, thread: u32) {
        if let Some(proxy) = self.all().get(&process).and_then(|one| one.proxies.get(&thread)) {
            proxy.has_arrived();
        }
    }

    /// A thread is on its way back, or no more; what the call that it may stand in has returned.
    pub(crate) fn back(&self, process: u32, thread: u32) -> Option<u64> {
        let proxy = self.all().get_mut(&process)?.proxies.remove(&thread);
        proxy?.end()
    }

    /// A process is no more.
    pub(crate) fn forget(&self, process: u32) {
        let Some(program) = self.all().remove(&process) else { return };
        program.page_home.iter().for_each(PageHomeHandle::close);
        for proxy in program.proxies.into_values() {
            proxy.end();
        }
    }

    pub(crate) fn fetch(&self, by: InstanceId, fetch: Fetch) {
        let Fetch { group, page, count, write } = fetch;
        let access = if write { Access::Write } else { Access::Read };
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
