//! Tests of calls that meet while one of them waits for the host. The host is stopped, so that they
//! meet for certain; no outcome depends on the speed of a thread.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use refit_memory::CacheError;

use crate::host::{Call, EIO, PAGE_SIZE_U64, RANGE, each, pattern};

#[test]
fn a_page_is_filled_once_for_all_who_want_it() {
    let bytes = pattern(1, PAGE_SIZE_U64 as usize);
    each(8, &bytes, |file| {
        thread::scope(|scope| {
            let held = file.host.hold();
            let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| file.read(0, 4096))).collect();
            let writer = scope.spawn(|| file.write(100, b"written while it was filled"));
            file.host.wait_for_waiting(1);
            drop(held);
            for reader in readers {
                let got = reader.join().unwrap().unwrap();
                assert_eq!(got[..100], bytes[..100]);
            }
            writer.join().unwrap().unwrap();
        });
        assert_eq!(file.host.calls(), [Call::Read(0, PAGE_SIZE_U64)]);
        assert_eq!(file.read(100, 27).unwrap(), b"written while it was filled");
        assert_eq!(file.cache.stats().resident, 1);
    });
}

#[test]
fn a_failed_fill_reaches_all_who_wait_for_it() {
    each(8, &pattern(2, PAGE_SIZE_U64 as usize), |file| {
        file.host.fail(true, false);
        thread::scope(|scope| {
            let held = file.host.hold();
            let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| file.read(0, 10))).collect();
            file.host.wait_for_waiting(1);
            drop(held);
            for reader in readers {
                assert_eq!(reader.join().unwrap(), Err(CacheError::Host(EIO)));
            }
        });
        assert_eq!(file.frames.free_frames(), 8);
        file.host.fail(false, false);
    });
}

#[test]
fn pages_can_be_used_while_they_are_written_back_and_nothing_is_lost() {
    each(8, &[], |file| {
        file.write(0, &pattern(3, 2 * PAGE_SIZE_U64 as usize)).unwrap();
        thread::scope(|scope| {
            let held = file.host.hold();
            let flusher = scope.spawn(|| file.cache.flush(0, u64::MAX));
            file.host.wait_for_waiting(1);
            // The host has not answered: neither a reader nor a writer waits for it.
            assert_eq!(file.read(0, 10).unwrap(), pattern(3, 10));
            file.write(5, b"later").unwrap();
            file.write(2 * PAGE_SIZE_U64 - 2, b"grown").unwrap();
            assert!(file.cache.is_dirty());
            // A page on its way to the host is not given up.
            assert_eq!(file.reclaim(0), 0);
            let frame = file.frames.frame(0).unwrap();
            let (owner, page) = file.frames.owner(frame).unwrap();
            assert_eq!(owner.evict(page, frame), Ok(refit_memory::Eviction::Busy));
            drop(held);
            flusher.join().unwrap().unwrap();
        });
        file.flush();
        let bytes = file.host.bytes();
        assert_eq!(bytes.len() as u64, 2 * PAGE_SIZE_U64 + 3);
        assert_eq!(&bytes[5..10], b"later");
        assert_eq!(&bytes[2 * PAGE_SIZE_U64 as usize - 2..], b"grown");
    });
}

#[test]
fn an_older_copy_does_not_overtake_a_newer_one() {
    for _ in 0..50 {
        each(8, &[], |file| {
            file.write(0, &pattern(1, PAGE_SIZE_U64 as usize)).unwrap();
            thread::scope(|scope| {
                let held = file.host.hold();
                let first = scope.spawn(|| file.cache.flush(0, u64::MAX));
                file.host.wait_for_waiting(1);
                file.write(0, b"newer").unwrap();
                let second = scope.spawn(|| file.cache.flush(0, u64::MAX));
                thread::yield_now();
                drop(held);
                first.join().unwrap().unwrap();
                second.join().unwrap().unwrap();
            });
            assert_eq!(&file.host.bytes()[..5], b"newer");
        });
    }
}

#[test]
fn a_write_that_waits_for_the_host_holds_up_nobody_else() {
    let bytes = pattern(9, (RANGE + PAGE_SIZE_U64) as usize);
    each(8, &bytes, |file| {
        file.read(RANGE - 2 * PAGE_SIZE_U64, 10).unwrap();
        thread::scope(|scope| {
            let held = file.host.hold();
            // The last page has to be filled: it is in the next range.
            let data = pattern(10, PAGE_SIZE_U64 as usize + 10);
            let writer = scope.spawn(move || file.write(RANGE - PAGE_SIZE_U64, &data));
            file.host.wait_for_waiting(1);
            let (sender, receiver) = mpsc::channel();
            scope.spawn(move || sender.send(file.read(RANGE - 2 * PAGE_SIZE_U64, 10)));
            let got = receiver.recv_timeout(Duration::from_secs(20));
            drop(held);
            let got = got.expect("a read of a page that is here waits for another's fill");
            assert_eq!(got.unwrap(), bytes[(RANGE - 2 * PAGE_SIZE_U64) as usize..][..10]);
            writer.join().unwrap().unwrap();
        });
        let whole =
            [&pattern(10, PAGE_SIZE_U64 as usize + 10), &bytes[RANGE as usize + 10..]].concat();
        assert_eq!(file.read(RANGE - PAGE_SIZE_U64, 2 * PAGE_SIZE_U64 as usize).unwrap(), whole);
    });
}

#[test]
fn a_flush_waits_for_what_others_are_writing() {
    each(8, &[], |file| {
        file.write(0, &pattern(4, PAGE_SIZE_U64 as usize)).unwrap();
        thread::scope(|scope| {
            let held = file.host.hold();
            let first = scope.spawn(|| file.cache.flush(0, u64::MAX));
            file.host.wait_for_waiting(1);
            let second = scope.spawn(|| {
                file.cache.flush(0, u64::MAX).unwrap();
                // Pages that were dirty when the flush began are on the host when it ends.
                file.host.bytes()
            });
            let dirty = file.cache.is_dirty();
            drop(held);
            assert!(dirty, "a page on its way is not clean yet");
            assert_eq!(first.join().unwrap(), Ok(1));
            assert_eq!(second.join().unwrap(), pattern(4, PAGE_SIZE_U64 as usize));
        });
    });
}

#[test]
fn a_flush_takes_over_what_another_could_not_write() {
    each(8, &[], |file| {
        file.write(0, &pattern(5, PAGE_SIZE_U64 as usize)).unwrap();
        file.host.fail(false, true);
        thread::scope(|scope| {
            let held = file.host.hold();
            let first = scope.spawn(|| file.cache.flush(0, u64::MAX));
            file.host.wait_for_waiting(1);
            let second = scope.spawn(|| file.cache.flush(0, u64::MAX));
            drop(held);
            assert_eq!(first.join().unwrap(), Err(CacheError::Host(EIO)));
            assert_eq!(second.join().unwrap(), Err(CacheError::Host(EIO)));
        });
        file.host.fail(false, false);
    });
}

#[test]
fn truncate_and_write_back_do_not_cross() {
    // If the cut did not wait, the write-back that was under way would make the file long again.
    for size in [0, 10, PAGE_SIZE_U64, RANGE, RANGE + PAGE_SIZE_U64] {
        each(200, &[], |file| {
            let data = pattern(6, (RANGE + 2 * PAGE_SIZE_U64) as usize);
            file.write(0, &data).unwrap();
            thread::scope(|scope| {
                let held = file.host.hold();
                let flusher = scope.spawn(|| file.cache.flush(RANGE - PAGE_SIZE_U64, u64::MAX));
                file.host.wait_for_waiting(1);
                let cutter = scope.spawn(|| file.cache.truncate(size));
                thread::yield_now();
                drop(held);
                flusher.join().unwrap().unwrap();
                cutter.join().unwrap().unwrap();
            });
            file.flush();
            assert_eq!(file.host.bytes(), data[..size as usize]);
            assert_eq!(file.read(0, data.len()).unwrap(), data[..size as usize]);
        });
    }
}

#[test]
fn truncate_and_fill_do_not_cross() {
    let bytes = pattern(7, 3 * PAGE_SIZE_U64 as usize);
    each(8, &bytes, |file| {
        thread::scope(|scope| {
            let held = file.host.hold();
            let reader = scope.spawn(|| file.read(0, bytes.len()));
            file.host.wait_for_waiting(1);
            let cutter = scope.spawn(|| {
                file.cache.truncate(100).unwrap();
                file.cache.truncate(3 * PAGE_SIZE_U64).unwrap();
            });
            thread::yield_now();
            drop(held);
            let got = reader.join().unwrap().unwrap();
            assert_eq!(got[..100], bytes[..100]);
            cutter.join().unwrap();
        });
        let got = file.read(0, bytes.len()).unwrap();
        assert_eq!(got[..100], bytes[..100]);
        assert!(got[100..].iter().all(|&byte| byte == 0), "bytes came back");
    });
}

#[test]
fn calls_for_other_partitions_go_on_while_one_waits() {
    let bytes = pattern(8, (RANGE + PAGE_SIZE_U64) as usize);
    each(8, &bytes, |file| {
        file.read(RANGE, 10).unwrap();
        thread::scope(|scope| {
            let held = file.host.hold();
            let reader = scope.spawn(|| file.read(0, 10));
            file.host.wait_for_waiting(1);
            // In both: what is here can be used while another page is filled.
            assert_eq!(file.read(RANGE, 10).unwrap(), bytes[RANGE as usize..][..10]);
            file.write(RANGE + 5, b"on").unwrap();
            drop(held);
            assert_eq!(reader.join().unwrap().unwrap(), bytes[..10]);
        });
    });
}
