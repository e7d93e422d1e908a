//! Written data reaches the source in time, or its writer gets an error: closing, unmounting, full
//! disks, a second server.

mod common;

use common::{Served, directories, in_every_mode, is_mounted, options, pattern, possible};
use refit_files::{CacheMode, Mount, MountError, UnmountError, mount};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MODES: [CacheMode; 2] = [CacheMode::Kernel, CacheMode::Direct];

fn unmount_behind_its_back(mountpoint: &Path) {
    // A process that another test is just starting has the files of this one open until it executes
    // its program.
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(errno) = rustix::mount::unmount(mountpoint, UnmountFlags::empty()) {
        assert!(errno == Errno::BUSY && Instant::now() < deadline, "{errno}");
        std::thread::yield_now();
    }
}

/// A small file system of its own, used as source.
struct Small {
    source: PathBuf,
    mountpoint: PathBuf,
    _directory: tempfile::TempDir,
}

impl Small {
    fn new(bytes: u64) -> Option<Self> {
        if !possible() {
            return None;
        }
        let (directory, source, mountpoint) = directories();
        let size = std::ffi::CString::new(format!("size={bytes}")).unwrap();
        rustix::mount::mount("small", &source, "tmpfs", MountFlags::empty(), size.as_c_str())
            .unwrap();
        Some(Self { source, mountpoint, _directory: directory })
    }

    fn serve(&self, cache: CacheMode) -> Mount {
        mount(options(&self.source, &self.mountpoint, cache)).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    /// Allocates all but `bytes` of the free space without the server's knowledge.
    fn fill_but(&self, bytes: u64) {
        let filler = File::create(self.source.join("filler")).unwrap();
        // Never fills the machine's own disk, in case the small file system was unmounted.
        let kind = rustix::fs::fstatfs(&filler).unwrap().f_type;
        assert_eq!(kind, libc::TMPFS_MAGIC, "the small file system is gone");
        let statistics = rustix::fs::fstatvfs(&filler).unwrap();
        let mut step = (statistics.f_bavail * statistics.f_frsize).saturating_sub(bytes);
        // The server may allocate space at the same time.
        while step >= 4096 {
            let end = filler.metadata().unwrap().len();
            let none = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&filler, none, end, step) {
                Ok(()) => return,
                Err(rustix::io::Errno::NOSPC) => step /= 2,
                Err(errno) => panic!("{errno}"),
            }
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.source.join("filler")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH);
        let _ = rustix::mount::unmount(&self.source, UnmountFlags::DETACH);
    }
}

fn errno(error: &std::io::Error) -> Option<i32> {
    error.raw_os_error()
}

#[test]
fn what_is_closed_is_in_the_source() {
    in_every_mode(|served| {
        let data = pattern(3_000_001, 7);
        fs::write(served.path("f"), &data).unwrap();
        assert!(fs::read(served.host("f")).unwrap() == data);
    });
}

#[test]
fn what_is_mapped_is_in_the_source_when_it_is_unmapped() {
    in_every_mode(|served| {
        fs::write(served.path("f"), [0; 8192]).unwrap();
        let script = "import mmap,sys; f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0); f.close(); \
                      m[5000:5003]=b'new'; m.close()";
        let python = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(served.path("f"))
            .status();
        if !python.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no python3 to map a file with");
            return;
        }
        assert_eq!(&fs::read(served.host("f")).unwrap()[5000..5003], b"new");
    });
}

#[test]
fn the_next_server_waits_for_the_one_before() {
    if !possible() {
        return;
    }
    for cache in MODES {
        let (_directory, source, mountpoint) = directories();
        let data = pattern(5_000_000, 3);
        for round in 0..5 {
            let before = mount(options(&source, &mountpoint, cache)).unwrap();
            let file = File::create(mountpoint.join("f")).unwrap();
            file.write_all_at(&data, round).unwrap();
            drop(file);
            unmount_behind_its_back(&mountpoint);
            // The previous server was not told to end, and may still be storing data.
            let next = mount(options(&source, &mountpoint, cache)).unwrap();
            let seen = fs::read(mountpoint.join("f")).unwrap();
            assert!(seen[round as usize..] == data, "{cache:?} {round}");
            before.unmount().unwrap();
            next.unmount().unwrap();
        }
    }
}

#[test]
fn a_directory_has_one_server() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    fs::create_dir(served.host("inner")).unwrap();
    let (directory, _, elsewhere) = directories();
    let refused = |source: &Path| {
        let error = mount(options(source, &elsewhere, CacheMode::Kernel)).unwrap_err();
        let MountError::Served { holder, .. } = &error else { panic!("{error}") };
        assert_eq!(holder.pid, Some(std::process::id()), "{error}");
        assert_eq!(holder.mountpoint.as_ref(), Some(&served.mountpoint), "{error}");
        assert!(!is_mounted(&elsewhere));
    };
    refused(&served.source);
    refused(&served.host("inner"));
    // Another name of the source.
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&served.source, &link).unwrap();
    refused(&link);
    let bound = directory.path().join("bound");
    fs::create_dir(&bound).unwrap();
    rustix::mount::mount_bind(&served.source, &bound).unwrap();
    refused(&bound);
    rustix::mount::unmount(&bound, UnmountFlags::empty()).unwrap();

    let mut served = served;
    served.take_mount().unmount().unwrap();
    let inner = served.host("inner");
    let inner = mount(options(&inner, &elsewhere, CacheMode::Kernel)).unwrap();
    let above = inner.source().parent().unwrap();
    let (_directory, _, third) = directories();
    let error = mount(options(above, &third, CacheMode::Kernel)).unwrap_err();
    let said = error.to_string();
    assert!(said.contains(elsewhere.to_str().unwrap()), "{said}");
    inner.unmount().unwrap();
}

#[test]
fn a_full_disk_is_told_at_the_write() {
    for cache in MODES {
        let Some(small) = Small::new(4 << 20) else { return };
        let served = small.serve(cache);
        let mut file = File::create(small.path("big")).unwrap();
        let mut room = 0;
        let error = loop {
            match file.write(&[1; 100_000]) {
                Ok(n) => room += n,
                Err(error) => break error,
            }
            assert!(room < 5 << 20, "{cache:?}: more was taken than there is room for");
        };
        assert_eq!(errno(&error), Some(libc::ENOSPC), "{cache:?}");
        drop(file);
        assert_eq!(fs::metadata(small.path("big")).unwrap().len(), room as u64, "{cache:?}");
        let error = fs::write(small.path("keep"), "precious").unwrap_err();
        assert_eq!(errno(&error), Some(libc::ENOSPC), "{cache:?}");
        fs::remove_file(small.path("big")).unwrap();
        fs::write(small.path("keep"), "precious").unwrap();
        served.unmount().unwrap();
        assert_eq!(fs::read(small.source.join("keep")).unwrap(), b"precious", "{cache:?}");
    }
}

/// Returns more than the free space that a server requires before it lets data wait.
fn plenty() -> u64 {
    let info = rustix::system::sysinfo();
    let memory = info.totalram as u64 * u64::from(info.mem_unit);
    (64 << 20).max(memory / 256) + (40 << 20)
}

/// Writes a file of which the server, or the kernel, holds more than the host has room for, because
/// other files have taken the space.
fn with_room_taken(cache: CacheMode, then: impl FnOnce(&Small, Mount, File)) {
    let Some(small) = Small::new(plenty()) else { return };
    let served = small.serve(cache);
    let file = File::create(small.path("f")).unwrap();
    loop {
        let write = || file.write_all_at(&pattern(1 << 20, 5), 0).unwrap();
        if cache == CacheMode::Direct {
            write();
        }
        small.fill_but(64 << 10);
        if cache == CacheMode::Kernel {
            write();
        }
        match file.sync_all() {
            Err(error) => {
                assert_eq!(errno(&error), Some(libc::ENOSPC), "{cache:?}");
                return then(&small, served, file);
            }
            // The write-back was faster than the filler: the blocks of the file are allocated
            // already.
            Ok(()) => {
                small.make_room();
                file.set_len(0).unwrap();
            }
        }
    }
}

#[test]
fn what_finds_no_room_is_told_at_close_and_kept() {
    for cache in MODES {
        with_room_taken(cache, |small, served, file| {
            drop(file);
            // The unmount is refused with the file's name, and no data is lost.
            let error = served.unmount().unwrap_err();
            assert!(error.to_string().contains("/f: No space left"), "{error}");
            let UnmountError::NotStored { mount: served, files } = error else { panic!("{error}") };
            assert_eq!((files.0.len(), files.0[0].errno), (1, libc::ENOSPC));
            assert!(fs::read(small.path("f")).unwrap() == pattern(1 << 20, 5));
            // In the meantime, other writers get the error at their write.
            let more = fs::write(small.path("g"), pattern(1 << 20, 6)).unwrap_err();
            assert_eq!(errno(&more), Some(libc::ENOSPC), "{cache:?}");
            small.make_room();
            served.unmount().unwrap();
            let stored = fs::read(small.source.join("f")).unwrap();
            assert!(stored == pattern(1 << 20, 5), "{cache:?}");
        });
    }
}

#[test]
fn what_finds_no_room_can_be_given_up() {
    for cache in MODES {
        with_room_taken(cache, |small, served, file| {
            drop(file);
            let given_up = served.unmount_and_discard().unwrap();
            assert_eq!(given_up.0.len(), 1, "{given_up}");
            assert!(!is_mounted(&small.mountpoint));
        });
    }
}

#[test]
fn what_is_lost_to_somebody_elses_unmount_is_told() {
    for cache in MODES {
        with_room_taken(cache, |small, served, file| {
            drop(file);
            unmount_behind_its_back(&small.mountpoint);
            let error = served.unmount().unwrap_err();
            let UnmountError::Lost { files, .. } = &error else { panic!("{error}") };
            assert_eq!(files.0[0].path, Path::new("/f"), "{error}");
        });
    }
}

#[test]
fn few_frames_and_no_room_end_soon() {
    for cache in MODES {
        let Some(small) = Small::new(plenty()) else { return };
        let served = small.serve(cache);
        // Opened while there is space, so that the kernel may collect writes and the cache may hold
        // them.
        let file = File::create(small.path("f")).unwrap();
        file.write_all_at(&[1], 0).unwrap();
        small.fill_but(0);
        let began = Instant::now();
        let mut refused = None;
        for part in 0..32 {
            refused = refused.or(file.write_all_at(&pattern(1 << 20, part), part << 20).err());
        }
        let refused = refused.or(file.sync_all().err()).expect("there is no room");
        assert_eq!(errno(&refused), Some(libc::ENOSPC), "{cache:?}");
        drop(file);
        // Reads still get frames.
        small.make_room();
        fs::write(small.path("g"), "there is room").unwrap();
        assert_eq!(fs::read(small.path("g")).unwrap(), b"there is room");
        served.unmount().unwrap();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(20), "{cache:?}: {took:?}");
    }
}

#[test]
fn a_copy_goes_on_to_the_end_of_a_file_that_was_just_written() {
    in_every_mode(|served| {
        let (from, to) = (served.path("from"), served.path("to"));
        let written = File::create(&from).unwrap();
        written.write_all_at(b"begin", 0).unwrap();
        written.write_all_at(b"end", 5 << 20).unwrap();
        let (source, target) = (File::open(&from).unwrap(), File::create(&to).unwrap());
        let mut copied = 0;
        loop {
            let n = rustix::fs::copy_file_range(&source, None, &target, None, 1 << 20).unwrap();
            copied += n as u64;
            if n == 0 {
                break;
            }
        }
        assert_eq!(copied, (5 << 20) + 3);
        assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap());
    });
}

#[test]
fn a_direct_read_does_not_end_where_the_kernel_has_more() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    let written = File::create(served.path("f")).unwrap();
    written.write_all_at(b"begin", 0).unwrap();
    written.write_all_at(b"end", 5 << 20).unwrap();
    // Later opens are direct; the earlier one continues to collect writes.
    served.mount().set_cache_mode("/f", CacheMode::Direct);
    written.write_all_at(b"more", 9 << 20).unwrap();
    let mut seen = Vec::new();
    File::open(served.path("f")).unwrap().read_to_end(&mut seen).unwrap();
    assert_eq!(seen.len(), (9 << 20) + 4);
    assert_eq!(&seen[9 << 20..], b"more");
    drop(written);
    served.unmount();
}
