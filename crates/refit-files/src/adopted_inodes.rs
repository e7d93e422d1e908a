//! The inodes of a mount that another server has served.
//!
//! They are taken while that server may still change them, and once more, as far as they differ,
//! when it has ended. An inode whose record is the same word by word as before would be taken in
//! the same way again.

use crate::image::layout::SLOTS;
use crate::image::record::{Record, Unfinished};
use crate::image::recorded::RecordedInode;
use crate::image::{Image, ImageError};
use crate::inode::Inode;
use crate::table::{ROOT, Table};
use crate::values::HostKey;
use refit_sys::descriptors::Descriptors;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tracing::debug;

/// An inode, with its record in the image of the other server.
type AdoptedInode = (RecordedInode, Arc<Inode>);

/// The inodes that are continued. Each has in the new image the record that it has in the old one.
#[derive(Debug)]
pub(crate) struct AdoptedInodes {
    image: Arc<Image>,
    /// The inodes by the indexes of their records.
    inodes: Vec<Option<AdoptedInode>>,
}

impl AdoptedInodes {
    /// Takes the inodes of the image `old` to a new table and the image `new`.
    pub(crate) fn take(
        old: &Image,
        new: &Arc<Image>,
        from: &dyn Descriptors,
    ) -> Result<(Table, Self), ImageError> {
        let mut records = (0..old.records_used()).filter_map(|it| RecordedInode::read(old, it));
        let root = records.find(|inode| inode.node() == ROOT);
        let device = root.ok_or(ImageError::Damaged("it has no root"))?.key().device;
        let table = Table::empty(new, device, old.next_foreign());
        let mut adopted = Self { image: Arc::clone(new), inodes: Vec::new() };
        adopted.refresh(old, &table, from)?;
        Ok((table, adopted))
    }

    /// Takes the inodes again that differ from what was taken before.
    pub(crate) fn refresh(
        &mut self,
        old: &Image,
        table: &Table,
        from: &dyn Descriptors,
    ) -> Result<(), ImageError> {
        let used = old.records_used();
        if used as usize > self.image.capacity() {
            let what = "it has more inodes than this process may open files";
            return Err(ImageError::Damaged(what));
        }
        table.continue_numbers(old.next_foreign());
        self.inodes.resize_with(used as usize, || None);
        let changed = self.changed(old).into_iter().map(|(index, recorded)| {
            let before = self.inodes[index as usize].take();
            let fd = before.and_then(|(before, inode)| {
                table.discard(&inode);
                let same = recorded.as_ref().is_some_and(|now| now.has_descriptor_of(&before));
                same.then(|| inode.fd())
            });
            (index, recorded, fd)
        });
        // All of them, since the number of one can be that of another now.
        let changed: Vec<_> = changed.collect();
        for (index, recorded, fd) in changed {
            let Some(recorded) = recorded else { continue };
            let fd = fd.map_or_else(|| taken(&recorded, from), Ok);
            let fd = match fd {
                Ok(fd) => fd,
                Err(reason) => {
                    debug!(index, ?recorded, %reason, "an inode is left out");
                    continue;
                }
            };
            let record = Record::copied(&self.image, index);
            let inode = Arc::new(Inode::continued(&recorded, fd, record));
            table.insert_continued(Arc::clone(&inode));
            self.inodes[index as usize] = Some((recorded, inode));
        }
        let free = self.inodes.iter().zip(0..).filter(|(inode, _)| inode.is_none());
        self.image.records_taken(used, free.map(|(_, index)| index).collect());
        Ok(())
    }

    /// Returns the records that differ from those that were taken, with their indexes.
    fn changed(&self, old: &Image) -> Vec<(u32, Option<RecordedInode>)> {
        let unfinished: HashMap<u32, Unfinished> = (0..SLOTS as u32)
            .filter_map(|slot| Unfinished::read(old, slot))
            .map(|unfinished| (unfinished.record(), unfinished))
            .collect();
        let read = |index: u32| {
            let mut recorded = RecordedInode::read(old, index)?;
            if let Some(unfinished) = unfinished.get(&index) {
                recorded.restore(*unfinished);
            }
            Some(recorded)
        };
        let taken = self.inodes.iter().map(|inode| inode.as_ref().map(|(recorded, _)| recorded));
        (0..)
            .zip(taken)
            .map(|(index, taken)| (index, taken, read(index)))
            .filter(|(_, taken, recorded)| *taken != recorded.as_ref())
            .map(|(index, _, recorded)| (index, recorded))
            .collect()
    }

    /// Returns the inodes with their records.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AdoptedInode> {
        self.inodes.iter().flatten()
    }

    /// Returns the inodes that the kernel had forgotten, but whose data was not stored.
    pub(crate) fn forgotten(&self) -> impl Iterator<Item = &Arc<Inode>> {
        self.iter().filter(|(recorded, _)| recorded.lookups() == 0).map(|(_, inode)| inode)
    }

    /// Returns the number of inodes.
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }
}

/// Takes over the descriptor of an inode.
fn taken(recorded: &RecordedInode, from: &dyn Descriptors) -> io::Result<Arc<OwnedFd>> {
    let number = recorded.descriptor().ok_or(io::ErrorKind::NotFound)?;
    let fd = from.take(number)?;
    let found = HostKey::of(&rustix::fs::fstat(&fd)?);
    if found != recorded.key() {
        return Err(io::Error::other(format!("its descriptor refers to {found:?}")));
    }
    Ok(Arc::new(fd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::layout;
    use std::os::fd::RawFd;
    use std::sync::atomic::Ordering::Relaxed;

    /// A process whose descriptors all refer to one file.
    struct OneFile(OwnedFd);

    impl Descriptors for OneFile {
        fn take(&self, _: RawFd) -> io::Result<OwnedFd> {
            self.0.try_clone()
        }
    }

    fn file() -> (OneFile, HostKey) {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let key = HostKey::of(&rustix::fs::fstat(&file).unwrap());
        (OneFile(file), key)
    }

    fn record(image: &Arc<Image>, node: u64, key: HostKey) -> Record {
        let record = image.take_record().unwrap();
        record.begin(node, key, 0o100_644, false);
        record.set_descriptor(3, None);
        record
    }

    #[test]
    fn whatever_is_in_an_image_is_read_without_panic() {
        let (file, _) = file();
        let mut random = 7_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        let mut roots = 0;
        for _ in 0..300 {
            let old = Image::new(16).unwrap();
            old.records_taken(16, Vec::new());
            let new = Image::new(16).unwrap();
            let mut adopted = None;
            for _ in 0..2 {
                for _ in 0..100 {
                    let value = [0, 1, 2, 3, u64::MAX, 1 << 32, 1 << 63, 16][next(8)];
                    let (record, slot) = (next(16) as u32, next(4) as u32);
                    let word = next(layout::RECORD_WORDS);
                    old.record_words(record)[word].store(value, Relaxed);
                    old.slot_words(slot)[next(20)].store(value, Relaxed);
                }
                match &mut adopted {
                    None => adopted = AdoptedInodes::take(&old, &new, &file).ok(),
                    Some((table, inodes)) => inodes.refresh(&old, table, &file).unwrap(),
                }
            }
            roots += usize::from(adopted.is_some());
        }
        assert!(roots > 0, "some of the images have a root");
    }

    #[test]
    fn a_descriptor_that_refers_to_another_inode_is_left_out() {
        let old = Image::new(4).unwrap();
        let (from, key) = file();
        let _root = record(&old, ROOT, key);
        let _other = record(&old, 5, HostKey { device: 1, number: 5 });
        let new = Image::new(4).unwrap();
        let (table, inodes) = AdoptedInodes::take(&old, &new, &from).unwrap();
        assert_eq!(inodes.len(), 1);
        assert!(table.get(ROOT).is_some() && table.get(5).is_none());
        assert_eq!(new.take_record().map(|record| record.index()), Some(1));
    }

    #[test]
    fn what_changes_between_the_two_looks_is_taken_as_it_is_at_the_second() {
        let old = Image::new(8).unwrap();
        let (from, key) = file();
        let _root = record(&old, ROOT, key);
        let [stays, grows, goes] = [10, 11, 12].map(|node| record(&old, node, key));
        let new = Image::new(8).unwrap();
        let (table, mut inodes) = AdoptedInodes::take(&old, &new, &from).unwrap();
        let before = table.get(10).unwrap();
        // One inode changes, one is forgotten and found again under another record, and a new one
        // has the record that it had.
        grows.set_lookups(7);
        let again = record(&old, 12, key);
        drop(goes);
        let fresh = record(&old, 13, key);
        inodes.refresh(&old, &table, &from).unwrap();
        assert!(Arc::ptr_eq(&before, &table.get(10).unwrap()), "it is not taken again");
        assert_eq!(table.get(11).unwrap().record.lookups(), 7);
        assert_eq!(table.get(12).unwrap().record.index(), again.index());
        assert_eq!(table.get(13).unwrap().record.index(), fresh.index());
        assert_eq!((table.len(), inodes.len()), (5, 5));
        assert_eq!(new.take_record().map(|record| record.index()), Some(5));
        for (index, node) in [(0, ROOT), (1, 10), (2, 11), (3, 13), (4, 12)] {
            assert_eq!(new.node_of(index), Some(node));
        }
        drop((stays, grows, again, fresh));
    }

    #[test]
    fn an_inode_that_was_ending_does_not_hide_the_one_that_was_found_again() {
        for order in [[0, 1], [1, 0]] {
            let old = Image::new(8).unwrap();
            let (from, key) = file();
            let _root = record(&old, ROOT, key);
            let both = order.map(|lookups| {
                let record = record(&old, 10, key);
                record.set_lookups(lookups);
                record
            });
            let new = Image::new(8).unwrap();
            let (table, inodes) = AdoptedInodes::take(&old, &new, &from).unwrap();
            let ending: Vec<_> = inodes.forgotten().filter(|inode| inode.node == 10).collect();
            assert_eq!(ending.len(), 1);
            assert!(!table.remove(ending[0]), "it is not in the table");
            assert_eq!(table.get(10).map(|inode| inode.record.lookups()), Some(1));
            drop(both);
        }
    }
}
