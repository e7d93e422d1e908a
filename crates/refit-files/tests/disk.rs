//! A disk that does not respond delays the calls that need it, but no swap.

mod common;

use common::{Served, in_opening_modes};
use refit_memory::{DiskWork, FileRepresentative, FileRepresentativeInterface, may_wait};
use refit_objects::change::End;
use refit_objects::{
    ObjectId, ObjectInfo, OwnedRep, Root, SwapOptions, TransferError, objects, reference, swap,
    swap_named,
};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The kind of operation that waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Sync,
    Read,
    Truncate,
}

/// The host's file on a disk that responds when the test says so.
struct SlowDisk {
    file: File,
    /// Whether the host has the data in its page cache already.
    in_memory: AtomicBool,
    waits: Sender<Wait>,
    answers: Mutex<Receiver<Result<(), i32>>>,
}

impl SlowDisk {
    /// Waits, and returns the response of the disk; an error once the test is over.
    fn wait(&self, wait: Wait) -> Result<(), i32> {
        self.waits.send(wait).map_err(|_| libc::EIO)?;
        self.answers.lock().unwrap().recv().unwrap_or(Err(libc::EIO))
    }

    fn bring_in(&self) -> Result<(), i32> {
        if self.in_memory.load(SeqCst) {
            return Ok(());
        }
        self.wait(Wait::Read)?;
        self.in_memory.store(true, SeqCst);
        Ok(())
    }
}

#[derive(Clone)]
struct SlowHost(Arc<SlowDisk>);

impl FileRepresentative for SlowHost {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32> {
        if !self.0.in_memory.load(SeqCst) {
            if !may_wait() {
                return Err(libc::EAGAIN);
            }
            self.0.bring_in()?;
        }
        self.0.file.read_at(buf, offset).map_err(errno)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32> {
        self.0.file.write_all_at(data, offset).map_err(errno)
    }

    fn truncate(&self, size: u64) -> Result<(), i32> {
        self.0.wait(Wait::Truncate)?;
        self.0.file.set_len(size).map_err(errno)
    }

    fn size(&self) -> Result<u64, i32> {
        self.0.file.metadata().map(|data| data.len()).map_err(errno)
    }

    fn sync(&self, data_only: bool) -> Result<(), i32> {
        self.sync_work(data_only)?.run()
    }

    fn punch(&self, _start: u64, _end: u64) -> Result<(), i32> {
        Err(libc::EOPNOTSUPP)
    }

    fn sync_work(&self, _data_only: bool) -> Result<DiskWork, i32> {
        let disk = Arc::clone(&self.0);
        Ok(DiskWork::new(move || disk.wait(Wait::Sync)))
    }

    fn fetch_work(&self, _offset: u64, _len: u64) -> Result<DiskWork, i32> {
        let disk = Arc::clone(&self.0);
        Ok(DiskWork::new(move || disk.bring_in()))
    }
}

fn errno(error: std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Root<FileRepresentativeInterface> for SlowHost {
    fn implementation(&self) -> &str {
        "slow"
    }

    fn make_rep(&self, _processor: usize) -> OwnedRep<FileRepresentativeInterface> {
        FileRepresentativeInterface::rep(self.clone())
    }

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}

/// The test's side of a slow disk.
struct Disk {
    waits: Receiver<Wait>,
    answers: Sender<Result<(), i32>>,
}

/// Returns the object of the file `name`; no other test uses that name.
fn object(interface: &str, name: &str) -> ObjectId {
    let path = format!("/{name}");
    let all = objects();
    let of_file = |o: &&ObjectInfo| o.interface == interface && o.name.ends_with(&path);
    let found: Vec<_> = all.iter().filter(of_file).collect();
    let [object] = found[..] else { panic!("not one {interface} of {name}: {found:?}") };
    object.id
}

/// Puts the open file `name` of a mount on a slow disk.
fn slow_down(served: &Served, name: &str, in_memory: bool) -> Disk {
    let ((waits, their_waits), (their_answers, answers)) = (channel(), channel());
    let file = File::options().read(true).write(true).open(served.host(name)).unwrap();
    let (in_memory, answers) = (AtomicBool::new(in_memory), Mutex::new(answers));
    let root = SlowHost(Arc::new(SlowDisk { file, in_memory, waits, answers }));
    let fr = reference::<FileRepresentativeInterface>(object("fr", name)).unwrap();
    let report = swap::<FileRepresentativeInterface>(fr, Box::new(root), 1, &options());
    assert!(report.committed(), "{report:?}");
    Disk { waits: their_waits, answers: their_answers }
}

/// Returns options with a timeout that only a call waiting for the disk can reach.
fn options() -> SwapOptions {
    SwapOptions { deadline: Duration::from_secs(20), ..SwapOptions::default() }
}

/// Swaps the cache of `name`, and that of another file, while `work` waits for the disk.
fn swaps_while_the_disk_works<T: Send>(
    disk: Disk,
    name: &str,
    (wait, answer): (Wait, Result<(), i32>),
    work: impl FnOnce() -> T + Send,
) -> T {
    thread::scope(|scope| {
        let worker = scope.spawn(work);
        // Dropped with the scope, so that a failing test does not wait for the disk.
        let Disk { waits, answers } = disk;
        assert_eq!(waits.recv(), Ok(wait));
        let file = object("fcm", name);
        let other = object("fcm", &bystander(name));
        for (cache, to) in [(file, "partitioned"), (other, "partitioned"), (file, "shared")] {
            let report = swap_named(cache, to, 2, &options());
            assert!(report.committed(), "{wait:?} held up a swap: {report:?}");
        }
        assert!(!worker.is_finished(), "nobody waited for the disk");
        answers.send(answer).unwrap();
        // All further waits of `work` for the disk fail.
        drop(answers);
        worker.join().unwrap()
    })
}

fn bystander(name: &str) -> String {
    format!("{name}-bystander")
}

/// Serves two files, `name` with some bytes and another one, and opens both.
fn with_file(name: &str, flags: OFlags, test: impl Fn(&Served, File)) {
    in_opening_modes(|served| {
        fs::write(served.host(name), [7; 10_000]).unwrap();
        fs::write(served.host(&bystander(name)), "").unwrap();
        let _bystander = File::open(served.path(&bystander(name))).unwrap();
        let mut open = File::options();
        open.read(true).write(true).custom_flags(flags.bits().cast_signed());
        test(served, open.open(served.path(name)).unwrap());
    });
}

#[test]
fn fsync_holds_up_no_swap_and_its_error_is_told_once() {
    with_file("synced", OFlags::empty(), |served, file| {
        for (round, answer) in [Ok(()), Err(libc::EIO), Ok(())].into_iter().enumerate() {
            let disk = slow_down(served, "synced", true);
            let bytes = format!("new bytes {round}");
            file.write_all_at(bytes.as_bytes(), 100).unwrap();
            let synced = swaps_while_the_disk_works(disk, "synced", (Wait::Sync, answer), || {
                file.sync_all().map_err(errno)
            });
            assert_eq!(synced, answer);
            // Data written before the disk was asked had reached the host's file by then.
            assert_eq!(&fs::read(served.host("synced")).unwrap()[100..111], bytes.as_bytes());
        }
    });
}

#[test]
fn a_write_to_the_disk_holds_up_no_swap() {
    with_file("dsync", OFlags::DSYNC, |served, file| {
        let disk = slow_down(served, "dsync", true);
        let written = swaps_while_the_disk_works(disk, "dsync", (Wait::Sync, Ok(())), || {
            file.write_all_at(b"new bytes", 5000).map_err(errno)
        });
        assert_eq!(written, Ok(()));
        assert_eq!(&fs::read(served.host("dsync")).unwrap()[5000..5009], b"new bytes");
    });
}

#[test]
fn a_read_from_the_disk_holds_up_no_swap() {
    with_file("read", OFlags::empty(), |served, file| {
        let disk = slow_down(served, "read", false);
        let read = swaps_while_the_disk_works(disk, "read", (Wait::Read, Ok(())), || {
            let mut read = vec![0; 10_000];
            file.read_exact_at(&mut read, 0).map(|()| read)
        });
        assert!(read.unwrap() == [7; 10_000]);
    });
}

#[test]
fn a_page_that_is_written_in_part_holds_up_no_swap() {
    with_file("part", OFlags::empty(), |served, file| {
        let disk = slow_down(served, "part", false);
        let written = swaps_while_the_disk_works(disk, "part", (Wait::Read, Ok(())), || {
            file.write_all_at(b"new", 5000)
        });
        written.unwrap();
        let mut read = [0; 5];
        file.read_exact_at(&mut read, 4999).unwrap();
        assert_eq!(&read, b"\x07new\x07");
    });
}

#[test]
fn a_call_that_waits_makes_its_swap_late_and_is_named() {
    with_file("cut", OFlags::empty(), |served, file| {
        let Disk { waits, answers } = slow_down(served, "cut", true);
        // Looked up in advance, because listing the objects waits for the cache as well.
        let cache = object("fcm", "cut");
        let cut = thread::scope(|scope| {
            let cut = scope.spawn(|| file.set_len(1000).map_err(errno));
            let answers = answers;
            assert_eq!(waits.recv(), Ok(Wait::Truncate));
            let soon = SwapOptions { deadline: Duration::from_millis(50), ..options() };
            // On a busy machine the deadline may pass before calls are waited for.
            let report = loop {
                let report = swap_named(cache, "partitioned", 2, &soon);
                let End::RolledBack(why) = &report.end else { panic!("{report:?}") };
                assert!(why.contains("deadline"), "{why}");
                if !report.blockers.is_empty() {
                    break report;
                }
            };
            assert!(report.blockers.iter().any(|b| b.thread.starts_with("fuser")), "{report:?}");
            answers.send(Ok(())).unwrap();
            cut.join().unwrap()
        });
        assert_eq!(cut, Ok(()));
        assert_eq!(fs::metadata(served.host("cut")).unwrap().len(), 1000);
        let report = swap_named(cache, "partitioned", 2, &options());
        assert!(report.committed(), "{report:?}");
    });
}
