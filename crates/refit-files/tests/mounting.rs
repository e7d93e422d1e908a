//! Tests of mounting and unmounting, of mounts that are refused, and of the data that survives a
//! crash.

mod common;

use common::{Served, directories, is_mounted, options, possible};
use refit_files::{CacheMode, MountError, MountOptions, RequestEvent, UnmountError, mount};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Asserts that a refused mount leaves nothing behind and gives its reason in one line.
fn refused(change: impl FnOnce(&mut refit_files::MountOptions), expected: fn(&MountError) -> bool) {
    let (_directory, source, mountpoint) = directories();
    let mut options = options(&source, &mountpoint, CacheMode::Kernel);
    change(&mut options);
    let mounts = || {
        fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .filter(|l| l.contains("refit"))
            .count()
    };
    let before = mounts();
    let error = mount(options).unwrap_err();
    assert!(expected(&error), "{error:?}");
    let message = error.to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("cannot "), "{message}");
    assert_eq!(mounts(), before);
}

#[test]
fn bad_mounts_are_refused() {
    if !possible() {
        return;
    }
    refused(|o| o.source = "/nowhere/at/all".into(), |e| matches!(e, MountError::SourceMissing(_)));
    refused(
        |o| o.source = "/etc/passwd".into(),
        |e| matches!(e, MountError::SourceNotDirectory(_)),
    );
    refused(
        |o| o.mountpoint = "/nowhere".into(),
        |e| matches!(e, MountError::MountpointMissing(_)),
    );
    refused(
        |o| o.mountpoint = "/etc/passwd".into(),
        |e| matches!(e, MountError::MountpointNotDirectory(_)),
    );
    refused(
        |o| o.mountpoint = o.source.clone(),
        |e| matches!(e, MountError::MountpointInSource { .. }),
    );
    refused(
        |o| {
            o.mountpoint = o.source.join("inside");
            fs::create_dir(&o.mountpoint).unwrap();
        },
        |e| matches!(e, MountError::MountpointInSource { .. }),
    );
    refused(|o| o.frames_bytes = 63 * 4096, |e| matches!(e, MountError::TooFewFrames { .. }));
    refused(
        |o| o.composition = refit_files::composition("none such"),
        |e| matches!(e, MountError::Composition(why) if why.contains("fcm:partitioned, fcm:shared")),
    );
    for workers in [0, 1025, usize::MAX] {
        refused(|o| o.workers = Some(workers), |e| matches!(e, MountError::Workers { .. }));
    }
    for bytes in [10 << 40, 1 << 60, u64::MAX] {
        refused(|o| o.frames_bytes = bytes, |e| matches!(e, MountError::TooManyFrames { .. }));
    }
}

#[test]
fn a_mount_over_a_mount_is_refused() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    let (_directory, source, _) = directories();
    let again = mount(options(&source, &served.mountpoint, CacheMode::Kernel)).unwrap_err();
    assert!(matches!(again, MountError::AlreadyMounted(_)), "{again}");
    fs::write(served.path("still"), "works").unwrap();
    served.unmount();
}

#[test]
fn the_mount_is_listed_with_its_source() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|l| l.contains(served.mountpoint.to_str().unwrap())).unwrap();
    let fields: Vec<_> = line.split(' ').collect();
    assert_eq!((fields[0], fields[2]), (served.source.to_str().unwrap(), "fuse.refit"));
    served.unmount();
}

#[test]
fn a_mount_in_use_is_not_unmounted() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    let file = File::create(served.path("open")).unwrap();
    let mut served = served;
    let error = served.take_mount().unmount().unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    let UnmountError::Busy { mount } = error else { panic!("{error}") };
    file.write_all_at(b"still works", 0).unwrap();
    drop(file);
    mount.unmount().unwrap();
    assert_eq!(fs::read(served.host("open")).unwrap(), b"still works");
}

#[test]
fn somebody_else_unmounts() {
    let Some(mut served) = Served::new(CacheMode::Kernel) else { return };
    fs::write(served.path("f"), "data").unwrap();
    rustix::mount::unmount(&served.mountpoint, rustix::mount::UnmountFlags::empty()).unwrap();
    let mount = served.take_mount();
    while !mount.ended() {
        std::thread::yield_now();
    }
    mount.unmount().unwrap();
    assert_eq!(fs::read(served.host("f")).unwrap(), b"data");
}

/// Mounts a tmpfs, as another user of the mount point would.
fn mount_another(mountpoint: &std::path::Path) {
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("other", mountpoint, "tmpfs", flags, None).unwrap();
    fs::write(mountpoint.join("mark"), "other").unwrap();
}

fn unmount_another(mountpoint: &std::path::Path) {
    assert_eq!(fs::read(mountpoint.join("mark")).unwrap(), b"other", "it was unmounted, too");
    rustix::mount::unmount(mountpoint, rustix::mount::UnmountFlags::empty()).unwrap();
}

#[test]
fn what_is_mounted_there_next_stays() {
    for wait in [false, true] {
        let Some(mut served) = Served::new(CacheMode::Kernel) else { return };
        rustix::mount::unmount(&served.mountpoint, rustix::mount::UnmountFlags::empty()).unwrap();
        mount_another(&served.mountpoint);
        let mount = served.take_mount();
        while wait && !mount.ended() {
            std::thread::yield_now();
        }
        mount.unmount().unwrap();
        unmount_another(&served.mountpoint);
    }
}

#[test]
fn what_covers_a_mount_stays() {
    let Some(mut served) = Served::new(CacheMode::Kernel) else { return };
    mount_another(&served.mountpoint);
    let error = served.take_mount().unmount().unwrap_err();
    let UnmountError::Busy { mount } = error else { panic!("{error}") };
    unmount_another(&served.mountpoint);
    mount.unmount().unwrap();
    assert!(!is_mounted(&served.mountpoint));
}

#[test]
fn a_dropped_mount_is_gone_and_written() {
    let Some(mut served) = Served::new(CacheMode::Direct) else { return };
    fs::write(served.path("f"), "data").unwrap();
    drop(served.take_mount());
    assert!(!is_mounted(&served.mountpoint));
    assert_eq!(fs::read(served.host("f")).unwrap(), b"data");
}

#[test]
fn nothing_can_be_changed_on_a_read_only_mount() {
    let Some(served) = Served::with(CacheMode::Kernel, |o| {
        o.read_only = true;
        fs::write(o.source.join("f"), "data").unwrap();
    }) else {
        return;
    };
    assert_eq!(fs::read(served.path("f")).unwrap(), b"data");
    let errno = |error: std::io::Error| error.raw_os_error();
    assert_eq!(errno(fs::write(served.path("f"), "x").unwrap_err()), Some(libc::EROFS));
    assert_eq!(errno(fs::write(served.path("g"), "x").unwrap_err()), Some(libc::EROFS));
    served.unmount();
}

#[test]
fn a_panic_costs_one_request() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    fs::write(served.path("f"), "data").unwrap();
    served.mount().panic_in_next_request();
    let error = fs::create_dir(served.path("d")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    fs::create_dir(served.path("e")).unwrap();
    assert_eq!(fs::read(served.path("f")).unwrap(), b"data");
    assert_eq!(served.mount().stats().panics, 1);
    served.unmount();
}

#[test]
fn every_request_is_answered_once() {
    let Some(served) = Served::new(CacheMode::Direct) else { return };
    served.mount().start_request_journal(1 << 20);
    for n in 0..200 {
        let path = served.path(&format!("f{n}"));
        fs::write(&path, common::pattern(5000, n)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), common::pattern(5000, n));
        fs::remove_file(&path).unwrap();
    }
    // Requests sent earlier are answered before this one.
    let stats = served.mount().stats();
    let (events, lost) = served.mount().stop_request_journal();
    assert_eq!(lost, 0);
    let mut counts: HashMap<u64, [u32; 2]> = HashMap::new();
    for (unique, event) in events {
        counts.entry(unique).or_default()[usize::from(event == RequestEvent::Answered)] += 1;
    }
    // A release may still be in progress: begun, but not answered.
    let open = counts.values().filter(|c| **c == [1, 0]).count();
    assert!(open <= 2, "{open}");
    assert!(counts.values().all(|c| *c == [1, 1] || *c == [1, 0]));
    assert!(counts.len() > 1000 && stats.requests >= counts.len() as u64);
    served.unmount();
}

/// Serves a mount for [`fsynced_data_survives_sigkill`], which starts this test; does nothing in a
/// normal run.
#[test]
fn serve_for_another_test() {
    let Some(directories) = std::env::var_os("REFIT_TEST_SERVE") else { return };
    let directories = directories.into_string().unwrap();
    let mut parts = directories.split(':');
    let (source, mountpoint, mode) =
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let mode = if mode == "direct" { CacheMode::Direct } else { CacheMode::Kernel };
    let _mount = mount(options(source.as_ref(), mountpoint.as_ref(), mode)).unwrap();
    println!("\nserving");
    // Serves until it is killed.
    loop {
        std::thread::park();
    }
}

#[test]
fn fsynced_data_survives_sigkill() {
    if !possible() {
        return;
    }
    for mode in ["kernel", "direct"] {
        let (_directory, source, mountpoint) = directories();
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve_for_another_test", "--nocapture"])
            .env(
                "REFIT_TEST_SERVE",
                format!("{}:{}:{mode}", source.display(), mountpoint.display()),
            )
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "serving"));
        let mut synced = Vec::new();
        for n in 0..20u64 {
            let data = common::pattern(50_000 + n as usize * 1000, n);
            let mut file = File::create(mountpoint.join(format!("f{n}"))).unwrap();
            file.write_all(&data).unwrap();
            if n % 2 == 0 {
                file.sync_all().unwrap();
                synced.push((n, data));
            }
        }
        server.kill().unwrap();
        server.wait().unwrap();
        let dead = mount(options(&source, &mountpoint, CacheMode::Kernel)).unwrap_err();
        assert!(matches!(dead, MountError::DeadMount(_)), "{dead}");
        rustix::mount::unmount(&mountpoint, rustix::mount::UnmountFlags::DETACH).unwrap();
        let again = mount(options(&source, &mountpoint, CacheMode::Kernel)).unwrap();
        for (n, data) in synced {
            assert!(fs::read(mountpoint.join(format!("f{n}"))).unwrap() == data, "{mode} {n}");
        }
        again.unmount().unwrap();
    }
}

/// Returns the latency that processes tolerate of all processors; `None` if nobody may ask.
fn tolerated_latency() -> Option<i32> {
    let mut latency = [0; 4];
    let mut device = File::open(refit_sys::cpu_latency::DEVICE).ok()?;
    std::io::Read::read_exact(&mut device, &mut latency).ok()?;
    Some(i32::from_ne_bytes(latency))
}

#[test]
fn processors_stay_awake_while_a_mount_is_used() {
    if !possible() || tolerated_latency().is_none() {
        println!("skipped: needs root and {}", refit_sys::cpu_latency::DEVICE);
        return;
    }
    let (_directory, source, mountpoint) = directories();
    let mount =
        mount(MountOptions { awake: true, ..options(&source, &mountpoint, CacheMode::Direct) });
    let mount = mount.unwrap();
    let file = File::create(mountpoint.join("file")).unwrap();
    let until = |done: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not come about");
        }
    };
    until(&|| {
        file.write_all_at(b"x", 0).unwrap();
        tolerated_latency() == Some(0)
    });
    drop(file);
    mount.unmount().unwrap();
}
