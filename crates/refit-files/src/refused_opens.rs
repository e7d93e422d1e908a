//! The opens that were refused once, so that the kernel looks up the name again.

use crate::image::Image;
use crate::image::header::MAX_REFUSED;
use crate::inode::Place;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The threads whose open was refused with `ESTALE`, upon which the kernel looks up the name and
/// opens the file once more. A second refusal would be returned to the program, also if another
/// server continues the mount between the two. The threads are therefore recorded in the image.
#[derive(Debug)]
pub(crate) struct RefusedOpens {
    image: Arc<Image>,
    refused: Mutex<Refused>,
    /// The number of these threads. It is usually zero, in which case an open need not lock.
    count: AtomicUsize,
}

/// The refusals by their places in the image.
#[derive(Debug)]
struct Refused {
    places: Vec<Option<RefusedOpen>>,
    /// The number of the next refusal.
    next: u64,
}

/// An open that was refused.
#[derive(Debug)]
struct RefusedOpen {
    thread: u32,
    /// `None` if another server has refused it.
    target: Option<OpenTarget>,
    number: u64,
}

/// The target of an open. The second attempt can concern another inode of the same name, or the
/// looked-up name of the same inode, which has several names.
#[derive(Clone, Debug)]
pub(crate) struct OpenTarget {
    pub(crate) node: u64,
    pub(crate) place: Place,
}

impl RefusedOpens {
    pub(crate) fn new(image: &Arc<Image>) -> Self {
        let places = (0..MAX_REFUSED).map(|_| None).collect();
        let refused = Mutex::new(Refused { places, next: 1 });
        Self { image: Arc::clone(image), refused, count: AtomicUsize::new(0) }
    }

    /// Continues with the refusals of another server.
    pub(crate) fn continue_from(&self, old: &Image) {
        let mut refused = self.refused.lock();
        for (place, refused) in refused.places.iter_mut().enumerate() {
            let thread = old.refused(place);
            *refused = (thread != 0).then_some(RefusedOpen { thread, target: None, number: 0 });
            self.image.set_refused(place, thread);
        }
        self.count.store(refused.places.iter().flatten().count(), Relaxed);
    }

    /// Returns whether to refuse this thread's open, which is `false` if it was just refused, and
    /// remembers the refusal. The oldest of too many refusals is forgotten.
    pub(crate) fn refuse(&self, thread: u32, opened: &OpenTarget) -> bool {
        // The kernel sends 0 for every thread of another namespace.
        if thread == 0 || self.came_back(thread, opened) {
            return false;
        }
        let mut refused = self.refused.lock();
        let age = |open: &Option<RefusedOpen>| open.as_ref().map_or(0, |open| open.number + 1);
        let places = refused.places.iter().enumerate();
        let Some((place, _)) = places.min_by_key(|(_, open)| age(open)) else { return false };
        let (target, number) = (Some(opened.clone()), refused.next);
        refused.next += 1;
        let replaced = refused.places[place].replace(RefusedOpen { thread, target, number });
        if replaced.is_none() {
            self.count.fetch_add(1, Relaxed);
        }
        self.image.set_refused(place, thread);
        true
    }

    /// Returns whether any thread is expected to open again.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Records that a thread opens a file or finds that there is none. Returns whether this open
    /// was refused before.
    pub(crate) fn came_back(&self, thread: u32, opened: &OpenTarget) -> bool {
        if !self.any() {
            return false;
        }
        let mut refused = self.refused.lock();
        let is_its = |open: &RefusedOpen| open.thread == thread;
        let mut places = refused.places.iter_mut().enumerate();
        let found = places.find(|(_, open)| open.as_ref().is_some_and(is_its));
        let Some((place, open)) = found else { return false };
        self.image.set_refused(place, 0);
        self.count.fetch_sub(1, Relaxed);
        // If the thread was refused another file, it has not opened that one again.
        open.take()
            .and_then(|open| open.target)
            .is_none_or(|before| before.node == opened.node || before.place == opened.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(node: u64, name: &str) -> OpenTarget {
        let place = Place { parent: 1, name: name.into() };
        OpenTarget { node, place }
    }

    #[test]
    fn a_thread_is_not_refused_twice_in_a_row() {
        let refused = RefusedOpens::new(&Image::new(1).unwrap());
        let (a, b) = (opened(10, "a"), opened(20, "b"));
        assert!(refused.refuse(7, &a) && refused.refuse(8, &a));
        assert!(!refused.refuse(7, &a));
        assert!(refused.refuse(7, &a) && !refused.refuse(7, &opened(30, "a")));
        assert!(refused.refuse(7, &a) && !refused.refuse(7, &opened(10, "other name")));
        assert!(refused.refuse(7, &a) && refused.refuse(7, &b));
        assert!(refused.came_back(7, &b) && !refused.came_back(7, &b));
        assert!(!refused.refuse(8, &a) && !refused.refuse(0, &a));
        for thread in 1..1000 {
            assert!(refused.refuse(thread, &a));
        }
        assert_eq!(refused.count.load(Relaxed), MAX_REFUSED);
        assert!(refused.came_back(999, &a) && !refused.came_back(1, &a));
    }

    #[test]
    fn a_thread_that_another_server_has_refused_is_not_refused_again() {
        let images = [(); 2].map(|()| Image::new(1).unwrap());
        let [before, after] = [0, 1].map(|server| RefusedOpens::new(&images[server]));
        assert!(before.refuse(7, &opened(10, "a")) && before.refuse(8, &opened(10, "a")));
        assert!(!before.refuse(8, &opened(10, "a")));
        after.continue_from(&images[0]);
        assert!(!after.refuse(7, &opened(30, "b")), "it is known of it only that it was refused");
        assert!(after.refuse(7, &opened(30, "b")) && after.refuse(8, &opened(10, "a")));
    }
}
