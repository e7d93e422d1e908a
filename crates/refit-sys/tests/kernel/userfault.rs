//! Page faults are served as the kernel says they are, each kind of them, also those of another
//! process.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;

use refit_sys::memory::SharedMapping;
use refit_sys::pidfd::Pidfd;
use refit_sys::userfault::{
    Access, Cause, CopyModes, Door, Features, Flags, Message, Modes, MoveModes, Requests,
    USER_MODE_ONLY, Userfault, Wake,
};

use crate::common::{Child, PAGE_SIZE, Pages, offered, until};

/// One for this process, or `None` where this user may have none, or the kernel lacks features.
fn userfault(features: Features) -> Option<Userfault> {
    // SAFETY: what is registered are `Pages`, which nobody holds a reference to.
    let opened = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC | Flags::NONBLOCK) };
    let opened = offered("userfaultfd", opened)?;
    let there = refit_sys::userfault::offered().expect("as just before");
    if !there.contains(features) {
        println!("skipped: this kernel lacks {:?}", features - there);
        return None;
    }
    assert!(opened.agree(features).expect("it has them").contains(features));
    Some(opened)
}

/// The next message, whenever it comes.
fn next(from: &Userfault) -> Message {
    let mut messages = Vec::new();
    until("a message", || from.read(&mut messages).expect("agreed") > 0);
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

/// The next message, which is a fault: its address and what was wanted.
fn fault(from: &Userfault) -> (u64, Access, Option<u32>) {
    match next(from) {
        Message::Pagefault { address, access, thread } => (address, access, thread),
        other => panic!("{other:?}"),
    }
}

const READ: Access = Access { write: false, protected: false, minor: false };
const WRITE: Access = Access { write: true, ..READ };

#[test]
fn a_missing_page_is_copied_in_and_the_thread_that_waits_for_it_goes_on() {
    let Some(server) = userfault(Features::THREAD_ID | Features::EXACT_ADDRESS) else { return };
    let pages = Pages::anonymous(4);
    let can = server.register(pages.all(), Modes::MISSING).expect("anonymous memory");
    assert!(can.contains(Requests::COPY | Requests::ZERO | Requests::WAKE), "{can:?}");
    let reader = thread::spawn(move || (refit_sys::thread::id(), pages.get(1), pages.get(2)));
    let (address, access, first) = fault(&server);
    assert_eq!((address, access), (pages.range(1..2).start, READ));
    server.copy(address, &[7; PAGE_SIZE], CopyModes::empty()).expect("none is there");
    let (address, _, second) = fault(&server);
    assert_eq!(address, pages.range(2..3).start);
    server.zero(pages.range(2..3), Wake::Later).expect("none is there");
    server.wake(pages.range(2..3)).expect("whole pages");
    let (id, one, two) = reader.join().expect("it reads");
    assert_eq!((one, two), (7, 0));
    assert_eq!((first, second), (Some(id), Some(id)));
    server.unregister(pages.all()).expect("it is registered");
    assert_eq!(pages.get(3), 0);
}

#[test]
fn what_is_there_already_stops_a_request_which_says_how_far_it_came() {
    let Some(server) = userfault(Features::empty()) else { return };
    let pages = Pages::anonymous(4);
    server.register(pages.all(), Modes::MISSING).expect("anonymous memory");
    let third = pages.range(2..3).start;
    server.copy(third, &[3; PAGE_SIZE], CopyModes::empty()).expect("none is there");
    let short = server.zero(pages.all(), Wake::Now).expect_err("the third is there");
    assert_eq!((short.cause(), short.done), (Cause::Again, 2 * PAGE_SIZE as u64));
    let short = server.zero(pages.range(2..4), Wake::Now).expect_err("the third is there");
    assert_eq!((short.cause(), short.done), (Cause::Present, 0));
    server.unregister(pages.all()).expect("it is registered");
    let short = server.zero(pages.range(3..4), Wake::Now).expect_err("not registered");
    assert_eq!(short.cause(), Cause::Unregistered, "{short}");
}

#[test]
fn a_minor_fault_is_resolved_with_what_the_file_holds() {
    let Some(server) = userfault(Features::MINOR_SHMEM) else { return };
    let file = SharedMapping::new(c"refit-test", 3 * PAGE_SIZE).expect("a memfd");
    let pages = Pages::shared(file.as_fd(), 3);
    server.register(pages.all(), Modes::MINOR | Modes::MISSING).expect("a memfd");
    file.write_at(PAGE_SIZE, &[9; PAGE_SIZE]);
    let reader = thread::spawn(move || (pages.get(1), pages.get(0)));
    let (address, access, _) = fault(&server);
    assert_eq!((address, access), (pages.range(1..2).start, Access { minor: true, ..READ }));
    server.continue_minor(pages.range(1..2), false, Wake::Now).expect("the file holds it");
    // The file holds nothing there: the page is missing.
    let (address, access, _) = fault(&server);
    assert_eq!((address, access), (pages.range(0..1).start, READ));
    let short = server.continue_minor(pages.range(0..1), false, Wake::Now).expect_err("a hole");
    assert_eq!((short.cause(), short.error.raw_os_error()), (Cause::Other, Some(libc::EFAULT)));
    server
        .copy_from(address, &file, PAGE_SIZE..2 * PAGE_SIZE, CopyModes::empty())
        .expect("none is there");
    assert_eq!(reader.join().expect("it reads"), (9, 9));
}

#[test]
fn a_write_to_a_protected_page_waits_until_it_is_not_protected() {
    let Some(server) = userfault(Features::PAGEFAULT_FLAG_WP) else { return };
    let pages = Pages::anonymous(2);
    pages.set(0, 1);
    pages.set(1, 1);
    server.register(pages.all(), Modes::WRITE_PROTECT).expect("anonymous memory");
    server.protect(pages.all()).expect("it is registered");
    let writer = thread::spawn(move || pages.set(1, pages.get(1) + 1));
    let (address, access, _) = fault(&server);
    assert_eq!(address, pages.range(1..2).start);
    assert_eq!(access, Access { protected: true, ..WRITE });
    assert_eq!(pages.get(1), 1);
    server.unprotect(pages.range(1..2), Wake::Later).expect("it is registered");
    server.wake(pages.range(1..2)).expect("whole pages");
    writer.join().expect("it writes");
    assert_eq!((pages.get(0), pages.get(1)), (1, 2));
}

#[test]
fn a_page_can_be_copied_in_protected() {
    let Some(server) = userfault(Features::PAGEFAULT_FLAG_WP) else { return };
    let pages = Pages::anonymous(1);
    server.register(pages.all(), Modes::MISSING | Modes::WRITE_PROTECT).expect("anonymous");
    let writer = thread::spawn(move || pages.set(0, 2));
    let (address, access, _) = fault(&server);
    assert_eq!(access, WRITE);
    server.copy(address, &[1; PAGE_SIZE], CopyModes::WRITE_PROTECT).expect("none is there");
    assert!(fault(&server).1.protected);
    server.unprotect(pages.all(), Wake::Now).expect("it is registered");
    writer.join().expect("it writes");
    assert_eq!(pages.get(0), 2);
}

#[test]
fn who_touches_poison_is_killed_by_it() {
    let Some(server) = userfault(Features::POISON) else { return };
    let pages = Pages::anonymous(1);
    server.register(pages.all(), Modes::MISSING).expect("anonymous memory");
    server.poison(pages.all(), Wake::Now).expect("none is there");
    let short = server.zero(pages.all(), Wake::Now).expect_err("poison is there");
    assert_eq!(short.cause(), Cause::Present);
    let (_reader, writer) = io::pipe().expect("a pipe");
    let page = pages.all().start as *const libc::c_void;
    // SAFETY: the kernel reads the page, and refuses to.
    let written = unsafe { libc::write(writer.as_raw_fd(), page, 1) };
    assert_eq!((written, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
    let child = Child::of(|| {
        // SAFETY: the signal kills, as it would without a run time.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        i32::from(pages.get(0))
    });
    assert_eq!(child.wait(), -libc::SIGBUS);
}

#[test]
fn pages_are_moved_without_a_copy() {
    let Some(server) = userfault(Features::MOVE) else { return };
    let (from, to) = (Pages::anonymous(3), Pages::anonymous(3));
    from.set(0, 5);
    from.set(2, 6);
    server.register(to.all(), Modes::MISSING).expect("anonymous memory");
    let (there, here, length) = (to.all().start, from.all().start, 3 * PAGE_SIZE as u64);
    // SAFETY: nobody holds a reference to `Pages`.
    let moved = unsafe { server.move_pages(there, here, length, MoveModes::empty()) };
    let short = moved.expect_err("the second is not there");
    assert_eq!((short.cause(), short.done), (Cause::Again, PAGE_SIZE as u64));
    let (there, here, length) =
        (there + PAGE_SIZE as u64, here + PAGE_SIZE as u64, 2 * PAGE_SIZE as u64);
    // SAFETY: as above.
    unsafe { server.move_pages(there, here, length, MoveModes::ALLOW_HOLES) }.expect("the rest");
    assert_eq!((to.get(0), to.get(2), from.get(0)), (5, 6, 0));
}

#[test]
fn changes_of_the_memory_are_told() {
    let events = Features::EVENT_REMAP | Features::EVENT_REMOVE | Features::EVENT_UNMAP;
    let Some(server) = userfault(events) else { return };
    let pages = Pages::anonymous(4);
    server.register(pages.all(), Modes::MISSING).expect("anonymous memory");
    let changer = thread::spawn(move || {
        let at = |page: usize| pages.range(page..4).start as *mut libc::c_void;
        // SAFETY: nobody holds a reference to `Pages`, and nothing of them is touched afterwards.
        unsafe {
            assert_eq!(libc::madvise(at(0), PAGE_SIZE, libc::MADV_DONTNEED), 0);
            assert_eq!(libc::munmap(at(1), PAGE_SIZE), 0);
            let may_move = libc::MREMAP_MAYMOVE;
            libc::mremap(at(2), 2 * PAGE_SIZE, 8 * PAGE_SIZE, may_move) as u64
        }
    });
    let removed = next(&server);
    assert!(matches!(&removed, Message::Remove(r) if *r == pages.range(0..1)), "{removed:?}");
    let unmapped = next(&server);
    assert!(matches!(&unmapped, Message::Unmap(r) if *r == pages.range(1..2)), "{unmapped:?}");
    let moved = next(&server);
    let Message::Remap { from, to, length } = moved else { panic!("{moved:?}") };
    assert_eq!((from, length), (pages.range(2..3).start, 2 * PAGE_SIZE as u64));
    // Moved pages are also reported as unmapped at their old place.
    let mut rest = Vec::new();
    until("the end of the changes", || {
        server.read(&mut rest).expect("agreed");
        changer.is_finished()
    });
    assert_eq!(changer.join().expect("it changes"), to);
}

/// The child maps, opens and registers; this process gets its descriptor, agrees, and serves the
/// child and the child's child.
#[test]
fn another_process_is_served_and_so_is_its_child() {
    if userfault(Features::EVENT_FORK).is_none() {
        return;
    }
    let shared = SharedMapping::new(c"refit-test", PAGE_SIZE).expect("a memfd");
    let pages = Pages::anonymous(2);
    let child = Child::of(|| {
        // SAFETY: `Pages`, as above.
        let opened = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC | Flags::NONBLOCK) };
        let Ok(opened) = opened else { return 2 };
        shared.write_at(0, &(fd_of(&opened) + 1).to_ne_bytes());
        let word = |at: usize| {
            let mut word = [0; 4];
            shared.read_at(at, &mut word);
            i32::from_ne_bytes(word)
        };
        while word(4) == 0 {
            thread::yield_now();
        }
        let first = pages.get(0);
        // SAFETY: the child's child does nothing but read its memory.
        match unsafe { libc::fork() } {
            // SAFETY: ends the process at once.
            0 => unsafe { libc::_exit(i32::from(pages.get(1))) },
            id => {
                let mut status = 0;
                // SAFETY: `status` is a valid place.
                unsafe { libc::waitpid(id, &raw mut status, 0) };
                i32::from(first) * 10 + libc::WEXITSTATUS(status)
            }
        }
    });
    let mut word = [0; 4];
    until("the child's descriptor", || {
        shared.read_at(0, &mut word);
        word != [0; 4]
    });
    let other = Pidfd::open(child.id()).expect("a child");
    let theirs = (i32::from_ne_bytes(word) - 1).cast_unsigned();
    let Some(fd) = offered("pidfd_getfd", other.get_fd(theirs)) else { return };
    let server = Userfault::from(fd);
    server.agree(Features::EVENT_FORK).expect("offered");
    server.register(pages.all(), Modes::MISSING).expect("memory of the child");
    shared.write_at(4, &1_i32.to_ne_bytes());
    let (address, ..) = fault(&server);
    server.copy(address, &[4; PAGE_SIZE], CopyModes::empty()).expect("none is there");
    let forked = next(&server);
    let Message::Fork(heir) = forked else { panic!("{forked:?}") };
    let (address, ..) = fault(&heir);
    assert_eq!(address, pages.range(1..2).start);
    heir.copy(address, &[2; PAGE_SIZE], CopyModes::empty()).expect("none is there");
    assert_eq!(child.wait(), 42);
    let short = server.zero(pages.range(1..2), Wake::Now).expect_err("it has ended");
    assert_eq!(short.cause(), Cause::Gone, "{short}");
}

#[test]
fn several_messages_are_read_at_once() {
    let Some(server) = userfault(Features::empty()) else { return };
    let pages = Pages::anonymous(8);
    server.register(pages.all(), Modes::MISSING).expect("anonymous memory");
    let readers: Vec<_> = (0..8).map(|page| thread::spawn(move || pages.get(page))).collect();
    let path = format!("/proc/self/fdinfo/{}", fd_of(&server));
    until("eight that wait", || {
        std::fs::read_to_string(&path).is_ok_and(|text| text.contains("pending:\t8\n"))
    });
    let mut messages = Vec::new();
    assert_eq!(server.read(&mut messages).expect("agreed"), 8);
    server.zero(pages.all(), Wake::Now).expect("none is there");
    assert!(readers.into_iter().all(|reader| reader.join().is_ok_and(|byte| byte == 0)));
    assert_eq!(server.read(&mut messages).expect("agreed"), 0);
}

#[test]
fn the_other_ways_to_open_one_lead_to_the_same() {
    // SAFETY: nothing is registered.
    let device = unsafe { Userfault::open(Door::Device, Flags::CLOEXEC) };
    let Some(device) = offered("/dev/userfaultfd", device) else { return };
    let there = refit_sys::userfault::offered().expect("as just now");
    assert_eq!(device.agree(Features::empty()).expect("the first time"), there);
    assert!(device.agree(Features::empty()).is_err(), "it is agreed once");
    // SAFETY: nothing is registered.
    let limited = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC | USER_MODE_ONLY) };
    let limited = limited.expect("anybody may");
    limited.agree(Features::empty()).expect("the first time");
    let unknown = Features::from_bits_retain(1 << 63);
    // SAFETY: nothing is registered.
    let fresh = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC | USER_MODE_ONLY) };
    let refused = fresh.expect("anybody may").agree(unknown).expect_err("no such feature");
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
}

fn fd_of(of: &Userfault) -> i32 {
    of.as_fd().as_raw_fd()
}
