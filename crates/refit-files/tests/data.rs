//! Tests of reading, writing, mapping and truncating files through a mount.

mod common;

use common::{Served, clock_goes_on, in_every_mode, others_reach_us, pattern};
use refit_files::CacheMode;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::process::{Command, Stdio};

#[test]
fn a_file_larger_than_all_page_frames() {
    in_every_mode(|served| {
        let data = pattern(24 << 20, 1);
        fs::write(served.path("big"), &data).unwrap();
        assert!(fs::read(served.path("big")).unwrap() == data);
        served.mount().set_cache_mode("/big", CacheMode::Direct);
        let file = File::open(served.path("big")).unwrap();
        let mut part = vec![0; 3 << 20];
        for offset in [0, 5_000_001, (21 << 20) + 17] {
            file.read_exact_at(&mut part[..(2 << 20)], offset).unwrap();
            assert!(part[..2 << 20] == data[offset as usize..][..2 << 20]);
        }
        served.mount().write_back().unwrap();
        assert!(fs::read(served.host("big")).unwrap() == data);
    });
}

#[test]
fn a_program_that_runs_keeps_its_code() {
    in_every_mode(|served| {
        let path = served.path("program");
        fs::copy("/bin/cat", &path).unwrap();
        let length = fs::metadata(&path).unwrap().len();
        let mut running = Command::new(&path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Truncation does not require the file to be open for writing.
        for how in [OFlags::WRONLY, OFlags::RDONLY] {
            let truncating = rustix::fs::open(&path, how | OFlags::TRUNC, 0.into());
            assert_eq!(truncating.unwrap_err(), rustix::io::Errno::TXTBSY);
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
        running.stdin.take().unwrap().write_all(b"well").unwrap();
        let output = running.wait_with_output().unwrap();
        assert!(output.status.success() && output.stdout == b"well", "{output:?}");
    });
}

#[test]
fn sparse_files_and_their_holes() {
    in_every_mode(|served| {
        let path = served.path("sparse");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let far = 5 << 30;
        file.write_all_at(b"end", far).unwrap();
        file.write_all_at(b"start", 1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), far + 3);
        let mut buffer = [1; 5000];
        file.read_exact_at(&mut buffer, 1 << 30).unwrap();
        assert_eq!(buffer, [0; 5000]);
        file.sync_all().unwrap();
        assert!(fs::metadata(served.host("sparse")).unwrap().blocks() < 1000);
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(1 << 20));
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 4096));
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(2 << 20)), Ok(far));
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(far + 3)), Err(rustix::io::Errno::NXIO));
    });
}

#[test]
fn unwritten_data_is_no_hole() {
    in_every_mode(|served| {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(served.path("fresh"))
            .unwrap();
        file.write_all_at(b"data", 1 << 20).unwrap();
        // Nothing has been synced or closed, so the data may exist in the kernel's cache only.
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(1 << 20)), Ok(1 << 20));
        let at = rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap();
        assert!(at <= 1 << 20);
    });
}

#[test]
fn truncation_cuts_and_grows_with_zeros() {
    in_every_mode(|served| {
        let path = served.path("t");
        fs::write(&path, pattern(10_000, 2)).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(5000).unwrap();
        file.set_len(9000).unwrap();
        let read = fs::read(&path).unwrap();
        assert!(read[..5000] == pattern(10_000, 2)[..5000]);
        assert!(read[5000..] == vec![0; 4000]);
        File::options().write(true).truncate(true).open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        assert_eq!(fs::read(&path).unwrap(), b"");
        served.mount().write_back().unwrap();
        assert_eq!(fs::metadata(served.host("t")).unwrap().len(), 0);
        assert!(file.set_len(1 << 62).is_err());
    });
}

#[test]
fn every_mode_of_fallocate() {
    in_every_mode(|served| {
        let path = served.path("f");
        let data = pattern(64 << 10, 4);
        fs::write(&path, &data).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let allocate = |mode, offset, len| rustix::fs::fallocate(&file, mode, offset, len);
        let keep = FallocateFlags::KEEP_SIZE;
        allocate(FallocateFlags::PUNCH_HOLE | keep, 5000, 20_000).unwrap();
        let mut expected = data.clone();
        expected[5000..25_000].fill(0);
        assert!(fs::read(&path).unwrap() == expected);
        allocate(FallocateFlags::ZERO_RANGE, 30_000, 5000).unwrap();
        expected[30_000..35_000].fill(0);
        assert!(fs::read(&path).unwrap() == expected);
        allocate(keep, 0, 1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 64 << 10);
        allocate(FallocateFlags::empty(), 0, 100_000).unwrap();
        expected.resize(100_000, 0);
        assert!(fs::read(&path).unwrap() == expected);
        file.write_all_at(b"tail", 99_998).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100_002);
        // The kernel does not forward this request.
        let collapse = allocate(FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(collapse, Err(rustix::io::Errno::OPNOTSUPP));
    });
}

#[test]
fn appending_by_two_processes_loses_nothing() {
    in_every_mode(|served| {
        let script = "i=0; while [ $i -lt 500 ]; do echo $0 $i >> log; i=$((i+1)); done";
        let writer = |name: &str| {
            Command::new("sh")
                .arg("-c")
                .arg(script)
                .arg(name)
                .current_dir(&served.mountpoint)
                .spawn()
                .unwrap()
        };
        let mut writers = [writer("one"), writer("two")];
        for writer in &mut writers {
            assert!(writer.wait().unwrap().success());
        }
        let log = fs::read_to_string(served.path("log")).unwrap();
        for name in ["one", "two"] {
            let lines: Vec<_> = log.lines().filter(|line| line.starts_with(name)).collect();
            let expected: Vec<_> = (0..500).map(|i| format!("{name} {i}")).collect();
            assert!(lines == expected, "{name}");
        }
    });
}

#[test]
fn mappings_shared_and_private() {
    in_every_mode(|served| {
        // Python stands for an unmodified program; the test passes without it.
        let script = "
import mmap, os
fd = os.open('m', os.O_RDWR)
shared = mmap.mmap(fd, 0, mmap.MAP_SHARED)
private = mmap.mmap(fd, 0, mmap.MAP_PRIVATE)
assert shared[:4] == b'0000' and private[:4] == b'0000'
shared[4096:4100] = b'both'
assert private[4096:4100] == b'both' and os.pread(fd, 4, 4096) == b'both'
private[0:4] = b'mine'
assert shared[0:4] == b'0000'
os.pwrite(fd, b'file', 8192)
assert shared[8192:8196] == b'file'
shared.flush()
";
        fs::write(served.path("m"), vec![b'0'; 20_000]).unwrap();
        let status =
            Command::new("python3").arg("-c").arg(script).current_dir(&served.mountpoint).status();
        match status {
            Ok(status) => assert!(status.success()),
            Err(error) => return eprintln!("skipped: python3: {error}"),
        }
        let data = fs::read(served.path("m")).unwrap();
        assert_eq!(
            (&data[4096..4100], &data[..4], &data[8192..8196]),
            (&b"both"[..], &b"0000"[..], &b"file"[..])
        );
        // `flush` calls msync(2), so the data is on the host.
        assert_eq!(&fs::read(served.host("m")).unwrap()[4096..4100], b"both");
    });
}

#[test]
fn opens_of_both_kinds_see_each_other() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    let path = served.path("mixed");
    let cached = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    cached.write_all_at(&pattern(100_000, 5), 0).unwrap();
    assert_eq!(served.mount().set_cache_mode("/mix*", CacheMode::Direct), Some(1));
    let direct = File::options().read(true).write(true).open(&path).unwrap();
    let mut buffer = vec![0; 100_000];
    direct.read_exact_at(&mut buffer, 0).unwrap();
    assert!(buffer == pattern(100_000, 5), "what the kernel had cached is seen");
    direct.write_all_at(b"direct", 50_000).unwrap();
    cached.read_exact_at(&mut buffer[..6], 50_000).unwrap();
    assert_eq!(&buffer[..6], b"direct");
    cached.write_all_at(b"cached", 60_000).unwrap();
    direct.read_exact_at(&mut buffer[..6], 60_000).unwrap();
    assert_eq!(&buffer[..6], b"cached");
    let reads = served.mount().stats().reads;
    direct.read_exact_at(&mut buffer[..6], 60_000).unwrap();
    assert_eq!(served.mount().stats().reads, reads + 1, "every direct read comes here");
    drop((cached, direct));
    served.mount().set_cache_mode("/mix*", CacheMode::Kernel);
    let cached = File::open(&path).unwrap();
    cached.read_exact_at(&mut buffer, 0).unwrap();
    let reads = served.mount().stats().reads;
    cached.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(served.mount().stats().reads, reads, "the kernel answers");
    drop(cached);
    served.unmount();
}

#[test]
fn direct_writes_on_a_caching_mount_change_the_time() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    fs::write(served.path("d"), "x").unwrap();
    served.mount().set_cache_mode("/d", CacheMode::Direct);
    let before = fs::metadata(served.path("d")).unwrap();
    clock_goes_on();
    let mut file = File::options().append(true).open(served.path("d")).unwrap();
    file.write_all(b"yz").unwrap();
    drop(file);
    // The kernel shows the new time only after it has dropped the file, which it does when it
    // learns of the close.
    let time = |m: &fs::Metadata| (m.mtime(), m.mtime_nsec());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let after = fs::metadata(served.path("d")).unwrap();
        assert_eq!(after.len(), 3);
        if time(&after) > time(&before) {
            break;
        }
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    served.unmount();
}

#[test]
fn direct_io_by_the_program() {
    in_every_mode(|served| {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(served.path("o"))
            .unwrap();
        // Aligned, as `O_DIRECT` requires of the program.
        let memory = vec![0u8; 3 * 4096];
        let start = memory.as_ptr().align_offset(4096);
        let mut memory = memory;
        let page = &mut memory[start..start + 4096];
        page.fill(7);
        file.write_all_at(page, 8192).unwrap();
        page.fill(0);
        file.read_exact_at(page, 8192).unwrap();
        assert!(page.iter().all(|b| *b == 7));
        assert_eq!(fs::metadata(served.path("o")).unwrap().len(), 12_288);
    });
}

/// While a fault reads pages, the kernel keeps them locked until the server replies. The server
/// does not know yet how long another descriptor has made the file.
#[test]
fn faults_in_files_opened_for_direct_io() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    let collected = File::create_new(served.path("f")).unwrap();
    // The mapping is in another process, because a fault holds the lock of the memory map, which
    // the server needs.
    let maps = |flags: &str, page: u64| {
        collected.write_all_at(&[0; 4096], page).unwrap();
        let script = format!(
            "
import mmap, os
page = mmap.mmap(os.open('f', {flags}), 4096, prot=mmap.PROT_READ, offset={page})
print('mapped', flush=True)
input()
assert page[0] == 0
"
        );
        let mut python = Command::new("python3");
        python.arg("-c").arg(script).current_dir(&served.mountpoint);
        let mut child = match python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(error) => return eprintln!("skipped: python3: {error}"),
        };
        let mut output = [0; 7];
        child.stdout.take().unwrap().read_exact(&mut output).unwrap();
        collected.write_all_at(b"end", page + (1 << 20)).unwrap();
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success());
    };
    maps("os.O_RDONLY | os.O_DIRECT", 0);
    served.mount().set_cache_mode("/f", CacheMode::Direct);
    maps("os.O_RDONLY", 2 << 20);
    drop(collected);
    served.unmount();
}

#[test]
fn copying_within_the_mount() {
    in_every_mode(|served| {
        let data = pattern(300_000, 6);
        fs::write(served.path("from"), &data).unwrap();
        let from = File::open(served.path("from")).unwrap();
        let to = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(served.path("to"))
            .unwrap();
        to.write_all_at(&[9; 1000], 0).unwrap();
        let (mut at, mut into) = (10_000, 500);
        while at < 300_000 {
            let n =
                rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut into), 300_000)
                    .unwrap();
            assert!(n > 0);
        }
        let mut expected = vec![9; 500];
        expected.extend_from_slice(&data[10_000..]);
        assert!(fs::read(served.path("to")).unwrap() == expected);
        served.mount().write_back().unwrap();
        assert!(fs::read(served.host("to")).unwrap() == expected);
    });
}

#[test]
fn locks_exclude() {
    in_every_mode(|served| {
        let path = served.path("lock");
        let first = File::create(&path).unwrap();
        first.lock().unwrap();
        let second = File::open(&path).unwrap();
        assert!(second.try_lock().is_err());
        first.unlock().unwrap();
        second.try_lock().unwrap();
    });
}

#[test]
fn a_write_by_somebody_else_clears_set_user_id() {
    if !others_reach_us() {
        return;
    }
    in_every_mode(|served| {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        let path = served.path("program");
        for how in [
            "echo x >> program",
            "dd if=/dev/zero of=program bs=4096 count=1 conv=notrunc status=none",
            "truncate -s 1 program",
            ": > program",
        ] {
            fs::write(&path, "#!/bin/true").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
            let status = Command::new("sh")
                .arg("-c")
                .arg(how)
                .current_dir(&served.mountpoint)
                .uid(4001)
                .gid(4002)
                .status()
                .unwrap();
            assert!(status.success());
            let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
            assert_eq!(mode, 0o777, "{how}: {mode:o}");
            assert_eq!(
                fs::metadata(served.host("program")).unwrap().mode() & 0o7777,
                0o777,
                "{how}"
            );
        }
    });
}

#[test]
fn set_group_id_without_execution_stays_for_the_group_only() {
    if !others_reach_us() {
        return;
    }
    in_every_mode(|served| {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        let path = served.path("locked");
        let whole = "dd if=/dev/zero of=locked bs=4096 count=1 conv=notrunc status=none";
        for how in ["echo x >> locked", whole, "truncate -s 1 locked", "fallocate -l 65536 locked"]
        {
            for (group, left) in [(4002, 0o666), (4003, 0o2666)] {
                fs::write(&path, "data").unwrap();
                std::os::unix::fs::chown(&path, Some(4000), Some(4003)).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o6666)).unwrap();
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(how).current_dir(&served.mountpoint).uid(4001).gid(group);
                assert!(shell.status().unwrap().success());
                // `stat` requests the mode alone, which the kernel then answers from its cache.
                let shown = Command::new("stat").args(["-c", "%a"]).arg(&path).output().unwrap();
                assert_eq!(shown.stdout, format!("{left:o}\n").into_bytes(), "{how}");
                let mode = fs::metadata(served.host("locked")).unwrap().mode() & 0o7777;
                assert_eq!(mode, left, "{how}: {mode:o}");
            }
        }
    });
}

#[test]
fn two_threads_on_one_file_and_frames_for_neither() {
    in_every_mode(|served| {
        let path = served.path("shared");
        let len = 6 << 20;
        File::create(&path).unwrap().set_len(len * 2).unwrap();
        std::thread::scope(|scope| {
            for half in 0..2u64 {
                let path = &path;
                scope.spawn(move || {
                    let mut file = File::options().read(true).write(true).open(path).unwrap();
                    file.seek(std::io::SeekFrom::Start(half * len)).unwrap();
                    let data = pattern(len as usize, half);
                    for chunk in data.chunks(77_777) {
                        file.write_all(chunk).unwrap();
                    }
                    file.seek(std::io::SeekFrom::Start(half * len)).unwrap();
                    let mut read = vec![0; len as usize];
                    file.read_exact(&mut read).unwrap();
                    assert!(read == data);
                });
            }
        });
    });
}
