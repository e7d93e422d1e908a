//! Tests of the page home with the memory of this process at the origin, and holders at two other
//! nodes that keep their pages in a map.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use refit_messages::{InstanceId, Layer};

use crate::dsm::lease::MAX_IDLE;
use crate::dsm::test_memory::{Mapping, join, page_of, until, userfault, word_at, word_of};
use crate::dsm::{Access, PageHome, PageHomeHandle, Window};
use crate::page::PAGE_SIZE;
use crate::protocol::messages::{
    Fetch, GroupId, PageContent, PageGrant, PageInvalidate, PageRecall,
};
use crate::stats::{Ledger, Ledgers};

const GROUP: GroupId = GroupId { origin: 0, process: 1, program: 1 };

/// A page of a remote holder, and whether it may write to it.
type Page = (Vec<u8>, bool);

/// The pages of a remote holder, and the grants that it has received.
#[derive(Default)]
struct Holdings {
    pages: BTreeMap<u64, Page>,
    /// The grants that have arrived: the first page, and the pieces.
    grants: Vec<(u64, Vec<PageContent>)>,
    /// The answer that it gives to all recalls instead of the right one.
    wrong: Option<(Option<PageContent>, Vec<u8>)>,
}

/// The holder at another node.
struct Remote {
    layer: Arc<Layer>,
    held: Arc<(Mutex<Holdings>, Condvar)>,
}

impl Remote {
    fn start(number: u16) -> Self {
        let held: Arc<(Mutex<Holdings>, Condvar)> = Arc::default();
        let [on_grant, on_recall, on_invalidate] = std::array::from_fn(|_| Arc::clone(&held));
        let layer = Layer::builder(InstanceId(number))
            .silence(Duration::from_secs(60))
            .on::<PageGrant>(move |_, grant, body| {
                on_grant.0.lock().grant(grant, body);
                on_grant.1.notify_all();
            })
            .answer::<PageRecall>(move |_, recall, _, reply| {
                let (piece, bytes) = on_recall.0.lock().surrender(recall);
                reply.say(&piece, &bytes);
            })
            .answer::<PageInvalidate>(move |_, invalidate, _, reply| {
                let mut held = on_invalidate.0.lock();
                for range in invalidate.ranges {
                    held.pages.retain(|page, _| !range.contains(page));
                }
                drop(held);
                reply.say(&(), &[]);
            });
        Self { layer: layer.start().expect("a thread"), held }
    }

    fn id(&self) -> InstanceId {
        self.layer.own()
    }

    /// Requests pages, and waits for the first of them. Returns the pieces of the grant.
    fn fetch(&self, page: u64, count: u16, access: Access) -> Vec<PageContent> {
        let mut held = self.held.0.lock();
        let before = held.grants.len();
        self.ask(page, count, access);
        self.wait_for_grant(&mut held, before);
        let (first, pieces) = held.grants[before].clone();
        assert_eq!(first, page);
        pieces
    }

    fn ask(&self, page: u64, count: u16, access: Access) {
        let fetch = Fetch { group: GROUP, page, count, write: access == Access::Write };
        self.layer.send(GROUP.home(), &fetch, &[]).expect("connected");
    }

    /// Returns the first word of a page, and whether it may write to it; `None` if it has it not.
    fn word(&self, page: u64) -> Option<(u64, bool)> {
        self.held.0.lock().pages.get(&page).map(|(bytes, write)| (word_of(bytes), *write))
    }

    /// Writes to a page, which it must be permitted to.
    fn write(&self, page: u64, value: u64) {
        let mut held = self.held.0.lock();
        let (bytes, write) = held.pages.get_mut(&page).expect("it has it");
        assert!(*write);
        *bytes = page_of(value);
    }

    /// Adds one to the first word of a page, as a thread at this node would.
    fn add_one(&self, page: u64) {
        let mut held = self.held.0.lock();
        loop {
            if let Some((bytes, true)) = held.pages.get_mut(&page) {
                *bytes = page_of(word_of(bytes) + 1);
                return;
            }
            let before = held.grants.len();
            self.ask(page, 1, Access::Write);
            // The page may be recalled before this thread runs again.
            self.wait_for_grant(&mut held, before);
        }
    }

    fn wait_for_grant(&self, held: &mut MutexGuard<'_, Holdings>, before: usize) {
        assert!(self.is_granted(held, before, Duration::from_secs(60)), "a page has not come");
    }

    /// Returns whether another grant comes in this time.
    fn is_granted(
        &self,
        held: &mut MutexGuard<'_, Holdings>,
        before: usize,
        limit: Duration,
    ) -> bool {
        let none = |held: &mut Holdings| held.grants.len() == before;
        !self.held.1.wait_while_for(held, none, limit).timed_out()
    }
}

impl Holdings {
    fn grant(&mut self, grant: PageGrant, mut body: &[u8]) {
        for (at, piece) in grant.pieces.iter().enumerate() {
            let page = grant.page + at as u64 * PAGE_SIZE;
            let bytes = match piece {
                PageContent::Data => {
                    body.split_off(..PAGE_SIZE as usize).expect("a page for each").to_vec()
                }
                PageContent::Zeros => page_of(0),
                PageContent::AlreadyHeld => self.pages.remove(&page).expect("it has it").0,
            };
            self.pages.insert(page, (bytes, grant.write));
        }
        assert!(body.is_empty());
        self.grants.push((grant.page, grant.pieces));
    }

    fn surrender(&mut self, recall: PageRecall) -> (Option<PageContent>, Vec<u8>) {
        if let Some(wrong) = self.wrong.clone() {
            return wrong;
        }
        let (bytes, _) = self.pages.remove(&recall.page).expect("it was granted");
        if recall.keeps {
            self.pages.insert(recall.page, (bytes.clone(), false));
        }
        if word_of(&bytes) == 0 {
            (Some(PageContent::Zeros), Vec::new())
        } else {
            (Some(PageContent::Data), bytes)
        }
    }
}

/// The origin, whose memory is of this process, and two other nodes.
struct World {
    mapping: Arc<Mapping>,
    frames: Arc<File>,
    home: PageHomeHandle,
    ledger: Arc<Ledger>,
    layer: Arc<Layer>,
    remote: [Remote; 2],
    /// The reports of lost pages.
    lost: Arc<Mutex<Vec<String>>>,
    _directory: tempfile::TempDir,
}

impl World {
    /// Returns a world with this many pages, none of which was touched; `None` if this host permits
    /// none.
    fn new(pages: u64) -> Option<Self> {
        let userfault = userfault()?;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("origin");
        let home: Arc<OnceLock<PageHomeHandle>> = Arc::default();
        let fetches = Arc::clone(&home);
        let builder = Layer::builder(GROUP.home()).silence(Duration::from_secs(60));
        let builder = builder.on::<Fetch>(move |from, fetch, _| {
            let access = Access::of(fetch.write);
            fetches.wait().fetch(from, fetch.page, fetch.count, access);
        });
        let layer = builder.start().expect("a thread");
        layer.listen_here(&path).expect("a socket");
        let remote = [1, 2].map(Remote::start);
        for one in &remote {
            one.layer.join_here(&path).expect("it listens");
        }
        until("both", || layer.peers().len() == 2);

        let (mapping, ledger) = (Mapping::reserve(pages), Ledgers::default().begin(GROUP));
        let (frames, lost) = (mapping.frames(), Arc::<Mutex<Vec<String>>>::default());
        let (window, losses) = (Window::Fixed(1), Arc::clone(&lost));
        let begun = PageHome::begin(
            GROUP,
            &layer,
            (Arc::clone(&frames), userfault),
            (window, Arc::clone(&ledger)),
            move |why| losses.lock().push(why.to_owned()),
        );
        let home = home.get_or_init(|| begun.expect("threads")).clone();
        mapping.map(&frames).expect("mapped");
        home.watch(&mapping.range()).expect("watched");
        mapping.open().expect("opened");
        Some(Self { mapping, frames, home, ledger, layer, remote, lost, _directory: directory })
    }

    fn at(&self, page: u64) -> u64 {
        self.mapping.at(page)
    }

    /// Does something with the memory at the origin, which may have to wait for pages.
    fn here<T: Send + 'static>(&self, work: impl FnOnce(&Mapping) -> T + Send + 'static) -> T {
        let mapping = Arc::clone(&self.mapping);
        join(thread::spawn(move || work(&mapping)))
    }

    /// Waits until this many requests of the origin's own memory are served entirely.
    fn until_served_here(&self, count: u64) {
        until("a page here", || self.ledger.counts().pages.home.count >= count);
        assert_eq!(self.ledger.counts().pages.home.count, count);
    }

    /// Has both remote holders write to one page after the other, each its number, until the first
    /// has a lease. Returns a moment just before that.
    fn until_lease(&self) -> Instant {
        let [one, two] = &self.remote;
        let mut page = 0;
        loop {
            two.fetch(self.at(page), 1, Access::Write);
            let before = Instant::now();
            one.fetch(self.at(page), 1, Access::Write);
            one.write(self.at(page), page);
            if self.ledger.counts().pages.turns == 1 {
                return before;
            }
            page += 1;
        }
    }

    /// Returns the first words of all pages of a range, which is gathered for that.
    fn gathered(&self, pages: Range<u64>) -> Vec<u64> {
        let read = |page| word_at(&self.frames, self.at(page));
        let read_all = || pages.clone().map(read).collect();
        self.home.gather(self.mapping.pages(pages.clone()), read_all).expect("no page is lost")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.home.close();
        self.remote.iter().map(|one| &one.layer).chain([&self.layer]).for_each(|one| one.close());
    }
}

#[test]
fn what_three_holders_add_to_the_same_pages_is_all_there() {
    const PAGES: u64 = 6;
    const ROUNDS: u64 = 300;
    let Some(world) = World::new(PAGES) else { return };
    thread::scope(|scope| {
        for one in &world.remote {
            let range = world.mapping.pages(0..PAGES);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    one.add_one(
                        range.start + (round * 5 + u64::from(one.id().0)) % PAGES * PAGE_SIZE,
                    );
                }
            });
        }
        world.here(|mapping| (0..ROUNDS).for_each(|round| mapping.add_one(round % PAGES)));
    });
    assert_eq!(world.gathered(0..PAGES).iter().sum::<u64>(), 3 * ROUNDS);
    assert_eq!(*world.lost.lock(), Vec::<String>::new());
}

#[test]
fn a_page_is_read_by_all_until_one_writes_to_it() {
    let Some(world) = World::new(2) else { return };
    let [one, two] = &world.remote;
    let page = world.at(1);
    world.here(|mapping| mapping.write(1, 5));
    assert_eq!(one.fetch(page, 1, Access::Read), [PageContent::Data]);
    assert_eq!(two.fetch(page, 1, Access::Read), [PageContent::Data]);
    assert_eq!([one.word(page), two.word(page)], [Some((5, false)); 2]);
    assert_eq!(world.here(|mapping| mapping.read(1)), 5);
    assert_eq!(two.fetch(page, 1, Access::Write), [PageContent::AlreadyHeld]);
    assert_eq!([one.word(page), two.word(page)], [None, Some((5, true))]);
    two.write(page, 6);
    // It keeps the page for reading, here and there.
    assert_eq!(world.here(|mapping| mapping.read(1)), 6);
    assert_eq!(two.word(page), Some((6, false)));
    assert_eq!(one.fetch(page, 1, Access::Read), [PageContent::Data]);
    world.here(|mapping| mapping.add_one(1));
    assert_eq!([one.word(page), two.word(page)], [None; 2]);
    assert_eq!(world.gathered(0..2), [0, 7]);
    world.until_served_here(3);
    let counts = world.ledger.counts();
    let pages = &counts.pages;
    assert_eq!((pages.sent, pages.zeros, pages.permitted, pages.ahead), (3, 0, 1, 0));
    assert_eq!((pages.fetches.count, pages.waits.count, pages.to_write), (4, 4, 1));
    assert_eq!(pages.taken, 1);
}

#[test]
fn pages_that_follow_come_along_if_the_origin_has_them() {
    let Some(world) = World::new(12) else { return };
    let [one, two] = &world.remote;
    world.here(|mapping| [0, 1, 3, 4].iter().for_each(|&page| mapping.write(page, 10 + page)));
    two.fetch(world.at(4), 1, Access::Read);
    let granted = one.fetch(world.at(0), 8, Access::Write);
    // The page after these is not only the origin's.
    assert_eq!(
        granted,
        [PageContent::Data, PageContent::Data, PageContent::Zeros, PageContent::Data]
    );
    let words = [0, 1, 2, 3].map(|page| one.word(world.at(page)));
    assert_eq!(words, [(10, true), (11, true), (0, true), (13, true)].map(Some));
    assert_eq!(one.word(world.at(4)), None);
    // To read, it comes from the origin, which keeps it; the one before comes from its writer.
    let granted = two.fetch(world.at(3), 3, Access::Read);
    assert_eq!(granted, [PageContent::Data], "the next is there already");
    assert_eq!(one.word(world.at(3)), Some((13, false)));
    assert_eq!(one.fetch(world.at(4), 2, Access::Read), [PageContent::Data, PageContent::Zeros]);
    assert_eq!(world.here(|mapping| [4, 5].map(|page| mapping.read(page))), [14, 0]);
    // The first comes from its writer, and the next from the origin.
    assert_eq!(one.fetch(world.at(6), 1, Access::Write), [PageContent::Zeros]);
    assert_eq!(two.fetch(world.at(6), 2, Access::Read), [PageContent::Zeros; 2]);
    // The first holder has gone on after four pages that it had at once, and after two.
    let counts = world.ledger.counts();
    assert_eq!((counts.pages.ahead, counts.pages.ahead_used), (5, 4));
    assert_eq!((counts.pages.sent, counts.pages.zeros), (6, 5));
}

#[test]
fn untouched_pages_after_one_of_the_origins_are_given_at_once() {
    let Some(world) = World::new(40) else { return };
    world.remote[0].fetch(world.at(20), 1, Access::Write);
    world.here(|mapping| mapping.write(0, 1));
    world.until_served_here(1);
    world.here(|mapping| (1..16).for_each(|page| mapping.write(page, 1)));
    world.here(|mapping| mapping.write(16, 1));
    world.until_served_here(2);
    // The page after these is away.
    world.here(|mapping| (17..20).for_each(|page| mapping.write(page, 1)));
    world.here(|mapping| mapping.add_one(21));
    world.until_served_here(3);
    assert_eq!(world.remote[0].word(world.at(20)), Some((0, true)), "it was not taken");
}

#[test]
fn discarded_pages_are_gone_everywhere_and_others_are_not() {
    let Some(world) = World::new(6) else { return };
    let [one, two] = &world.remote;
    for page in 0..5 {
        world.here(move |mapping| mapping.write(page, 7));
    }
    one.fetch(world.at(0), 1, Access::Write);
    one.fetch(world.at(1), 1, Access::Read);
    two.fetch(world.at(1), 1, Access::Read);
    two.fetch(world.at(2), 1, Access::Write);
    world
        .home
        .discard(vec![world.mapping.pages(1..2), world.mapping.pages(2..3)])
        .expect("within the file");
    assert_eq!([one, two].map(|holder| holder.word(world.at(1))), [None; 2]);
    assert_eq!(two.word(world.at(2)), None);
    assert_eq!(one.word(world.at(0)), Some((7, true)));
    assert_eq!(world.gathered(0..5), [7, 0, 0, 7, 7]);
    assert_eq!(world.here(|mapping| [0, 1, 2, 3].map(|page| mapping.read(page))), [7, 0, 0, 7]);
}

#[test]
fn gathered_pages_stay_until_the_gatherer_is_done() {
    let Some(world) = World::new(2) else { return };
    let [one, two] = &world.remote;
    one.fetch(world.at(0), 1, Access::Write);
    one.write(world.at(0), 3);
    world
        .home
        .gather(world.mapping.pages(0..2), || {
            assert_eq!(one.word(world.at(0)), None);
            let mut held = two.held.0.lock();
            two.ask(world.at(0), 1, Access::Write);
            // A page home that does not wait would grant it in this time.
            assert!(!two.is_granted(&mut held, 0, Duration::from_millis(20)));
        })
        .expect("no page is lost");
    until("the grant", || two.word(world.at(0)) == Some((3, true)));
}

#[test]
fn what_only_a_lost_holder_had_is_lost_and_said() {
    let Some(world) = World::new(3) else { return };
    let [one, two] = &world.remote;
    one.fetch(world.at(0), 2, Access::Write);
    one.fetch(world.at(2), 1, Access::Read);
    one.write(world.at(0), 3);
    // Another holder needs the page, of which only a part comes.
    one.held.0.lock().wrong = Some((Some(PageContent::Data), vec![1; 100]));
    two.ask(world.at(0), 1, Access::Write);
    until("a report", || world.lost.lock().len() == 1);
    let page = world.at(0);
    assert_eq!(
        world.lost.lock()[0],
        format!("the page at {page:#x} is lost: instance 1 has it no more")
    );
    assert_eq!(world.home.forget_holder(two.id()), 1, "it was its, as far as is known");
    assert_eq!(world.home.forget_holder(one.id()), 1, "the origin has the one that is read");
    assert_eq!(two.fetch(world.at(1), 2, Access::Read), [PageContent::Zeros; 2]);
    // A gatherer is refused, and others are served after it.
    one.held.0.lock().wrong = Some((None, Vec::new()));
    one.fetch(world.at(0), 1, Access::Write);
    let gathered = world.home.gather(world.mapping.pages(0..3), || panic!("a page is lost"));
    assert!(gathered.expect_err("lost").to_string().contains("instance 1 has it no more"));
    assert_eq!(world.lost.lock().len(), 2);
    assert_eq!(two.fetch(world.at(2), 1, Access::Write), [PageContent::AlreadyHeld]);
}

#[test]
fn a_system_call_that_waits_for_a_lost_page_fails() {
    let Some(world) = World::new(1) else { return };
    let one = &world.remote[0];
    one.fetch(world.at(0), 1, Access::Write);
    one.held.0.lock().wrong = Some((None, Vec::new()));
    // A tracer has pages of its program brought like this.
    let page = world.at(0);
    let read = thread::spawn(move || refit_sys::foreign::bring(std::process::id(), page));
    let error = join(read).expect_err("its page is lost");
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    assert_eq!(world.lost.lock().len(), 1, "killed before");
}

#[test]
fn a_closed_page_home_answers_nobody() {
    let Some(world) = World::new(1) else { return };
    world.home.close();
    let gathered = world.home.gather(world.mapping.pages(0..1), || panic!("it has ended"));
    assert_eq!(gathered.expect_err("it has ended").raw_os_error(), Some(libc::ESRCH));
    assert!(world.home.discard(vec![world.mapping.pages(0..1)]).is_err());
    assert_eq!(world.home.forget_holder(InstanceId(1)), 0);
}

#[test]
fn a_holder_that_writes_all_over_in_turn_with_another_gets_a_lease() {
    let Some(world) = World::new(400) else { return };
    let two = &world.remote[1];
    world.until_lease();
    // A gatherer ends the lease, and comes after those that wait for its end.
    world.home.fetch(two.id(), world.at(2), 1, Access::Write);
    assert_eq!(world.gathered(2..4), [2, 3]);
    let granted = two.held.0.lock().grants.last().map(|(page, _)| *page);
    assert_eq!(granted, Some(world.at(2)));
    assert_eq!(two.fetch(world.at(1), 1, Access::Write), [PageContent::Data]);
    assert_eq!(*world.lost.lock(), Vec::<String>::new());
}

#[test]
fn a_holder_waits_until_the_lease_of_another_ends_by_itself() {
    let Some(world) = World::new(400) else { return };
    let before = world.until_lease();
    world.remote[1].fetch(world.at(1), 1, Access::Write);
    // The lease began after `before`.
    assert!(before.elapsed() >= MAX_IDLE, "{:?}", before.elapsed());
}

#[test]
fn holders_that_only_read_get_no_lease() {
    const PAGES: u64 = 600;
    let Some(world) = World::new(PAGES) else { return };
    let [one, two] = &world.remote;
    for page in (0..PAGES).step_by(2) {
        one.fetch(world.at(page), 1, Access::Read);
        two.fetch(world.at(page + 1), 1, Access::Read);
    }
    assert_eq!(world.ledger.counts().pages.turns, 0);
}
