//! Tests of access to files through a mount, and of the attributes that reach the host.

mod common;

use common::{Served, in_every_mode, others_reach_us};
use refit_files::{CacheMode, Users};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65534;
const NONE: u32 = u32::MAX;

/// Returns an ACL in the kernel's format: version 2, then tag, permissions and id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Returns an ACL with `rw` for the owner, `permissions` for nobody, and nothing for group and
/// others.
fn acl_for_nobody(permissions: u16) -> Vec<u8> {
    let (owner, user, group, mask, others) = (0x01, 0x02, 0x04, 0x10, 0x20);
    acl(&[
        (owner, 6, NONE),
        (user, permissions, NOBODY),
        (group, 0, NONE),
        (mask, 7, NONE),
        (others, 0, NONE),
    ])
}

fn nobody_reads(path: &Path) -> bool {
    let mut cat = Command::new("cat");
    cat.arg(path).uid(NOBODY).gid(NOBODY).stdout(Stdio::null()).stderr(Stdio::null());
    cat.status().unwrap().success()
}

/// Opens the test's own directories to the user nobody.
fn open_to_all(served: &Served) {
    let everyone = fs::Permissions::from_mode(0o755);
    fs::set_permissions(served.mountpoint.parent().unwrap(), everyone.clone()).unwrap();
    fs::set_permissions(&served.mountpoint, everyone).unwrap();
}

#[test]
fn access_lists_decide() {
    if !others_reach_us() {
        return;
    }
    in_every_mode(|served| {
        open_to_all(served);
        let file = served.path("f");
        fs::write(&file, "secret").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!nobody_reads(&file));
        let name = "system.posix_acl_access";
        let set = |value: &[u8]| rustix::fs::setxattr(&file, name, value, XattrFlags::empty());
        if set(&acl_for_nobody(4)) == Err(rustix::io::Errno::OPNOTSUPP) {
            eprintln!("skipped: the host's file system has no ACLs");
            return;
        }
        assert!(nobody_reads(&file));
        let mut value = [0; 256];
        let length = rustix::fs::getxattr(&file, name, &mut value[..]).unwrap();
        assert_eq!(value[..length], acl_for_nobody(4));
        // The group's bits show the mask.
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o670);
        set(&acl_for_nobody(0)).unwrap();
        assert!(!nobody_reads(&file));
        rustix::fs::removexattr(&file, name).unwrap();
        assert!(!nobody_reads(&file));
    });
}

#[test]
fn a_default_list_counts_instead_of_the_mask() {
    if !others_reach_us() {
        return;
    }
    in_every_mode(|served| {
        open_to_all(served);
        let made = |directory: &str| {
            let script = "umask 077; echo x > \"$0/file\"; mkdir \"$0/directory\"";
            let made = Command::new("sh").args(["-c", script]).arg(served.path(directory)).status();
            assert!(made.unwrap().success());
            ["file", "directory"].map(|name| {
                let (seen, host) = (served.path(directory).join(name), served.host(directory));
                let mode = fs::metadata(seen).unwrap().mode();
                assert_eq!(mode, fs::metadata(host.join(name)).unwrap().mode());
                mode & 0o777
            })
        };
        for name in ["plain", "shared"] {
            fs::create_dir(served.path(name)).unwrap();
            fs::set_permissions(served.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(made("plain"), [0o600, 0o700]);
        let (shared, name) = (served.path("shared"), "system.posix_acl_default");
        let list = acl_for_nobody(4);
        if rustix::fs::setxattr(&shared, name, &list, XattrFlags::empty()).is_err() {
            eprintln!("skipped: the host's file system has no ACLs");
            return;
        }
        assert_eq!(made("shared"), [0o660, 0o670]);
        assert!(nobody_reads(&served.path("shared/file")));
        assert!(!nobody_reads(&served.path("plain/file")));
    });
}

#[test]
fn a_read_from_the_cache_keeps_the_time_of_access() {
    let Some(served) = Served::new(CacheMode::Direct) else { return };
    let file = served.path("f");
    fs::write(&file, "data").unwrap();
    let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: old, last_modification: old };
    rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    let before = fs::metadata(&file).unwrap();
    assert_eq!(before.atime(), old.tv_sec);
    assert_eq!(fs::read(&file).unwrap(), b"data");
    let (after, host) = (fs::metadata(&file).unwrap(), fs::metadata(served.host("f")).unwrap());
    if host.atime() == old.tv_sec {
        eprintln!("skipped: the host keeps no times of access");
        return;
    }
    assert_eq!(after.atime(), host.atime());
    assert_eq!((after.mtime(), after.ctime()), (before.mtime(), before.ctime()));
}

#[test]
fn a_time_set_on_a_file_that_is_being_written_reaches_the_host() {
    in_every_mode(|served| {
        let file = served.path("f");
        fs::write(&file, "data").unwrap();
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: 1_000_000_000, tv_nsec: 7000 },
        };
        rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
        let shown = |path| {
            let data = fs::metadata(path).unwrap();
            (data.mtime(), data.mtime_nsec())
        };
        assert_eq!(shown(file.clone()), (1_000_000_000, 7000));
        fs::File::open(&file).unwrap().sync_all().unwrap();
        assert_eq!(shown(file), (1_000_000_000, 7000));
        assert_eq!(shown(served.host("f")), (1_000_000_000, 7000));
    });
}

#[test]
fn a_file_without_a_name_from_the_beginning_is_refused() {
    in_every_mode(|served| {
        let mut options = fs::File::options();
        options.write(true).custom_flags(libc::O_TMPFILE);
        let error = options.open(&served.mountpoint).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    });
}

/// Changes that an unprivileged user makes to a set-user-ID program that everybody may write: shell
/// commands, with the file as `$1` and another file as `$2`.
const CHANGES: [(&str, &str); 7] = [
    ("write", "echo other > $1"),
    ("append", "echo other >> $1"),
    ("truncate", "truncate -s 3 $1"),
    ("direct", "dd if=$2 of=$1 bs=4096 oflag=direct conv=notrunc status=none"),
    (
        "fallocate",
        "python3 -c 'import os,sys; os.posix_fallocate(os.open(sys.argv[1],1),0,9000)' $1",
    ),
    (
        "copy_file_range",
        "python3 -c 'import os,sys; \
         os.copy_file_range(os.open(sys.argv[2],0),os.open(sys.argv[1],1),19)' $1 $2",
    ),
    ("splice", "cat $2 | python3 -c 'import os,sys; os.splice(0,os.open(sys.argv[1],1),19)' $1"),
];

#[test]
fn whatever_changes_a_program_takes_its_set_id_bits() {
    if !others_reach_us() {
        return;
    }
    in_every_mode(|served| {
        open_to_all(served);
        let (program, other) = (served.path("program"), served.path("other"));
        fs::write(&other, vec![b'x'; 4096]).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
        for (what, script) in CHANGES {
            fs::write(&program, "the program as it was").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o6777)).unwrap();
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh"]).args([&program, &other]).uid(NOBODY).gid(NOBODY);
            let done = shell.stderr(Stdio::null()).status().unwrap().success();
            let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
            if !done {
                eprintln!("skipped: this system cannot do {what}");
                continue;
            }
            assert_eq!(mode(&program), 0o777, "{what}");
            assert_eq!(mode(&served.host("program")), 0o777, "{what}, on the host");
        }
    });
}

#[test]
fn a_new_owner_takes_the_set_id_bits_even_if_it_is_the_old_one() {
    in_every_mode(|served| {
        let program = served.path("program");
        fs::write(&program, "x").unwrap();
        let mode = || fs::metadata(&program).unwrap().mode() & 0o7777;
        for (uid, gid) in [(None, None), (Some(0), None), (None, Some(0)), (Some(7), Some(7))] {
            fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
            assert_eq!(mode(), 0o6755);
            std::os::unix::fs::chown(&program, uid, gid).unwrap();
            assert_eq!(mode(), 0o755, "{uid:?} {gid:?}");
        }
    });
}

#[test]
fn an_access_list_takes_the_set_group_id_bit_of_a_group_one_is_not_in() {
    if !others_reach_us() {
        return;
    }
    in_every_mode(|served| {
        open_to_all(served);
        let program = served.path("program");
        fs::write(&program, "x").unwrap();
        std::os::unix::fs::chown(&program, Some(NOBODY), Some(1)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o2755)).unwrap();
        let list = acl_for_nobody(7).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let script = "import os,sys; \
                      os.setxattr(sys.argv[1],'system.posix_acl_access',bytes.fromhex(sys.argv[2]))";
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(&program).arg(list).uid(NOBODY).gid(NOBODY);
        if !python.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: no python3, or a host without ACLs");
            return;
        }
        assert_eq!(fs::metadata(&program).unwrap().mode() & libc::S_ISGID, 0);
    });
}

#[test]
fn a_private_mount_is_for_root_and_needs_fewer_requests() {
    let requests = |users: Users| {
        let served = Served::with(CacheMode::Kernel, |options| options.users = users)?;
        let script = "umask 027; for i in $(seq 50); do : >$i; rm $i; done; : >file; chmod 0 file; : >file; stat -c %a file; chmod 640 file";
        let made = Command::new("sh").args(["-c", script]).current_dir(&served.mountpoint).output();
        let made = made.unwrap();
        assert_eq!((made.stdout.as_slice(), made.stderr.as_slice()), (&b"0\n"[..], &b""[..]));
        let mode = fs::metadata(served.host("file")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o640);
        fs::set_permissions(&served.source, fs::Permissions::from_mode(0o777)).unwrap();
        let listed = Command::new("ls").arg(&served.mountpoint).uid(NOBODY).output().unwrap();
        assert_eq!(listed.status.success(), users == Users::Owner);
        let requests = served.mount().stats().requests;
        served.unmount();
        Some(requests)
    };
    if !others_reach_us() {
        return;
    }
    let (Some(usual), Some(private)) = (requests(Users::Owner), requests(Users::RootUnchecked))
    else {
        return;
    };
    assert!(private + 50 <= usual, "{private} and {usual} requests");
}

#[test]
fn without_extended_attributes_the_kernel_does_not_ask_for_them() {
    let requests = |xattrs: bool| {
        let served = Served::with(CacheMode::Kernel, |options| {
            (options.users, options.xattrs) = (Users::RootUnchecked, xattrs);
        })?;
        let path = served.path("file");
        fs::write(&path, "x").unwrap();
        let set = rustix::fs::setxattr(&path, "user.color", b"red", XattrFlags::empty());
        let got = rustix::fs::getxattr(&path, "user.color", &mut [0_u8; 8]);
        let listed = rustix::fs::listxattr(&path, &mut [0_u8; 64]);
        let removed = rustix::fs::removexattr(&path, "user.color");
        if xattrs {
            assert_eq!((set, got, removed), (Ok(()), Ok(3), Ok(())));
        } else {
            let none = Errno::OPNOTSUPP;
            assert_eq!((set, got, removed), (Err(none), Err(none), Err(none)));
            assert_eq!(listed, Err(none));
        }
        // A write takes a program's capabilities although the kernel does not ask for them.
        let host = served.host("file");
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        rustix::fs::setxattr(&host, "security.capability", &capability, XattrFlags::empty())
            .ok()?;
        (0..50).for_each(|_| fs::write(&path, "y").unwrap());
        let requests = served.mount().stats().requests;
        let left = rustix::fs::getxattr(&host, "security.capability", &mut [0_u8; 64]);
        assert_eq!(left, Err(Errno::NODATA));
        served.unmount();
        Some(requests)
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts for itself alone");
        return;
    }
    let (Some(with), Some(without)) = (requests(true), requests(false)) else { return };
    assert!(without + 40 <= with, "{with} and {without} requests");
}

#[test]
fn a_mount_without_extended_attributes_is_for_one_user() {
    let directory = tempfile::tempdir().unwrap();
    let [source, mountpoint] = ["source", "mountpoint"].map(|name| directory.path().join(name));
    fs::create_dir(&source).and_then(|()| fs::create_dir(&mountpoint)).unwrap();
    let mut options = common::options(&source, &mountpoint, CacheMode::Kernel);
    (options.users, options.xattrs) = (Users::All, false);
    let refused = refit_files::mount(options).map(drop);
    assert!(matches!(refused, Err(refit_files::MountError::AclsUnchecked)), "{refused:?}");
}
