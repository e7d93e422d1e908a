//! Names, links, attributes and directories through a mount.

mod common;

use common::{Served, clock_goes_on, in_every_mode, others_reach_us};
use refit_files::CacheMode;
use rustix::fs::{AtFlags, CWD, Mode, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

#[test]
fn files_directories_and_links() {
    in_every_mode(|served| {
        fs::create_dir(served.path("d")).unwrap();
        fs::write(served.path("d/a"), b"hello").unwrap();
        assert_eq!(fs::read(served.path("d/a")).unwrap(), b"hello");
        fs::hard_link(served.path("d/a"), served.path("b")).unwrap();
        let (a, b) =
            (fs::metadata(served.path("d/a")).unwrap(), fs::metadata(served.path("b")).unwrap());
        assert_eq!((a.ino(), a.nlink(), b.nlink()), (b.ino(), 2, 2));
        // Both names lead to one cache.
        fs::write(served.path("b"), b"changed").unwrap();
        assert_eq!(fs::read(served.path("d/a")).unwrap(), b"changed");
        symlink("d/a", served.path("s")).unwrap();
        assert_eq!(fs::read_link(served.path("s")).unwrap().as_os_str(), "d/a");
        assert_eq!(fs::read(served.path("s")).unwrap(), b"changed");
        assert_eq!(
            fs::remove_dir(served.path("d")).unwrap_err().raw_os_error(),
            Some(libc::ENOTEMPTY)
        );
        fs::remove_file(served.path("d/a")).unwrap();
        assert_eq!(fs::metadata(served.path("b")).unwrap().nlink(), 1);
        fs::remove_dir(served.path("d")).unwrap();
        assert!(!served.host("d").exists());
        assert_eq!(a.ino(), fs::metadata(served.host("b")).unwrap().ino(), "the host's number");
    });
}

#[test]
fn rename_with_every_flag() {
    in_every_mode(|served| {
        let rename = |from: &str, to: &str, flags| {
            rustix::fs::renameat_with(CWD, served.path(from), CWD, served.path(to), flags)
        };
        let text = |name: &str| fs::read_to_string(served.path(name)).unwrap();
        fs::write(served.path("a"), "a").unwrap();
        fs::write(served.path("b"), "b").unwrap();
        fs::create_dir(served.path("d")).unwrap();
        assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename("a", "d/a", RenameFlags::NOREPLACE).unwrap();
        rename("d/a", "b", RenameFlags::EXCHANGE).unwrap();
        assert_eq!((text("b"), text("d/a")), ("a".into(), "b".into()));
        rename("b", "d/a", RenameFlags::empty()).unwrap();
        assert_eq!(text("d/a"), "a");
        assert!(!served.path("b").exists());
        rename("d/a", "c", RenameFlags::WHITEOUT).unwrap();
        let whiteout = fs::symlink_metadata(served.path("d/a")).unwrap();
        assert_eq!((whiteout.mode() & libc::S_IFMT, whiteout.rdev()), (libc::S_IFCHR, 0));
        rename("d", "e", RenameFlags::empty()).unwrap();
        assert!(served.path("e/a").symlink_metadata().is_ok());
        assert_eq!(rename("e", "e/below", RenameFlags::empty()), Err(Errno::INVAL));
    });
}

#[test]
fn a_file_stays_readable_after_its_last_name() {
    in_every_mode(|served| {
        use std::io::{Read, Seek, Write};
        let mut file = fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(served.path("gone"))
            .unwrap();
        file.write_all(b"before ").unwrap();
        fs::remove_file(served.path("gone")).unwrap();
        file.write_all(b"after").unwrap();
        fs::write(served.path("gone"), "another file").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before after");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.set_len(3).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3);

        // The same when a rename takes the name away.
        let old = fs::File::open(served.path("gone")).unwrap();
        fs::write(served.path("new"), "new").unwrap();
        fs::rename(served.path("new"), served.path("gone")).unwrap();
        let mut text = String::new();
        (&old).read_to_string(&mut text).unwrap();
        assert_eq!(text, "another file");
    });
}

#[test]
fn names_of_any_bytes() {
    in_every_mode(|served| {
        let mut names = BTreeSet::new();
        for byte in (1..=255u8).filter(|b| *b != b'/') {
            names.insert(OsString::from(OsStr::from_bytes(&[b'x', byte])));
        }
        names.insert(OsString::from("n".repeat(255)));
        for name in &names {
            fs::write(served.mountpoint.join(name), name.as_bytes()).unwrap();
        }
        let listed = |path: &std::path::Path| -> BTreeSet<_> {
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        assert_eq!(listed(&served.mountpoint), names);
        assert_eq!(listed(&served.source), names);
        for name in &names {
            assert_eq!(fs::read(served.mountpoint.join(name)).unwrap(), name.as_bytes());
        }
        let long = fs::write(served.path(&"n".repeat(256)), "").unwrap_err();
        assert_eq!(long.raw_os_error(), Some(libc::ENAMETOOLONG));
    });
}

#[test]
fn a_large_directory_is_listed_once_each_while_it_shrinks() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    let count = 3000;
    for n in 0..count {
        fs::write(served.host(&format!("file-{n}")), "").unwrap();
    }
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(&served.mountpoint).unwrap() {
        let entry = entry.unwrap();
        assert!(seen.insert(entry.file_name()), "{:?} twice", entry.file_name());
        assert_eq!(entry.metadata().unwrap().len(), 0);
        // Removes the listed entries, as `rm -r` does.
        fs::remove_file(entry.path()).unwrap();
    }
    assert_eq!(seen.len(), count);
    assert_eq!(fs::read_dir(&served.source).unwrap().count(), 0);
    served.unmount();
}

#[test]
fn times_are_those_of_the_program_not_of_write_back() {
    in_every_mode(|served| {
        let path = served.path("t");
        fs::write(&path, "x").unwrap();
        let written = fs::metadata(&path).unwrap();
        let old = Timestamps {
            last_access: Timespec { tv_sec: 1000, tv_nsec: 5 },
            last_modification: Timespec { tv_sec: -2000, tv_nsec: 7 },
        };
        rustix::fs::utimensat(CWD, &path, &old, AtFlags::empty()).unwrap();
        let check = |when: &str| {
            let now = fs::metadata(&path).unwrap();
            assert_eq!((now.atime(), now.atime_nsec()), (1000, 5), "{when}");
            assert_eq!((now.mtime(), now.mtime_nsec()), (-2000, 7), "{when}");
        };
        check("at once");
        served.mount().write_back().unwrap();
        check("after write-back");
        let host = fs::metadata(served.host("t")).unwrap();
        assert_eq!((host.mtime(), host.mtime_nsec()), (-2000, 7));
        assert!(fs::metadata(&path).unwrap().ctime() >= written.ctime());

        // A write sets it, and write-back does not change that.
        fs::write(&path, "y").unwrap();
        let after_write = fs::metadata(&path).unwrap();
        assert!(after_write.mtime() >= written.mtime());
        clock_goes_on();
        served.mount().write_back().unwrap();
        let after_write_back = fs::metadata(&path).unwrap();
        assert_eq!(
            (after_write.mtime(), after_write.mtime_nsec(), after_write.ctime_nsec()),
            (
                after_write_back.mtime(),
                after_write_back.mtime_nsec(),
                after_write_back.ctime_nsec()
            ),
        );
    });
}

#[test]
fn modification_time_advances_with_each_write() {
    in_every_mode(|served| {
        use std::io::Write;
        let mut file = fs::File::create(served.path("m")).unwrap();
        let mut last = file.metadata().unwrap();
        for _ in 0..3 {
            clock_goes_on();
            file.write_all(b"more").unwrap();
            let now = fs::metadata(served.path("m")).unwrap();
            let time = |m: &fs::Metadata| (m.mtime(), m.mtime_nsec());
            assert!(time(&now) > time(&last), "{:?} {:?}", time(&now), time(&last));
            last = now;
        }
    });
}

#[test]
fn permissions_owners_and_special_bits() {
    in_every_mode(|served| {
        let path = served.path("p");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6755);
        std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (1234, 4321));
        assert_eq!(metadata.mode() & 0o7777, 0o755, "a new owner clears the special bits");
        symlink("nowhere", served.path("l")).unwrap();
        std::os::unix::fs::lchown(served.path("l"), Some(7), Some(8)).unwrap();
        let link = fs::symlink_metadata(served.path("l")).unwrap();
        assert_eq!((link.uid(), link.gid()), (7, 8));
        let node = served.path("null");
        rustix::fs::mknodat(
            CWD,
            &node,
            rustix::fs::FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            rustix::fs::makedev(1, 3),
        )
        .unwrap();
        assert_eq!(fs::metadata(&node).unwrap().rdev(), rustix::fs::makedev(1, 3));
        rustix::fs::mkfifoat(CWD, served.path("fifo"), Mode::from_raw_mode(0o600)).unwrap();
    });
}

#[test]
fn extended_attributes() {
    in_every_mode(|served| {
        let path = served.path("x");
        fs::write(&path, "x").unwrap();
        let (name, big) = ("user.refit", common::pattern(1000, 3));
        let mut buffer = [0u8; 2000];
        assert_eq!(rustix::fs::getxattr(&path, name, &mut buffer), Err(Errno::NODATA));
        rustix::fs::setxattr(&path, name, &big, XattrFlags::CREATE).unwrap();
        assert_eq!(rustix::fs::setxattr(&path, name, b"", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(rustix::fs::getxattr(&path, name, &mut buffer), Ok(1000));
        assert_eq!(&buffer[..1000], &big[..]);
        assert_eq!(rustix::fs::getxattr(&path, name, &mut buffer[..10]), Err(Errno::RANGE));
        rustix::fs::setxattr(&path, name, b"", XattrFlags::REPLACE).unwrap();
        assert_eq!(rustix::fs::getxattr(&path, name, &mut buffer), Ok(0));
        let len = rustix::fs::listxattr(&path, &mut buffer).unwrap();
        assert!(buffer[..len].split(|b| *b == 0).any(|n| n == name.as_bytes()));
        assert_eq!(rustix::fs::getxattr(served.host("x"), name, &mut buffer), Ok(0));
        rustix::fs::removexattr(&path, name).unwrap();
        assert_eq!(rustix::fs::removexattr(&path, name), Err(Errno::NODATA));
    });
}

#[test]
fn what_a_user_makes_belongs_to_the_user() {
    if !others_reach_us() {
        return;
    }
    in_every_mode(|served| {
        fs::set_permissions(&served.mountpoint, fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(served.path("shared")).unwrap();
        std::os::unix::fs::chown(served.path("shared"), None, Some(777)).unwrap();
        fs::set_permissions(served.path("shared"), fs::Permissions::from_mode(0o2777)).unwrap();
        let script = "umask 027; echo x > f; mkdir d; ln -s f l; mkfifo p; echo y > shared/g; \
                      mkdir shared/h; ! cat secret";
        fs::write(served.path("secret"), "s").unwrap();
        fs::set_permissions(served.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        use std::os::unix::process::CommandExt;
        let status = std::process::Command::new("sh")
            .arg("-ec")
            .arg(script)
            .stderr(std::process::Stdio::null())
            .current_dir(&served.mountpoint)
            .uid(4001)
            .gid(4002)
            .status()
            .unwrap();
        assert!(status.success());
        for (name, mode, gid) in [
            ("f", 0o640, 4002),
            ("d", 0o750, 4002),
            ("p", 0o640, 4002),
            ("shared/g", 0o640, 777),
            ("shared/h", 0o2750, 777),
        ] {
            for path in [served.path(name), served.host(name)] {
                let m = fs::symlink_metadata(&path).unwrap();
                assert_eq!((m.uid(), m.gid(), m.mode() & 0o7777), (4001, gid, mode), "{path:?}");
            }
        }
    });
}

#[test]
fn more_files_than_descriptors() {
    let Some(served) = Served::new(CacheMode::Kernel) else { return };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap();
    if limit > 30_000 {
        eprintln!("skipped: {limit} descriptors are too many to run out of in a test");
        return;
    }
    let count = limit + limit / 4;
    for n in 0..count {
        let directory = served.host(&format!("{}", n / 1000));
        if n % 1000 == 0 {
            fs::create_dir(&directory).unwrap();
        }
        fs::write(directory.join(n.to_string()), "").unwrap();
    }
    let mut seen = 0;
    for directory in fs::read_dir(&served.mountpoint).unwrap() {
        for entry in fs::read_dir(directory.unwrap().path()).unwrap() {
            assert!(entry.unwrap().metadata().unwrap().is_file());
            seen += 1;
        }
    }
    assert_eq!(seen, count);
    served.unmount();
}
