//! The host fails: the error surfaces, nothing is lost, nothing leaks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use refit_memory::{CacheError, Eviction};

use crate::host::{EIO, PAGE_SIZE_U64, RANGE, each, pattern};

const FAILED: CacheError = CacheError::Host(EIO);

#[test]
fn a_failed_read_leaves_no_page_behind_and_can_be_repeated() {
    let bytes = pattern(1, 5 * PAGE_SIZE_U64 as usize);
    each(8, &bytes, |file| {
        file.host.fail(true, false);
        assert_eq!(file.read(0, 5 * PAGE_SIZE_U64 as usize), Err(FAILED));
        assert_eq!(file.frames.free_frames(), 8);
        // A write that has to fill a page first fails too, and changes nothing.
        assert_eq!(file.write(PAGE_SIZE_U64 + 3, b"abc"), Err(FAILED));
        assert_eq!(file.write(PAGE_SIZE_U64 + 3, &[1; 2 * PAGE_SIZE_U64 as usize]), Err(FAILED));
        assert!(!file.cache.is_dirty());
        file.host.fail(false, false);
        assert_eq!(file.read(0, 5 * PAGE_SIZE_U64 as usize).unwrap(), bytes);
    });
}

#[test]
fn a_failed_write_back_leaves_the_pages_dirty() {
    each(200, &[], |file| {
        let data = pattern(2, (RANGE + 3 * PAGE_SIZE_U64) as usize);
        file.write(RANGE / 2, &data).unwrap();
        file.host.fail(false, true);
        let dirty = file.cache.stats().dirty;
        assert_eq!(file.cache.flush(0, u64::MAX), Err(FAILED));
        assert_eq!(file.cache.invalidate(0, u64::MAX), Err(FAILED));
        assert_eq!(file.cache.truncate(0), Err(FAILED));
        assert_eq!(file.cache.stats().dirty, dirty);
        assert!(file.cache.is_dirty());
        assert_eq!(file.read(RANGE / 2, data.len()).unwrap(), data);
        file.host.fail(false, false);
        assert_eq!(file.flush(), dirty);
        assert_eq!(file.host.bytes()[(RANGE / 2) as usize..], data);
    });
}

#[test]
fn a_page_that_cannot_be_written_back_is_not_evicted() {
    each(4, &[], |file| {
        file.write(0, &pattern(3, 2 * PAGE_SIZE_U64 as usize)).unwrap();
        let frame = (0..4)
            .filter_map(|index| file.frames.frame(index))
            .find(|&frame| file.frames.owner(frame).is_some_and(|(_, page)| page == 1))
            .unwrap();
        file.host.fail(false, true);
        assert_eq!(file.cache.evict(1, frame), Err(FAILED));
        assert_eq!(file.reclaim(4), 0);
        assert_eq!(file.cache.stats().resident, 2);
        assert_eq!(file.cache.stats().dirty, 2);
        file.host.fail(false, false);
        assert_eq!(file.cache.evict(1, frame), Ok(Eviction::Freed));
        assert_eq!(file.cache.evict(1, frame), Ok(Eviction::Busy));
        assert_eq!(file.cache.evict(0, frame), Ok(Eviction::Busy));
        assert_eq!(
            file.read(0, 3 * PAGE_SIZE_U64 as usize).unwrap(),
            pattern(3, 2 * PAGE_SIZE_U64 as usize)
        );
    });
}

#[test]
fn each_lack_of_a_frame_is_survived() {
    // However few frames are left: the call says so and changes nothing, or does all of its work.
    let bytes = pattern(4, (RANGE + 8 * PAGE_SIZE_U64) as usize);
    for spare in 0..12 {
        each(16, &bytes, |file| {
            let fill = 16 - spare;
            file.read(20 * PAGE_SIZE_U64, fill * PAGE_SIZE_U64 as usize).unwrap();
            let offset = RANGE - 3 * PAGE_SIZE_U64 - 10;
            let data = pattern(5, 5 * PAGE_SIZE_U64 as usize + 20);
            match file.cache.write(offset, &data) {
                Ok(_) => assert!(spare >= 7, "7 pages in {spare} frames"),
                Err(error) => {
                    assert_eq!(error, CacheError::NoFrame);
                    assert!(!file.cache.is_dirty());
                    let mut buf = vec![0; 8 * PAGE_SIZE_U64 as usize];
                    match file.cache.read(offset, &mut buf) {
                        Ok(_) => assert_eq!(buf, bytes[offset as usize..][..buf.len()]),
                        Err(error) => assert_eq!(error, CacheError::NoFrame),
                    }
                    file.write(offset, &data).unwrap();
                }
            }
            assert_eq!(file.read(offset, data.len()).unwrap(), data);
            file.flush();
            assert_eq!(file.host.bytes()[offset as usize..][..data.len()], data);
        });
    }
}

#[test]
fn a_panic_of_the_host_leaves_no_page_busy() {
    let bytes = pattern(6, 3 * PAGE_SIZE_U64 as usize);
    each(8, &bytes, |file| {
        file.host.panic_next("read panics (part of the test)");
        assert!(catch_unwind(AssertUnwindSafe(|| file.read(0, 10))).is_err());
        assert_eq!(file.read(0, 3 * PAGE_SIZE_U64 as usize).unwrap(), bytes);
        file.write(0, b"dirty").unwrap();
        file.host.panic_next("write panics (part of the test)");
        assert!(catch_unwind(AssertUnwindSafe(|| file.flush())).is_err());
        assert_eq!(file.cache.stats().dirty, 1);
        assert_eq!(file.flush(), 1);
        assert_eq!(file.host.bytes()[..5], *b"dirty");
    });
}
