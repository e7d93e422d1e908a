//! Another process from outside: its descriptors and its end, its memory and what is known of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use refit_sys::foreign::{self, AccessError, Memory};
use refit_sys::layout::{self, Layout};
use refit_sys::maps::{self, Kind};
use refit_sys::memfd::{self, Seals};
use refit_sys::memory::SharedMapping;
use refit_sys::pagemap::{Categories, Pagemap, Region, Scan};
use refit_sys::pidfd::{Advice, Pidfd};
use refit_sys::process;
use refit_sys::smaps;
use refit_sys::userfault::{Door, Features, Flags, Modes, Userfault};

use crate::common::{Child, LONG, PAGE_SIZE, Pages, idle, offered};

fn own() -> u32 {
    std::process::id()
}

#[test]
fn a_process_is_signalled_waited_for_and_its_memory_released() {
    let child = idle();
    let Some(process) = offered("pidfd_open", Pidfd::open(child.id())) else { return };
    assert!(!process.wait_for_end(Duration::ZERO).expect("it polls"));
    process.signal(0).expect("it is there");
    let refused = process.release_memory().expect_err("it has not been killed");
    if refused.raw_os_error() != Some(libc::ENOSYS) {
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
    process.signal(libc::SIGKILL).expect("it is there");
    match process.release_memory() {
        Ok(()) => {}
        // It was quicker, or this is a kernel before 5.15.
        Err(error) => {
            assert!(
                matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EAGAIN | libc::ENOSYS)),
                "{error}"
            )
        }
    }
    assert!(process.wait_for_end(LONG).expect("it polls"));
    assert_eq!(child.wait(), -libc::SIGKILL);
    let error = process.signal(0).expect_err("it is waited for");
    assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    assert!(Pidfd::open(0).is_err());
}

#[test]
fn a_descriptor_of_another_process_is_the_same_open_file() {
    let file = SharedMapping::new(c"refit-test", PAGE_SIZE).expect("a memfd");
    let number = file.as_fd().as_raw_fd().cast_unsigned();
    let child = idle();
    let process = Pidfd::open(child.id()).expect("a child");
    let Some(fd) = offered("pidfd_getfd", process.get_fd(number)) else { return };
    file.write_at(0, b"seen");
    let mut seen = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&File::from(fd), &mut seen, 0).expect("a file");
    assert_eq!(&seen, b"seen");
    let none = process.get_fd(1 << 20).expect_err("no such descriptor");
    assert_eq!(none.raw_os_error(), Some(libc::EBADF));
}

#[test]
fn threads_have_descriptors_too() {
    let main = refit_sys::thread::id();
    match Pidfd::open_thread(main) {
        Ok(thread) => assert!(!thread.wait_for_end(Duration::ZERO).expect("it polls")),
        // Before 6.9.
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}"),
    }
}

#[test]
fn a_copy_of_a_process_has_memory_of_its_own() {
    let child = idle();
    let same = refit_sys::process::same_memory;
    let Some(own) = offered("kcmp", same(std::process::id(), refit_sys::thread::id())) else {
        return;
    };
    assert!(own);
    assert!(!same(std::process::id(), child.id()).expect("both are there"));
    let none = same(std::process::id(), u32::MAX >> 1).expect_err("no such process");
    assert_eq!(none.raw_os_error(), Some(libc::ESRCH));
}

#[test]
fn advice_is_given_for_memory_of_another_process() {
    let pages = Pages::anonymous(4);
    (0..4).for_each(|page| pages.set(page, 1));
    let child = idle();
    let process = Pidfd::open(child.id()).expect("a child");
    let ranges = [pages.range(0..1), pages.range(2..4)];
    let given = process.advise(&ranges, Advice::Cold);
    let Some(given) = offered("process_madvise", given) else { return };
    assert_eq!(given, 3 * PAGE_SIZE as u64);
    let nowhere = PAGE_SIZE as u64..2 * PAGE_SIZE as u64;
    let unmapped = process.advise(std::slice::from_ref(&nowhere), Advice::WillNeed);
    assert_eq!(unmapped.expect_err("not mapped").raw_os_error(), Some(libc::ENOMEM));
}

#[test]
fn memory_of_another_process_is_read_and_written_as_far_as_it_is_there() {
    let pages = Pages::anonymous(3);
    (0..3).for_each(|page| pages.set(page, 7));
    let child = idle();
    let Some(memory) = offered("/proc/PID/mem", Memory::of(child.id())) else { return };
    let at = pages.all().start;
    memory.write(at + 5, b"hello").expect("it is mapped");
    let mut read = [0; 10];
    memory.read(at, &mut read).expect("it is mapped");
    assert_eq!(read, *b"\x07\0\0\0\0hello");
    assert_eq!(memory.word(at).expect("it is mapped"), u64::from_ne_bytes(*b"\x07\0\0\0\0hel"));
    assert_eq!(pages.get(0), 7, "this process has its own");
    let nothing = memory.read(8, &mut read).expect_err("nothing is there");
    assert!(matches!(nothing, AccessError::Missing { address: 8 }), "{nothing}");
    let process = Pidfd::open(child.id()).expect("a child");
    process.signal(libc::SIGKILL).expect("it is there");
    child.wait();
    let error = memory.read(at, &mut read).expect_err("it has ended");
    assert!(matches!(error, AccessError::Gone), "{error:?}");
}

#[test]
fn a_page_that_waits_to_be_served_is_missing_and_does_not_block() {
    // SAFETY: what is registered are `Pages`.
    let opened = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC | Flags::NONBLOCK) };
    let Some(server) = offered("userfaultfd", opened) else { return };
    server.agree(Features::empty()).expect("the first time");
    let pages = Pages::anonymous(3);
    pages.set(0, 1);
    server.register(pages.all(), Modes::MISSING).expect("anonymous memory");
    let Some(memory) = offered("/proc/PID/mem", Memory::of(own())) else { return };
    let mut read = vec![0; 2 * PAGE_SIZE];
    let from = pages.all().start;
    let missing = memory.read(from, &mut read).expect_err("the second is not there");
    let second = pages.range(1..2).start;
    assert!(matches!(missing, AccessError::Missing { address } if address == second), "{missing}");
    assert_eq!(read[0], 1, "what was before it was read");
    let unwritten = memory.write(second, &[1]).expect_err("as above");
    assert!(matches!(unwritten, AccessError::Missing { address } if address == second));
    let usage = smaps::of(own()).expect("our own");
    let mine = usage.iter().find(|one| one.mapping.range.contains(&from)).expect("mapped");
    assert!(mine.flags.has(*b"um") && !mine.flags.has(*b"uw"), "{mine:?}");
    assert_eq!((mine.resident, mine.anonymous), (PAGE_SIZE as u64, PAGE_SIZE as u64));
}

#[test]
fn what_is_mapped_is_told_by_kind() {
    let file = SharedMapping::new(c"refit-test-kinds", PAGE_SIZE).expect("a memfd");
    let pages = Pages::shared(file.as_fd(), 1);
    let anonymous = Pages::anonymous(1);
    let maps = maps::of(own()).expect("our own");
    let of = |address: u64| maps.iter().find(|one| one.range.contains(&address)).expect("mapped");
    let memfd = of(pages.all().start);
    assert_eq!((memfd.kind(), memfd.shared, memfd.offset), (Kind::Memfd, true, 0));
    assert_eq!(of(anonymous.all().start).kind(), Kind::Anonymous);
    assert_eq!(of(own as fn() -> u32 as usize as u64).kind(), Kind::File);
    for kind in [Kind::Heap, Kind::Stack] {
        assert!(maps.iter().any(|one| one.kind() == kind), "{kind:?}");
    }
}

#[test]
fn pages_are_told_one_by_one() {
    let pages = Pages::anonymous(4);
    pages.withhold();
    pages.set(1, 1);
    pages.set(3, 1);
    let entries = Pagemap::of(own()).expect("our own").pages(pages.all()).expect("mapped");
    let present: Vec<bool> = entries.iter().map(|page| page.present()).collect();
    assert_eq!(present, [false, true, false, true]);
    assert!(entries.iter().all(|page| !page.swapped() && !page.file() && !page.protected()));
    assert!(entries[1].exclusive());
}

#[test]
fn what_was_written_since_the_last_scan_is_told_once() {
    // SAFETY: what is registered are `Pages`.
    let opened = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC | Flags::NONBLOCK) };
    let Some(server) = offered("userfaultfd", opened) else { return };
    let need = Features::WP_ASYNC | Features::WP_UNPOPULATED;
    if server.agree(need).is_err() {
        println!("skipped: this kernel lacks {need:?}");
        return;
    }
    let pages = Pages::anonymous(8);
    server.register(pages.all(), Modes::WRITE_PROTECT).expect("anonymous memory");
    let pagemap = Pagemap::of(own()).expect("our own");
    let written = Categories::WRITTEN;
    let scan =
        Scan { all: written, tell: written, protect: true, must_follow: true, ..Scan::default() };
    let mut found = Vec::new();
    let mut written_now = || {
        found.clear();
        let end = pagemap.scan(pages.all(), &scan, &mut found);
        Some((offered("PAGEMAP_SCAN", end)?, found.clone()))
    };
    // All count as written until they are protected for the first time.
    if written_now().is_none() {
        return;
    }
    for page in [1, 2, 5] {
        pages.set(page, 1);
    }
    let one = |pages: std::ops::Range<u64>| Region { range: pages, categories: written };
    let expected = vec![one(pages.range(1..3)), one(pages.range(5..6))];
    assert_eq!(written_now(), Some((pages.all().end, expected)));
    assert_eq!(written_now(), Some((pages.all().end, vec![])));
    let (present, tell) = (Categories::PRESENT, Categories::PRESENT);
    let first = Scan { all: present, tell, most: 1, ..Scan::default() };
    let end = pagemap.scan(pages.all(), &first, &mut found).expect("as above");
    assert_eq!(end, pages.range(1..2).end);
    let one = Region { range: pages.range(1..2), categories: present };
    assert_eq!(found.last(), Some(&one));
    let elsewhere = Pages::anonymous(1);
    let refused = pagemap.scan(elsewhere.all(), &scan, &mut found).expect_err("not followed");
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
}

/// The child reports to the kernel that its arguments are elsewhere, and others see those.
#[test]
fn a_layout_is_set_by_calls_that_the_process_makes() {
    let text = Pages::anonymous(1);
    let memory = Memory::of(own()).expect("our own");
    memory.write(text.all().start, b"another name\0").expect("it is mapped");
    let make = |(number, arguments): (i64, [u64; 6])| -> io::Result<()> {
        let [a, b, c, d, e, _] = arguments;
        // SAFETY: of a child of this test, which keeps its code, heap and stack where they are.
        match unsafe { libc::syscall(number, a, b, c, d, e) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let mut size = 0_u32;
    // SAFETY: a place for the size of the structure.
    let refused =
        unsafe { libc::prctl(libc::PR_SET_MM, libc::PR_SET_MM_MAP_SIZE, &raw mut size, 0, 0) };
    if refused != 0 {
        println!("skipped: this kernel has no PR_SET_MM_MAP (CONFIG_CHECKPOINT_RESTORE)");
        return;
    }
    assert_eq!(size as usize, layout::IMAGE);
    let child = Child::of(|| {
        let Ok(mut layout) = Layout::of(own()) else { return 2 };
        // The memory of `brk` need not end with a page. SAFETY: asks where it ends.
        layout.heap.end = unsafe { libc::sbrk(0) } as u64;
        layout.arguments = text.all().start..text.all().start + 13;
        layout.environment = text.all().start..text.all().start;
        let image = layout.image();
        let set = make(Layout::call(image.as_ptr() as u64));
        if let Err(error) = set {
            return error.raw_os_error().unwrap_or(99);
        }
        let read = |what: &str| std::fs::read(format!("/proc/self/{what}")).unwrap_or_default();
        i32::from(read("cmdline") != b"another name\0" || !read("environ").is_empty())
    });
    assert_eq!(child.wait(), 0);
}

#[test]
fn a_memfd_is_sealed_and_given_back_in_part() {
    let length = 4 * PAGE_SIZE as u64;
    let fd = memfd::create(c"refit-test", length, memfd::Pages::Base).expect("a memfd");
    let pages = Pages::shared(fd.as_fd(), 4);
    (0..4).for_each(|page| pages.set(page, 1));
    memfd::punch(&fd, pages_of(1..3)).expect("a memfd");
    assert_eq!([0, 1, 2, 3].map(|page| pages.get(page)), [1, 0, 0, 1]);
    memfd::seal(&fd, Seals::GROW | Seals::SHRINK).expect("it can be sealed");
    let file = File::from(fd.try_clone().expect("a descriptor"));
    for other in [length - 1, length + 1] {
        let refused = file.set_len(other).expect_err("sealed").raw_os_error();
        assert_eq!(refused, Some(libc::EPERM));
    }
    let mapped = memfd::seal(&fd, Seals::WRITE).expect_err("it is mapped to be written");
    assert_eq!(mapped.raw_os_error(), Some(libc::EBUSY));
    memfd::seal(&fd, Seals::SEAL).expect("it can be sealed");
    let last = memfd::seal(&fd, Seals::GROW).expect_err("no more seals");
    assert_eq!(last.raw_os_error(), Some(libc::EPERM));
    let long = std::ffi::CString::new(vec![b'x'; 250]).expect("no zero");
    assert!(memfd::create(&long, 0, memfd::Pages::Base).is_err());
}

#[test]
fn huge_pages_come_from_the_pool_if_there_is_one() {
    let fd = match memfd::create(c"refit-test", 2 << 20, memfd::Pages::Huge2M) {
        Ok(fd) => fd,
        // The kernel has none at all.
        Err(error) => {
            assert!(
                matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT | libc::EINVAL)),
                "{error}"
            );
            return;
        }
    };
    // The pool may be empty, which shows when a page is touched, not before.
    assert_eq!(File::from(fd).metadata().expect("a file").len(), 2 << 20);
}

#[test]
fn memory_of_another_process_is_copied_as_far_as_it_may_be_used() {
    let fd =
        memfd::create(c"refit-test", 3 * PAGE_SIZE as u64, memfd::Pages::Base).expect("a memfd");
    let pages = Pages::shared(fd.as_fd(), 3);
    let only_read = pages.range(2..3);
    let length = (only_read.end - only_read.start) as usize;
    let address = only_read.start as *mut libc::c_void;
    // SAFETY: nobody writes to it from here on.
    assert_eq!(unsafe { libc::mprotect(address, length, libc::PROT_READ) }, 0);
    let child = idle();
    let (first, end) = (pages.all().start, pages.all().end);
    // Over a border of pages, and in two places.
    let places = [first + 10..first + 13, first + 4094..first + 4099];
    let written = foreign::scatter(child.id(), b"abcdefgh", &places).expect("it is there");
    assert_eq!((written, pages.get(1)), (8, b'f'));
    let mut found = [0; 8];
    let read = foreign::gather(child.id(), &places, &mut found).expect("it is there");
    assert_eq!((read, &found), (8, b"abcdefgh"));
    // As far as it may be written to, and is there.
    let scatter = |bytes: &[u8], place: std::ops::Range<u64>| {
        foreign::scatter(child.id(), bytes, std::slice::from_ref(&place))
    };
    let half = scatter(b"wxyz", only_read.start - 2..only_read.start + 2);
    assert_eq!(half.expect("half of it"), 2);
    let refused = scatter(b"x", only_read.start..only_read.start + 1);
    assert_eq!(refused.expect_err("only to be read").raw_os_error(), Some(libc::EFAULT));
    let mut gather = |place: std::ops::Range<u64>| {
        foreign::gather(child.id(), std::slice::from_ref(&place), &mut found)
    };
    assert_eq!(gather(end - 4..end).expect("it is there"), 4);
    assert_eq!(gather(8..9).expect_err("not there").raw_os_error(), Some(libc::EFAULT));
}

#[test]
fn whether_files_have_a_limit_is_told() {
    let child = idle();
    assert!(process::writes_without_limit(child.id()).expect("a child"));
    let limit = libc::rlimit64 { rlim_cur: 4096, rlim_max: libc::RLIM64_INFINITY };
    // SAFETY: a limit of a child of this test.
    let set = unsafe {
        let none = std::ptr::null_mut();
        libc::prlimit64(child.id().cast_signed(), libc::RLIMIT_FSIZE, &raw const limit, none)
    };
    assert_eq!(set, 0);
    assert!(!process::writes_without_limit(child.id()).expect("a child"));
}

fn pages_of(pages: std::ops::Range<usize>) -> std::ops::Range<u64> {
    (pages.start * PAGE_SIZE) as u64..(pages.end * PAGE_SIZE) as u64
}
