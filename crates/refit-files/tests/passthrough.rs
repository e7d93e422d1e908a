//! Files that are passed through to the host, and files that change between that and being served.

mod common;

use common::{Served, clock_goes_on, directories, options, pattern};
use refit_files::{CacheMode, mount};
use rustix::fs::{Advice, FallocateFlags, SeekFrom, copy_file_range, fadvise, fallocate, seek};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn set_mode(served: &Served, glob: &str, mode: CacheMode) {
    served.mount().set_cache_mode(glob, mode).expect("the mount has every mode");
}

/// Waits until the server knows that no file is open: the kernel sends closes after the programs
/// have gone on, and until then the next open gets the mode of the last one.
fn all_closed(served: &Served) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while served.mount().stats().opens > 0 {
        assert!(Instant::now() < deadline, "a file stays open");
        thread::yield_now();
    }
}

#[test]
fn the_server_sees_no_read_and_no_write() {
    let Some(served) = Served::new(CacheMode::Passthrough) else { return };
    let data = pattern(300_000, 1);
    fs::write(served.path("f"), &data).unwrap();
    assert!(fs::read(served.path("f")).unwrap() == data);
    assert!(fs::read(served.host("f")).unwrap() == data, "nothing waits to be stored");
    assert_eq!(fs::metadata(served.path("f")).unwrap().len(), 300_000);
    let stats = served.mount().stats();
    assert_eq!((stats.reads, stats.writes, stats.changed_beside), (0, 0, 0));
    served.unmount();
}

#[test]
fn an_open_file_stays_as_it_is_and_the_next_open_obeys() {
    let Some(served) = Served::new(CacheMode::Passthrough) else { return };
    let path = served.path("f");
    let data = pattern(100_000, 2);
    let passed = open(&path);
    passed.write_all_at(&data, 0).unwrap();
    set_mode(&served, "/f", CacheMode::Kernel);
    let also_passed = open(&path);
    also_passed.write_all_at(b"one", 5000).unwrap();
    assert_eq!(served.mount().stats().writes, 0);
    drop((passed, also_passed));
    all_closed(&served);

    let mut buffer = vec![0; 100_000];
    let cached = open(&path);
    cached.read_exact_at(&mut buffer, 0).unwrap();
    assert!(buffer[..5000] == data[..5000] && &buffer[5000..5003] == b"one");
    cached.write_all_at(b"two", 6000).unwrap();
    set_mode(&served, "/f", CacheMode::Passthrough);
    let also_cached = open(&path);
    also_cached.read_exact_at(&mut buffer[..3], 6000).unwrap();
    assert_eq!(&buffer[..3], b"two");
    assert!(served.mount().stats().writes > 0 && served.mount().stats().reads > 0);
    drop((cached, also_cached));
    all_closed(&served);

    let writes = served.mount().stats().writes;
    let passed = open(&path);
    passed.write_all_at(b"three", 7000).unwrap();
    passed.read_exact_at(&mut buffer[..3], 6000).unwrap();
    assert_eq!(&buffer[..3], b"two", "what was waiting is stored before");
    assert_eq!(served.mount().stats().writes, writes);
    drop(passed);
    all_closed(&served);

    set_mode(&served, "/f", CacheMode::Direct);
    let direct = open(&path);
    direct.read_exact_at(&mut buffer[..5], 7000).unwrap();
    assert_eq!(&buffer[..5], b"three", "no cache has older data");
    direct.write_all_at(b"four", 8000).unwrap();
    drop(direct);
    all_closed(&served);
    set_mode(&served, "/f", CacheMode::Kernel);
    open(&path).read_exact_at(&mut buffer[..4], 8000).unwrap();
    assert_eq!(&buffer[..4], b"four");
    assert_eq!(served.mount().stats().changed_beside, 0);
    served.unmount();
}

#[test]
fn what_the_kernel_still_asks_for_is_done_on_the_host() {
    let Some(served) = Served::new(CacheMode::Passthrough) else { return };
    let data = pattern(100_000, 3);
    let files = ["from", "to"].map(|name| open(&served.path(name)));
    let [from, to] = &files;
    from.write_all_at(&data, 0).unwrap();
    to.write_all_at(b"old", 0).unwrap();
    let (mut at, mut into) = (1000, 3);
    let copied = copy_file_range(from, Some(&mut at), to, Some(&mut into), 50_000).unwrap();
    assert_eq!(copied, 50_000);
    from.write_all_at(b"end", 120_000).unwrap();
    fs::OpenOptions::new().write(true).open(served.path("to")).unwrap().set_len(40_000).unwrap();
    fallocate(from, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 65_536).unwrap();
    assert_eq!(seek(from, SeekFrom::Data(0)), Ok(65_536));
    from.sync_all().unwrap();
    assert_eq!(fs::metadata(served.path("from")).unwrap().len(), 120_003);
    let [from, to] = ["from", "to"].map(|name| fs::read(served.path(name)).unwrap());
    assert!(
        from[..65_536].iter().all(|byte| *byte == 0) && from[65_536..100_000] == data[65_536..]
    );
    assert!(&to[..3] == b"old" && to[3..] == data[1000..40_997]);
    fs::write(served.path("to"), "short").unwrap();
    assert_eq!(fs::read(served.host("to")).unwrap(), b"short");
    assert_eq!(served.mount().stats().writes, 0);
    drop(files);
    served.unmount();
}

#[test]
fn a_store_through_a_mapping_changes_the_time() {
    let Some(served) = Served::new(CacheMode::Passthrough) else { return };
    fs::write(served.path("f"), [0; 4096]).unwrap();
    let before = fs::metadata(served.path("f")).unwrap().modified().unwrap();
    clock_goes_on();
    let script = "import mmap, os; mmap.mmap(os.open('f', os.O_RDWR), 4096)[0] = 7";
    let mut python = Command::new("python3");
    let stored = python.args(["-c", script]).current_dir(&served.mountpoint).status();
    match stored {
        Ok(status) => assert!(status.success()),
        Err(error) => return eprintln!("skipped: python3: {error}"),
    }
    // The kernel reports the close after the process has ended.
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::metadata(served.path("f")).unwrap().modified().unwrap() == before {
        assert!(Instant::now() < deadline, "the time stays");
        thread::yield_now();
    }
    let [seen, host] = [served.path("f"), served.host("f")].map(|path| fs::metadata(path).unwrap());
    assert_eq!(seen.modified().unwrap(), host.modified().unwrap());
    assert_eq!(fs::read(served.path("f")).unwrap()[0], 7);
    served.unmount();
}

#[test]
fn what_the_kernel_has_read_ahead_is_not_used_later() {
    let Some(served) = Served::new(CacheMode::Passthrough) else { return };
    let file = open(&served.path("f"));
    file.write_all_at(&[1; 65_536], 0).unwrap();
    fadvise(&file, 0, None, Advice::WillNeed).unwrap();
    file.write_all_at(&[2; 65_536], 0).unwrap();
    drop(file);
    set_mode(&served, "/f", CacheMode::Kernel);
    assert!(fs::read(served.path("f")).unwrap() == [2; 65_536]);
    let stats = served.mount().stats();
    assert_eq!((stats.panics, stats.writes), (0, 0));
    served.unmount();
}

/// A file with such a bit is not passed through; one that gets it while it is open loses it at the
/// next write.
#[test]
fn a_write_clears_the_set_user_id_bit() {
    let Some(served) = Served::new(CacheMode::Passthrough) else { return };
    let path = served.path("program");
    for mode in [0o777, 0o4777] {
        fs::write(&path, "#!").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let file = open(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4777)).unwrap();
        let mut other = Command::new("sh");
        other.arg("-c").arg("echo changed >&0").stdin(Stdio::from(file)).uid(65_534);
        assert!(other.status().unwrap().success());
        for path in [&path, &served.host("program")] {
            assert_eq!(
                fs::metadata(path).unwrap().permissions().mode() & 0o7777,
                0o777,
                "{mode:o}"
            );
        }
    }
    served.unmount();
}

/// The kernel passes no file through to a file system that does so itself.
#[test]
fn a_file_that_cannot_be_passed_through_is_served() {
    let Some(lower) = Served::new(CacheMode::Passthrough) else { return };
    let (_directory, _, mountpoint) = directories();
    let upper = mount(options(&lower.mountpoint, &mountpoint, CacheMode::Passthrough)).unwrap();
    fs::write(mountpoint.join("f"), "contents").unwrap();
    assert_eq!(fs::read(mountpoint.join("f")).unwrap(), b"contents");
    assert!(upper.stats().writes > 0);
    upper.unmount().unwrap();
    lower.unmount();
}

#[test]
fn a_mount_in_another_mode_passes_nothing_through() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    assert_eq!(served.mount().set_cache_mode("*", CacheMode::Passthrough), None);
    served.unmount();
}

/// Each thread has a part of the file, which it finds as it left it. A process changes the size of
/// the file after these parts, without having it open.
#[test]
fn no_byte_is_lost_while_a_file_changes_between_modes() {
    const THREADS: u64 = 2;
    const PART: u64 = 8192;
    const ROUNDS: u64 = 500;
    let Some(served) = Served::new(CacheMode::Passthrough) else { return };
    let path = served.path("f");
    open(&path).set_len(THREADS * PART).unwrap();
    let (done, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let script = "import itertools, os, sys
for more in itertools.count(): os.truncate(sys.argv[1], int(sys.argv[2]) + more % 9999)";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(&path).arg((THREADS * PART).to_string());
    let mut truncating = match python.spawn() {
        Ok(child) => Ended(child),
        Err(error) => return eprintln!("skipped: python3: {error}"),
    };
    // Whether some writes came here and some did not. Each thread may be about to count one.
    let both = || {
        let came = served.mount().stats().writes;
        came > 0 && came + THREADS < written.load(Relaxed)
    };
    let work = |part: u64| {
        let mut last = vec![0; PART as usize];
        for round in (0..).take_while(|round| *round < ROUNDS || !both()) {
            let mut found = vec![0; PART as usize];
            let file = open(&path);
            file.read_exact_at(&mut found, part * PART).unwrap();
            assert!(found == last, "part {part}, round {round}");
            last = pattern(PART as usize, round << 8 | part);
            file.write_all_at(&last, part * PART).unwrap();
            written.fetch_add(1, Relaxed);
            drop(file);
        }
    };
    let modes = [CacheMode::Kernel, CacheMode::Passthrough, CacheMode::Direct];
    thread::scope(|scope| {
        scope.spawn(|| {
            for mode in modes.into_iter().cycle().take_while(|_| !done.load(Relaxed)) {
                set_mode(&served, "/f", mode);
                thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|part| {
                scope.spawn({
                    let work = &work;
                    move || work(part)
                })
            })
            .collect();
        let ends: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Relaxed);
        ends.into_iter().for_each(|end| end.expect("the thread has found its part"));
    });
    assert!(truncating.0.try_wait().unwrap().is_none(), "it has changed the size all the time");
    drop(truncating);
    assert_eq!(served.mount().stats().panics, 0);
    served.unmount();
}
