//! Mounts that outlive their server, which is killed again and again while programs use the mount.

mod load;
mod stage;

use std::fs;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use load::Load;
use rustix::process::{Pid, Signal, kill_process};
use stage::running::until;
use stage::{Serving, Stage};

/// The time within which a server must be there.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the server of a holder.
fn server(serving: &Serving) -> Pid {
    let holder = serving.pid().as_raw_nonzero();
    let children = format!("/proc/{holder}/task/{holder}/children");
    let began = Instant::now();
    loop {
        let list = fs::read_to_string(&children).expect("the holder runs");
        let server = list.split_whitespace().next().and_then(|pid| pid.parse().ok());
        if let Some(server) = server.and_then(Pid::from_raw) {
            return server;
        }
        assert!(began.elapsed() < SERVER_TIMEOUT, "there is no server");
        thread::yield_now();
    }
}

/// Makes the server end by a signal, and waits for the next one.
fn end_by(signal: Signal, serving: &Serving) {
    let ended = server(serving);
    kill_process(ended, signal).expect("the server runs");
    let began = Instant::now();
    while server(serving) == ended {
        assert!(began.elapsed() < SERVER_TIMEOUT, "there is no other server");
        thread::yield_now();
    }
}

/// Kills the server and waits until the next one has answered a request.
fn crash(serving: &Serving) {
    end_by(Signal::KILL, serving);
    // A request that no cache answers.
    rustix::fs::statvfs(&serving.mountpoint).expect("the next server answers");
}

#[test]
fn what_is_open_stays_open_and_what_was_written_is_there() {
    let stage = Stage::new();
    for cache in ["auto", "direct", "passthrough", "exclusive"] {
        let Some(mut serving) = stage.serve_with(&["--cache", cache]) else { return };
        let at = |name: &str| serving.mountpoint.join(name);
        fs::create_dir(at("directory")).unwrap();
        let (contents, open) = load::open_files_stay(&serving.mountpoint, |_| crash(&serving));
        fs::rename(at("file"), at("directory/moved")).unwrap();
        crash(&serving);
        assert_eq!(fs::read_dir(at("directory")).unwrap().count(), 1);
        drop(open);
        serving.signal(Signal::TERM);
        assert_eq!(serving.wait(), 0);
        let moved = fs::read_to_string(stage.path("source/directory/moved")).unwrap();
        assert_eq!(moved, contents);
        fs::remove_dir_all(stage.path("source/directory")).unwrap();
    }
}

#[test]
fn pages_that_were_not_stored_are_taken_over() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve_with(&["--cache", "direct"]) else { return };
    let file = serving.mountpoint.join("file");
    let contents = load::unstored_pages_stay(&file, || {
        kill_process(server(&serving), Signal::KILL).expect("the server runs");
    });
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
    let source = stage.path("source/file");
    assert!(fs::read(&source).unwrap() == contents);
    assert_eq!(fs::metadata(&source).unwrap().modified().unwrap(), modified);
}

#[test]
fn no_request_is_lost_or_executed_twice() {
    let stage = Stage::new();
    for cache in ["auto", "direct", "passthrough", "exclusive"] {
        let Some(mut serving) = stage.serve_with(&["--cache", cache]) else { return };
        let load = Load::start(&serving.mountpoint, cache);
        for _ in 0..25 {
            crash(&serving);
        }
        let expected = load.end();
        serving.signal(Signal::TERM);
        assert_eq!(serving.wait(), 0);
        expected.is_in(&stage.path("source"));
    }
}

/// Returns the number of threads of a process that read the kernel's requests.
fn workers(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let names = tasks.flatten().flat_map(|task| fs::read_to_string(task.path().join("comm")));
    names.filter(|name| name.trim() == "fuser-0").count() as u64
}

/// A request that the kernel copies into memory without page frames while the server is killed is
/// lost: the kernel does not keep it for the next server.
#[test]
fn the_longest_request_fits_into_memory_that_every_server_has_at_once() {
    /// The longest request of the kernel, and the memory for a request.
    const LONGEST: u64 = (1 << 20) + 4096;
    const BUFFER: u64 = 16 << 20;
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    for _ in 0..2 {
        let process = server(&serving).as_raw_nonzero().get().cast_unsigned();
        let mappings = refit_sys::smaps::of(process).unwrap();
        let buffers = mappings.iter().filter(|usage| {
            let size = usage.mapping.range.end - usage.mapping.range.start;
            usage.mapping.name.as_os_str().is_empty() && size >= BUFFER
        });
        let resident: u64 = buffers.map(|usage| usage.resident).sum();
        let workers = workers(process);
        assert!(workers > 0, "nobody reads requests");
        assert!(resident >= workers * LONGEST, "{workers} workers have {resident} bytes");
        crash(&serving);
        // One worker may have answered while another has not begun to read. The instance answers
        // when all of them do.
        let (code, _, stderr) = stage.run(&["ls"]);
        assert_eq!(code, 0, "{stderr}");
    }
}

/// Returns whether a server executes a request.
fn executes(stage: &Stage) -> bool {
    let (_, text, _) = stage.run(&["metrics"]);
    let count = |name: &str| {
        let samples = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    count("refit_mount_requests_total") > count("refit_mount_replies_total")
}

#[test]
fn a_request_in_which_the_server_crashes_three_times_is_answered_with_an_error() {
    // The source is a mount as well. While its server is stopped, requests last.
    let below = Stage::new();
    let Some(source) = below.serve_with(&["--no-hold"]) else { return };
    fs::write(below.path("source/file"), "text").unwrap();
    let stage = Stage::new();
    fs::remove_dir(stage.path("source")).unwrap();
    std::os::unix::fs::symlink(&source.mountpoint, stage.path("source")).unwrap();
    let Some(serving) = stage.serve() else { return };
    source.signal(Signal::STOP);
    // Nothing interrupts the wait for a request that this server has begun.
    until("a stop", || refit_sys::process::stands(source.child.id()));
    let file = serving.mountpoint.join("file");
    let reads = thread::spawn({
        let file = file.clone();
        move || fs::read(file)
    });
    for _ in 0..3 {
        until("a request", || executes(&stage));
        end_by(Signal::ABORT, &serving);
    }
    let error = reads.join().unwrap().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    source.signal(Signal::CONT);
    assert_eq!(fs::read(&file).unwrap(), b"text");
}

#[test]
fn the_holder_gives_up_when_the_server_crashes_again_and_again() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    for _ in 0..9 {
        end_by(Signal::ABORT, &serving);
        rustix::fs::statvfs(&serving.mountpoint).expect("the next server answers");
    }
    kill_process(server(&serving), Signal::ABORT).expect("the server runs");
    assert_eq!(serving.wait(), 101);
    let error = rustix::fs::statvfs(&serving.mountpoint).map(drop).unwrap_err();
    assert_eq!(error, rustix::io::Errno::NOTCONN);
    let mut said = String::new();
    serving.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("is not started again"), "{said}");
}

#[test]
fn programs_may_only_read_after_six_crashes_until_another_server_takes_over() {
    let stage = Stage::new();
    for cache in ["auto", "direct"] {
        let Some(mut serving) = stage.serve_with(&["--cache", cache]) else { return };
        let at = |name: &str| serving.mountpoint.join(name);
        fs::write(at("file"), "first").unwrap();
        let mut open = fs::File::options().append(true).open(at("file")).unwrap();
        for _ in 0..6 {
            end_by(Signal::ABORT, &serving);
            rustix::fs::statvfs(&serving.mountpoint).expect("the next server answers");
        }
        let read_only = |outcome: std::io::Result<()>| {
            assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EROFS), "{cache}");
        };
        read_only(fs::write(at("other"), "x"));
        read_only(fs::create_dir(at("directory")));
        read_only(fs::remove_file(at("file")));
        read_only(fs::rename(at("file"), at("moved")));
        read_only(fs::hard_link(at("file"), at("linked")));
        read_only(fs::set_permissions(
            at("file"),
            std::os::unix::fs::PermissionsExt::from_mode(0o0),
        ));
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "first");
        let more = open.write_all(b", second");
        // Where the kernel collects writes, it does not ask.
        if cache == "direct" {
            read_only(more)
        } else {
            more.unwrap()
        }
        let (_, mounts, _) = stage.run(&["mounts"]);
        assert!(mounts.contains("read-only"), "{mounts}");

        let (code, said, error) = stage.run(&["handover", serving.mountpoint.to_str().unwrap()]);
        assert_eq!(code, 0, "{said}{error}");
        open.write_all(b", third").unwrap();
        drop(open);
        fs::write(at("other"), "x").unwrap();
        serving.signal(Signal::TERM);
        assert_eq!(serving.wait(), 0);
        let expected = if cache == "direct" { "first, third" } else { "first, second, third" };
        assert_eq!(fs::read_to_string(stage.path("source/file")).unwrap(), expected);
        let mut said = String::new();
        serving.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("programs may only read until another build takes over"), "{said}");
    }
}

#[test]
fn the_server_goes_on_when_its_holder_is_killed() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    let server = server(&serving);
    serving.signal(Signal::KILL);
    assert_eq!(serving.wait(), -1);
    fs::write(serving.mountpoint.join("file"), "still here").unwrap();
    let (code, stdout, stderr) = stage.run(&["umount", serving.mountpoint.to_str().unwrap()]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert_eq!(fs::read_to_string(stage.path("source/file")).unwrap(), "still here");
    until("its end", || rustix::process::test_kill_process(server).is_err());
    let mut said = String::new();
    serving.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.is_empty() || said.contains("has been killed"), "{said}");
}

#[test]
fn a_directory_whose_server_has_crashed_is_still_served_by_one() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    crash(&serving);
    let (source, other) = (stage.path("source"), stage.path("other"));
    fs::create_dir(&other).unwrap();
    let began = Instant::now();
    stage.refuses(&["mount", source.to_str().unwrap(), other.to_str().unwrap()], "serves");
    assert!(began.elapsed() < SERVER_TIMEOUT, "it does not wait for the server");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
}
