//! The behavior that every implementation of a file cache shares.

use refit_memory::CacheError;

use crate::host::{
    Call, IMPLEMENTATIONS, PAGE_SIZE_U64, RANGE, Subject, each, each_that_keeps, pattern,
    representative,
};

const EFBIG: i32 = 27;

#[test]
fn reads_what_the_file_has_and_stops_at_its_end() {
    let bytes = pattern(1, 10_000);
    each(8, &bytes, |file| {
        assert_eq!(file.cache.size(), 10_000);
        assert_eq!(file.read(0, 10_000).unwrap(), bytes);
        assert_eq!(file.read(9_990, 100).unwrap(), bytes[9_990..]);
        assert_eq!(file.read(10_000, 1).unwrap(), [0u8; 0]);
        assert_eq!(file.read(u64::MAX, 10).unwrap(), [0u8; 0]);
        assert_eq!(file.read(5, 0).unwrap(), [0u8; 0]);
        assert!(!file.cache.is_dirty());
    });
}

#[test]
fn consecutive_missing_pages_are_read_at_once() {
    let bytes = pattern(2, 40 * PAGE_SIZE_U64 as usize);
    each_that_keeps(64, &bytes, |file| {
        file.read(10, 9 * PAGE_SIZE_U64 as usize).unwrap();
        assert_eq!(file.host.calls(), [Call::Read(0, 10 * PAGE_SIZE_U64)]);
        // Resident pages are not read again, and bound the runs.
        file.read(20 * PAGE_SIZE_U64, 1).unwrap();
        assert_eq!(file.host.calls(), [Call::Read(20 * PAGE_SIZE_U64, PAGE_SIZE_U64)]);
        file.read(0, 24 * PAGE_SIZE_U64 as usize).unwrap();
        let expected = [
            Call::Read(10 * PAGE_SIZE_U64, 10 * PAGE_SIZE_U64),
            Call::Read(21 * PAGE_SIZE_U64, 3 * PAGE_SIZE_U64),
        ];
        assert_eq!(file.host.calls(), expected);
        assert_eq!(file.cache.stats().faults, 24);
        assert_eq!(file.cache.stats().calls, 3);
    });
}

#[test]
fn a_sequential_cache_gives_up_what_a_reader_has_left_behind() {
    let bytes = pattern(2, 200 * PAGE_SIZE_U64 as usize);
    let file = Subject::new("sequential", 256, bytes.clone());
    file.write(7 * PAGE_SIZE_U64, b"dirty").unwrap();
    for page in (0..200).step_by(4) {
        let read = file.read(page * PAGE_SIZE_U64, 4 * PAGE_SIZE_U64 as usize).unwrap();
        let whole = &bytes[(page * PAGE_SIZE_U64) as usize..][..4 * PAGE_SIZE_U64 as usize];
        assert!(read == whole || page == 4);
        assert!(file.cache.stats().resident <= 5, "{page}: {:?}", file.cache.stats());
    }
    assert_eq!(file.read(7 * PAGE_SIZE_U64, 5).unwrap(), b"dirty");
    assert_eq!(file.flush(), 1);
    file.read(100 * PAGE_SIZE_U64, 1).unwrap();
    assert_eq!(file.read(7 * PAGE_SIZE_U64, 5).unwrap(), b"dirty");
    // Other implementations keep all of it.
    file.swap("shared");
    file.read(0, bytes.len()).unwrap();
    assert_eq!(file.cache.stats().resident, 200);
}

#[test]
fn a_batch_is_at_most_32_pages() {
    let bytes = pattern(3, 40 * PAGE_SIZE_U64 as usize);
    each(64, &bytes, |file| {
        assert_eq!(file.read(0, 40 * PAGE_SIZE_U64 as usize).unwrap(), bytes);
        let expected =
            [Call::Read(0, 32 * PAGE_SIZE_U64), Call::Read(32 * PAGE_SIZE_U64, 8 * PAGE_SIZE_U64)];
        assert_eq!(file.host.calls(), expected);
        for page in 0..40 {
            file.write(page * PAGE_SIZE_U64, b"x").unwrap();
        }
        assert_eq!(file.flush(), 40);
        let expected = [
            Call::Write(0, 32 * PAGE_SIZE_U64),
            Call::Write(32 * PAGE_SIZE_U64, 8 * PAGE_SIZE_U64),
        ];
        assert_eq!(file.host.calls(), expected);
    });
}

#[test]
fn whole_pages_and_pages_beyond_the_file_are_not_read_before_a_write() {
    let bytes = pattern(4, 2 * PAGE_SIZE_U64 as usize + 100);
    each(16, &bytes, |file| {
        file.write(0, &pattern(5, PAGE_SIZE_U64 as usize)).unwrap();
        // The write covers everything that the host has of the page.
        file.write(2 * PAGE_SIZE_U64, &pattern(6, 100)).unwrap();
        file.write(7 * PAGE_SIZE_U64 + 5, b"far").unwrap();
        assert_eq!(file.host.calls(), []);
        file.write(PAGE_SIZE_U64 + 1, b"y").unwrap();
        assert_eq!(file.host.calls(), [Call::Read(PAGE_SIZE_U64, PAGE_SIZE_U64)]);
        assert_eq!(file.cache.size(), 7 * PAGE_SIZE_U64 + 8);
        assert_eq!(file.read(7 * PAGE_SIZE_U64, 100).unwrap(), b"\0\0\0\0\0far");
        assert_eq!(file.read(2 * PAGE_SIZE_U64 + 100, 100).unwrap(), [0; 100]);
        assert_eq!(
            file.read(3 * PAGE_SIZE_U64, PAGE_SIZE_U64 as usize).unwrap(),
            [0; PAGE_SIZE_U64 as usize]
        );
    });
}

#[test]
fn a_frame_that_had_another_page_shows_nothing_of_it() {
    each(2, &pattern(7, 5), |file| {
        file.write(0, &[0xaa; 2 * PAGE_SIZE_U64 as usize]).unwrap();
        file.cache.discard();
        file.cache.truncate(5).unwrap();
        file.cache.truncate(2 * PAGE_SIZE_U64).unwrap();
        assert_eq!(
            file.read(5, 2 * PAGE_SIZE_U64 as usize).unwrap(),
            [0; 2 * PAGE_SIZE_U64 as usize - 5]
        );
        file.cache.discard();
        file.write(2 * PAGE_SIZE_U64 + 9, b"z").unwrap();
        file.cache.truncate(3 * PAGE_SIZE_U64).unwrap();
        let mut expected = vec![0; PAGE_SIZE_U64 as usize];
        expected[9] = b'z';
        assert_eq!(file.read(2 * PAGE_SIZE_U64, PAGE_SIZE_U64 as usize).unwrap(), expected);
    });
}

#[test]
fn flush_writes_dirty_pages_once_and_never_beyond_the_end() {
    each(16, &[], |file| {
        file.write(PAGE_SIZE_U64 - 1, &pattern(8, 2 * PAGE_SIZE_U64 as usize)).unwrap();
        assert!(file.cache.is_dirty());
        assert_eq!(file.cache.stats().dirty, 3);
        assert_eq!(file.flush(), 3);
        assert_eq!(file.host.calls(), [Call::Write(0, 3 * PAGE_SIZE_U64 - 1)]);
        assert!(!file.cache.is_dirty());
        assert_eq!(file.flush(), 0);
        assert_eq!(file.host.calls(), []);
        assert_eq!(file.host.bytes().len() as u64, file.cache.size());
        assert_eq!(
            file.host.bytes()[PAGE_SIZE_U64 as usize - 1..],
            pattern(8, 2 * PAGE_SIZE_U64 as usize)
        );
    });
}

#[test]
fn flush_of_a_range_leaves_other_pages_dirty() {
    each(16, &[], |file| {
        file.write(0, &pattern(9, 4 * PAGE_SIZE_U64 as usize)).unwrap();
        assert_eq!(file.cache.flush(PAGE_SIZE_U64, PAGE_SIZE_U64), Ok(0));
        assert_eq!(file.cache.flush(PAGE_SIZE_U64 + 10, 2 * PAGE_SIZE_U64 + 1), Ok(2));
        assert_eq!(file.host.calls(), [Call::Write(PAGE_SIZE_U64, 2 * PAGE_SIZE_U64)]);
        assert_eq!(file.cache.stats().dirty, 2);
        assert_eq!(file.flush(), 2);
        assert_eq!(file.host.bytes(), pattern(9, 4 * PAGE_SIZE_U64 as usize));
    });
}

#[test]
fn bytes_behind_a_cut_are_zero_when_the_file_grows_again() {
    let bytes = pattern(10, 3 * PAGE_SIZE_U64 as usize);
    for resident in [true, false] {
        each(16, &bytes, |file| {
            if resident {
                file.write(10, b"dirty").unwrap();
                file.read(0, bytes.len()).unwrap();
            }
            let expected = if resident { [&bytes[..10], b"dirty"].concat() } else { bytes.clone() };
            file.cache.truncate(15).unwrap();
            assert_eq!(file.cache.size(), 15);
            assert_eq!(file.host.bytes().len(), 15);
            file.cache.truncate(2 * PAGE_SIZE_U64).unwrap();
            let got = file.read(0, 3 * PAGE_SIZE_U64 as usize).unwrap();
            assert_eq!(got.len() as u64, 2 * PAGE_SIZE_U64);
            assert_eq!(got[..15], expected[..15]);
            assert!(got[15..].iter().all(|&byte| byte == 0));
            file.flush();
            assert_eq!(file.host.bytes(), got);
        });
    }
}

#[test]
fn a_write_behind_the_end_leaves_zeros_between() {
    each(16, &pattern(11, 100), |file| {
        file.write(50, b"resident and dirty").unwrap();
        file.write(RANGE + 7, b"far").unwrap();
        assert_eq!(file.cache.size(), RANGE + 10);
        let got = file.read(90, 100).unwrap();
        assert_eq!(got[..10], pattern(11, 100)[90..]);
        assert_eq!(got[10..], [0; 90]);
        assert_eq!(file.read(RANGE - 3, 20).unwrap(), b"\0\0\0\0\0\0\0\0\0\0far");
        file.flush();
        assert_eq!(file.host.bytes().len() as u64, RANGE + 10);
    });
}

#[test]
fn a_write_across_many_ranges_arrives_whole() {
    let data = pattern(12, (5 * RANGE + 3 * PAGE_SIZE_U64) as usize);
    each(400, &[], |file| {
        file.write(RANGE - PAGE_SIZE_U64 - 3, &data).unwrap();
        assert_eq!(file.cache.stats().calls, 1);
        assert_eq!(file.read(RANGE - PAGE_SIZE_U64 - 3, data.len() + 9).unwrap(), data);
        file.flush();
        assert_eq!(file.host.bytes()[(RANGE - PAGE_SIZE_U64 - 3) as usize..], data);
    });
}

#[test]
fn a_write_without_frames_changes_nothing() {
    each(4, &pattern(13, 100), |file| {
        let before = file.read(0, 100).unwrap();
        for offset in [0, RANGE - 2 * PAGE_SIZE_U64] {
            let result = file.cache.write(offset, &[0xbb; 6 * PAGE_SIZE_U64 as usize]);
            assert_eq!(result, Err(CacheError::NoFrame));
            assert_eq!(file.cache.size(), 100);
            assert!(!file.cache.is_dirty());
            assert_eq!(file.cache.stats().resident, 1);
        }
        assert_eq!(file.read(0, 200).unwrap(), before);
        file.write(0, &[0xcc; 4 * PAGE_SIZE_U64 as usize]).unwrap();
    });
}

#[test]
fn invalidate_shows_what_changed_underneath() {
    let bytes = pattern(14, 3 * PAGE_SIZE_U64 as usize + 50);
    each(16, &bytes, |file| {
        file.read(0, bytes.len()).unwrap();
        file.write(5, b"mine").unwrap();
        file.cache.invalidate(0, u64::MAX).unwrap();
        assert_eq!(file.cache.stats().resident, 0);
        assert_eq!(file.host.bytes()[5..9], *b"mine");
        file.host.change(|host| {
            host[PAGE_SIZE_U64 as usize] = b'!';
            host.truncate(2 * PAGE_SIZE_U64 as usize);
        });
        file.cache.invalidate(0, u64::MAX).unwrap();
        assert_eq!(file.cache.size(), 2 * PAGE_SIZE_U64);
        assert_eq!(file.read(PAGE_SIZE_U64, 1).unwrap(), b"!");
        assert_eq!(file.read(0, 3 * PAGE_SIZE_U64 as usize).unwrap(), file.host.bytes());
    });
}

#[test]
fn invalidate_of_a_range_keeps_the_other_pages_and_their_dirt() {
    let bytes = pattern(15, 4 * PAGE_SIZE_U64 as usize + 50);
    each(16, &bytes, |file| {
        file.read(0, bytes.len()).unwrap();
        file.write(3 * PAGE_SIZE_U64, b"dirty elsewhere").unwrap();
        file.cache.invalidate(PAGE_SIZE_U64, 2 * PAGE_SIZE_U64).unwrap();
        // The page itself, and the page with the end of the file.
        assert_eq!(file.cache.stats().resident, 3);
        assert_eq!(file.cache.stats().dirty, 1);
        file.host.change(|host| {
            host[PAGE_SIZE_U64 as usize + 1] = b'!';
            host.extend_from_slice(&pattern(16, PAGE_SIZE_U64 as usize));
        });
        file.cache.invalidate(PAGE_SIZE_U64, 2 * PAGE_SIZE_U64).unwrap();
        assert_eq!(file.cache.size(), 5 * PAGE_SIZE_U64 + 50);
        assert_eq!(file.read(PAGE_SIZE_U64 + 1, 1).unwrap(), b"!");
        assert_eq!(
            file.read(4 * PAGE_SIZE_U64 + 50, 5000).unwrap(),
            pattern(16, PAGE_SIZE_U64 as usize)
        );
        file.flush();
        assert_eq!(file.host.bytes()[3 * PAGE_SIZE_U64 as usize..][..5], *b"dirty");
    });
}

#[test]
fn invalidate_does_not_lose_dirty_pages_when_the_host_was_cut() {
    each(16, &pattern(17, 100), |file| {
        file.write(6 * PAGE_SIZE_U64, b"dirty and far").unwrap();
        file.host.change(|host| host.truncate(10));
        file.cache.invalidate(0, PAGE_SIZE_U64).unwrap();
        assert_eq!(file.cache.size(), 6 * PAGE_SIZE_U64 + 13);
        assert_eq!(file.read(6 * PAGE_SIZE_U64, 100).unwrap(), b"dirty and far");
    });
}

#[test]
fn sizes_that_no_file_can_have_are_refused() {
    each(4, b"abc", |file| {
        let refused = Err(CacheError::Host(EFBIG));
        assert_eq!(file.cache.write(u64::MAX, b"x"), refused);
        assert_eq!(file.cache.write(i64::MAX as u64, b"x"), refused);
        assert_eq!(file.cache.truncate(1 << 63), Err(CacheError::Host(EFBIG)));
        assert_eq!(file.cache.write(u64::MAX, b""), Ok(0));
        assert_eq!(file.cache.size(), 3);
        assert_eq!(file.cache.flush(9, 3), Ok(0));
    });
}

#[test]
fn an_unknown_implementation_is_named() {
    let file = Subject::new("shared", 1, vec![]);
    let fr = representative(&file.host);
    let factory = refit_memory::FileCacheFactory::new("test", "sharded");
    let parts = refit_memory::CacheParts { pm: file.pm, frames: file.frames.clone(), fr };
    let error = refit_memory::create_file_cache(&factory, "f", parts, 0).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("sharded"), "{text}");
    assert!(IMPLEMENTATIONS.iter().all(|name| text.contains(name)), "{text}");
}
