//! Tests of a store with memory of this process.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use refit_sys::userfault::Message;

use crate::dsm::test_memory::{Mapping, join, page_of, until, userfault, word_at, words_of};
use crate::dsm::{Access, Pager, Store, Window};
use crate::page::PAGE_SIZE;

/// The page for which a thread waits, and its access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A page that is not there, to read it.
    Read(u64),
    /// A page that is not there, to write to it.
    Write(u64),
    /// A page that is there for reading, to write to it.
    Permission(u64),
}

struct Holder {
    mapping: Arc<Mapping>,
    store: Arc<Store>,
}

impl Holder {
    /// Returns a holder of none of these pages, which are mapped; `None` if this host permits none.
    fn new(pages: u64) -> Option<Self> {
        let mapping = Mapping::reserve(pages);
        let store = Store::new(mapping.frames(), userfault()?);
        let holder = Self { mapping, store };
        holder.map();
        Some(holder)
    }

    fn map(&self) {
        let make = || self.mapping.map(self.store.frames());
        self.store.map(&self.mapping.range(), make, || self.mapping.open()).expect("mapped");
    }

    fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Mapping) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let mapping = Arc::clone(&self.mapping);
        thread::spawn(move || work(&mapping))
    }

    /// Waits for the next fault.
    fn fault(&self) -> Fault {
        let mut messages = Vec::new();
        until("a fault", || self.store.userfault().read_some(&mut messages, 1).expect("ours") > 0);
        let Some(Message::Pagefault { address, access, .. }) = messages.pop() else {
            panic!("{messages:?}")
        };
        let page = (address - self.mapping.at(0)) / PAGE_SIZE;
        match (access.protected, access.write) {
            (true, _) => Fault::Permission(page),
            (false, true) => Fault::Write(page),
            (false, false) => Fault::Read(page),
        }
    }

    /// Returns what `work` returns, which waits for no page.
    fn at_once<T: Send + 'static>(&self, work: impl FnOnce(&Mapping) -> T + Send + 'static) -> T {
        let done = join(self.start(work));
        let mut messages = Vec::new();
        assert_eq!(self.store.userfault().read(&mut messages).expect("ours"), 0, "{messages:?}");
        done
    }

    /// Has a thread write to a page, which has to wait for the right to do so.
    fn asks_to_write(&self, page: u64, value: u64) {
        let writes = self.start(move |mapping| mapping.write(page, value));
        assert_eq!(self.fault(), Fault::Permission(page));
        self.store.permit(self.mapping.at(page), Access::Write).expect("permitted");
        join(writes);
    }

    /// Has a thread read a page, which has to wait for it; it is granted with this word.
    fn asks_for(&self, page: u64, value: u64, access: Access) {
        let reads = self.start(move |mapping| mapping.read(page));
        assert_eq!(self.fault(), Fault::Read(page));
        self.store.grant(self.mapping.at(page), &page_of(value), access).expect("granted");
        assert_eq!(join(reads), value);
    }
}

#[test]
fn a_page_granted_for_reading_is_written_to_only_with_permission() {
    let Some(holder) = Holder::new(2) else { return };
    holder.asks_for(1, 7, Access::Read);
    // The permission to read changes nothing.
    holder.store.permit(holder.mapping.at(1), Access::Read).expect("permitted");
    holder.asks_to_write(1, 8);
    assert_eq!(holder.at_once(|mapping| mapping.read(1)), 8);
    holder.at_once(|mapping| mapping.write(1, 9));

    let writes = holder.start(|mapping| mapping.add_one(0));
    assert_eq!(holder.fault(), Fault::Write(0));
    holder.store.grant(holder.mapping.at(0), &page_of(4), Access::Write).expect("granted");
    join(writes);
    assert_eq!(holder.at_once(|mapping| mapping.read(0)), 5);
}

#[test]
fn a_surrendered_page_has_its_last_content_and_is_kept_for_reading_or_not_at_all() {
    let Some(holder) = Holder::new(3) else { return };
    for page in 0..3 {
        holder.asks_for(page, 10 + page, Access::Write);
    }
    holder.at_once(|mapping| mapping.write(1, 21));
    let kept = holder.store.surrender(holder.mapping.pages(0..2), true).expect("it is here");
    assert_eq!(words_of(&kept), [10, 21]);
    assert_eq!(holder.at_once(|mapping| mapping.read(1)), 21);
    holder.asks_to_write(1, 22);
    // A new mapping gives no more access.
    holder.mapping.unmap_all();
    holder.map();
    holder.asks_to_write(0, 11);
    holder.at_once(|mapping| mapping.write(2, 3));

    let given = holder.store.surrender(holder.mapping.pages(0..2), false).expect("it is here");
    assert_eq!(words_of(&given), [11, 22]);
    // Neither is here any more, nor marked as being here for reading.
    let writes = holder.start(|mapping| mapping.add_one(0));
    assert_eq!(holder.fault(), Fault::Write(0));
    holder.store.permit(holder.mapping.at(0), Access::Read).expect("permitted");
    join(writes);
    assert_eq!(holder.at_once(|mapping| mapping.read(0)), 1, "a page of zeros was put there");
    holder.asks_for(1, 30, Access::Write);
    holder.at_once(|mapping| mapping.write(1, 31));
}

#[test]
fn a_page_is_taken_although_its_neighbour_is_not_mapped() {
    let Some(holder) = Holder::new(2) else { return };
    holder.asks_for(0, 1, Access::Write);
    holder.asks_for(1, 2, Access::Write);
    holder.mapping.unmap(0..1);
    let taken = holder.store.surrender(holder.mapping.pages(0..2), true).expect("both are here");
    assert_eq!(words_of(&taken), [1, 2]);
    holder.asks_to_write(1, 3);
}

#[test]
fn discarded_pages_are_not_here_and_their_neighbours_are() {
    let Some(holder) = Holder::new(4) else { return };
    let bytes: Vec<u8> = (1..5).flat_map(page_of).collect();
    holder.store.grant(holder.mapping.at(0), &bytes, Access::Read).expect("granted");
    let ranges =
        [holder.mapping.pages(1..2), holder.mapping.pages(2..2), holder.mapping.pages(3..4)];
    holder.store.discard(&ranges).expect("within the file");
    assert_eq!(holder.at_once(|mapping| [0, 2].map(|page| mapping.read(page))), [1, 3]);
    holder.asks_for(1, 6, Access::Write);
    holder.at_once(|mapping| mapping.write(1, 7));
    // It is not marked as being here for reading.
    assert!(holder.store.fresh(holder.mapping.at(3)));
    holder.at_once(|mapping| mapping.write(3, 8));
    holder.asks_to_write(2, 9);
}

#[test]
fn a_new_mapping_gives_no_access_that_the_pages_do_not_have() {
    let Some(holder) = Holder::new(6) else { return };
    let bytes: Vec<u8> = (1..5).flat_map(page_of).collect();
    holder.store.grant(holder.mapping.at(0), &bytes, Access::Read).expect("granted");
    holder.store.permit(holder.mapping.at(2), Access::Write).expect("permitted");
    holder.mapping.unmap_all();
    // Grants arrive while nothing is mapped there.
    let granted = |page: u64, value: u64, access: Access| {
        holder.store.grant(holder.mapping.at(page), &page_of(value), access).expect("granted");
    };
    granted(3, 14, Access::Read);
    granted(4, 15, Access::Write);
    assert_eq!(word_at(holder.store.frames(), holder.mapping.at(4)), 15);
    holder.map();
    let all = holder.at_once(|mapping| [0, 1, 2, 3, 4].map(|page| mapping.read(page)));
    assert_eq!(all, [1, 2, 3, 14, 15]);
    for page in [0, 1, 3] {
        holder.asks_to_write(page, 20 + page);
    }
    holder.at_once(|mapping| [2, 4].map(|page| mapping.write(page, 30)));
    holder.asks_for(5, 6, Access::Read);
}

#[test]
fn a_mapping_is_served_before_any_thread_can_touch_it() {
    let Some(holder) = Holder::new(2) else { return };
    holder.store.grant(holder.mapping.at(0), &page_of(1), Access::Read).expect("granted");
    holder.mapping.unmap_all();
    let make = || holder.mapping.map(holder.store.frames());
    let mut threads = Vec::new();
    let open = || {
        holder.mapping.open()?;
        threads.push(holder.start(|mapping| mapping.add_one(0)));
        assert_eq!(holder.fault(), Fault::Permission(0));
        threads.push(holder.start(|mapping| mapping.add_one(1)));
        assert_eq!(holder.fault(), Fault::Write(1));
        io::Result::Ok(())
    };
    holder.store.map(&holder.mapping.range(), make, open).expect("mapped");
    for page in [0, 1] {
        holder.store.permit(holder.mapping.at(page), Access::Write).expect("here");
    }
    threads.into_iter().for_each(join);
    assert_eq!(holder.at_once(|mapping| [0, 1].map(|page| mapping.read(page))), [2, 1]);
}

#[test]
fn a_mapping_that_cannot_be_made_is_not_opened() {
    let Some(holder) = Holder::new(1) else { return };
    let fails = || Err(io::Error::from_raw_os_error(libc::ENOMEM));
    let failed = holder.store.map(&holder.mapping.range(), fails, || panic!("it is not made"));
    assert_eq!(failed.expect_err("it is not made").raw_os_error(), Some(libc::ENOMEM));
    assert!(holder.store.watch(&(1..2)).is_err(), "no pages");
}

#[test]
fn a_granted_page_replaces_one_that_is_there() {
    let Some(holder) = Holder::new(3) else { return };
    holder.asks_for(1, 1, Access::Write);
    let bytes: Vec<u8> = (2..5).flat_map(page_of).collect();
    holder.store.grant(holder.mapping.at(0), &bytes, Access::Read).expect("granted");
    assert_eq!(holder.at_once(|mapping| [0, 1, 2].map(|page| mapping.read(page))), [2, 3, 4]);
    holder.asks_to_write(0, 4);
    holder.store.grant(holder.mapping.at(1), &page_of(5), Access::Write).expect("granted");
    holder.at_once(|mapping| mapping.add_one(1));
    assert_eq!(holder.at_once(|mapping| mapping.read(1)), 6);
    // Nor is it protected where it is mapped next.
    holder.mapping.unmap_all();
    holder.map();
    holder.at_once(|mapping| mapping.add_one(1));
}

#[test]
fn untouched_pages_are_given_ahead_and_no_others() {
    let Some(holder) = Holder::new(4) else { return };
    holder.asks_for(1, 2, Access::Read);
    assert!(holder.store.fresh(holder.mapping.at(0)));
    holder.at_once(|mapping| mapping.add_one(0));
    assert!(!holder.store.fresh(holder.mapping.at(0)) && !holder.store.fresh(holder.mapping.at(1)));
    assert_eq!(holder.at_once(|mapping| [0, 1].map(|page| mapping.read(page))), [1, 2]);
    // Nor is a page that others may read, although nothing was ever put there.
    holder.store.surrender(holder.mapping.pages(3..4), true).expect("zeros");
    assert!(!holder.store.fresh(holder.mapping.at(3)));
    // A page that was protected while it was not mapped is one that is held for reading.
    holder.mapping.unmap_all();
    holder.store.grant(holder.mapping.at(2), &page_of(3), Access::Read).expect("granted");
    holder.map();
    assert!(!holder.store.fresh(holder.mapping.at(2)));
    holder.asks_to_write(2, 4);
}

#[test]
fn a_pager_that_is_told_to_end_ends() {
    let Some(holder) = Holder::new(1) else { return };
    let pager = Pager::new(Arc::clone(&holder.store)).expect("a descriptor");
    let serves = Arc::clone(&pager);
    let serves = thread::spawn(move || serves.serve(Window::Adaptive, |_| panic!("nobody waits")));
    pager.end();
    join(serves).expect("it has ended");
}
