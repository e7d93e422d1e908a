//! Mounts that outlive their server: `refit mount --hold`, whose server is killed again and again
//! while programs use the mount.

mod stage;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
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
    for cache in ["auto", "direct"] {
        let Some(mut serving) = stage.serve_with(&["--hold", "--cache", cache]) else { return };
        let at = |name: &str| serving.mountpoint.join(name);
        let mut file = File::create_new(at("file")).unwrap();
        let mut nameless =
            OpenOptions::new().create_new(true).read(true).write(true).open(at("gone")).unwrap();
        fs::remove_file(at("gone")).unwrap();
        nameless.write_all(b"nobody names this").unwrap();
        fs::create_dir(at("directory")).unwrap();
        let inode = file.metadata().unwrap().ino();
        for round in 0..5_u64 {
            file.write_all(format!("line {round}\n").as_bytes()).unwrap();
            crash(&serving);
            assert_eq!(file.metadata().unwrap().ino(), inode);
            assert_eq!(file.metadata().unwrap().len(), (round + 1) * 7);
            assert_eq!(fs::read_to_string(at("file")).unwrap().lines().count() as u64, round + 1);
        }
        let mut text = String::new();
        nameless.seek(SeekFrom::Start(0)).unwrap();
        nameless.read_to_string(&mut text).unwrap();
        assert_eq!(text, "nobody names this");
        fs::rename(at("file"), at("directory/moved")).unwrap();
        crash(&serving);
        assert_eq!(fs::read_dir(at("directory")).unwrap().count(), 1);
        drop((file, nameless));
        serving.signal(Signal::TERM);
        assert_eq!(serving.wait(), 0);
        let moved = fs::read_to_string(stage.path("source/directory/moved")).unwrap();
        assert_eq!(moved, "line 0\nline 1\nline 2\nline 3\nline 4\n");
        fs::remove_dir_all(stage.path("source/directory")).unwrap();
    }
}

#[test]
fn pages_that_were_not_stored_are_taken_over() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve_with(&["--hold", "--cache", "direct"]) else { return };
    let path = serving.mountpoint.join("file");
    let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
    // Written in the cache of the file server only, for two seconds.
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    file.write_all_at(&bytes, 10_000).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    kill_process(server(&serving), Signal::KILL).expect("the server runs");
    let mut read = vec![1; bytes.len() + 10_000];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read[..10_000].iter().all(|byte| *byte == 0) && read[10_000..] == bytes);
    assert_eq!(file.metadata().unwrap().len(), 310_000);
    assert_eq!(file.metadata().unwrap().modified().unwrap(), modified);
    drop(file);
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
    let source = stage.path("source/file");
    assert!(fs::read(&source).unwrap()[10_000..] == bytes);
    assert_eq!(fs::metadata(&source).unwrap().modified().unwrap(), modified);
}

/// Appends numbers to a file until `stop`. Returns how many.
fn append(path: &Path, stop: &AtomicBool) -> u64 {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    let mut count = 0;
    while !stop.load(Relaxed) {
        writeln!(file, "{count:015}").unwrap();
        count += 1;
    }
    count
}

/// The names of a directory, and what is in the files.
type Model = BTreeMap<String, String>;

/// Creates, links, renames and removes names, each of which must succeed or fail as in the model.
fn change_names(directory: &Path, stop: &AtomicBool) -> Model {
    fs::create_dir(directory).unwrap();
    let mut model = Model::new();
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
        (random >> 33) % below
    };
    while !stop.load(Relaxed) {
        let (name, other) = (format!("f{}", next(8)), format!("f{}", next(8)));
        let (path, to) = (directory.join(&name), directory.join(&other));
        let (there, taken) = (model.get(&name).cloned(), model.contains_key(&other));
        match next(5) {
            0 => {
                let made = File::create_new(&path).map(|mut file| {
                    let text = format!("{}", next(1 << 30));
                    file.write_all(text.as_bytes()).unwrap();
                    text
                });
                expect(&made, there.is_some().then_some(ErrorKind::AlreadyExists), "create");
                made.ok().map(|text| model.insert(name, text));
            }
            1 => {
                let removed = fs::remove_file(&path);
                expect(&removed, there.is_none().then_some(ErrorKind::NotFound), "unlink");
                model.remove(&name);
            }
            2 => {
                let renamed = fs::rename(&path, &to);
                expect(&renamed, there.is_none().then_some(ErrorKind::NotFound), "rename");
                let same = there.is_some() && there.as_ref() == model.get(&other);
                if let Some(text) = there.filter(|_| !same) {
                    model.remove(&name);
                    model.insert(other, text);
                }
            }
            3 => {
                let linked = fs::hard_link(&path, &to);
                let refused = match (&there, taken) {
                    (None, _) => Some(ErrorKind::NotFound),
                    (_, true) => Some(ErrorKind::AlreadyExists),
                    _ => None,
                };
                expect(&linked, refused, "link");
                there.filter(|_| !taken).map(|text| model.insert(other, text));
            }
            _ => {
                let made = directory.join("made");
                fs::create_dir(&made).unwrap();
                fs::remove_dir(&made).unwrap();
                assert_eq!(fs::read_to_string(&path).ok(), there);
            }
        }
    }
    model
}

fn expect<T: std::fmt::Debug>(done: &std::io::Result<T>, error: Option<ErrorKind>, what: &str) {
    assert_eq!(done.as_ref().err().map(std::io::Error::kind), error, "{what}: {done:?}");
}

fn contents(directory: &Path) -> Model {
    let text = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    };
    fs::read_dir(directory).unwrap().map(|entry| text(entry.unwrap())).collect()
}

#[test]
fn no_request_is_lost_or_executed_twice() {
    let stage = Stage::new();
    for cache in ["auto", "direct"] {
        let Some(mut serving) = stage.serve_with(&["--hold", "--cache", cache]) else { return };
        let stop = Arc::new(AtomicBool::new(false));
        let at = |name: &str| serving.mountpoint.join(format!("{cache}-{name}"));
        let worker = |work: Box<dyn FnOnce(&AtomicBool) + Send>| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || work(&stop))
        };
        let (results, found) = std::sync::mpsc::channel();
        let mut workers = Vec::new();
        for name in ["one", "two"] {
            let (path, results) = (at(name), results.clone());
            workers.push(worker(Box::new(move |stop| {
                let model = change_names(&path, stop);
                results.send((path, model)).unwrap();
            })));
        }
        let log = at("log");
        let appender = {
            let (log, stop) = (log.clone(), Arc::clone(&stop));
            thread::spawn(move || append(&log, &stop))
        };
        for _ in 0..25 {
            crash(&serving);
        }
        stop.store(true, Relaxed);
        workers.into_iter().for_each(|worker| worker.join().expect("it saw no error"));
        let appended = appender.join().expect("it saw no error");
        drop(results);
        serving.signal(Signal::TERM);
        assert_eq!(serving.wait(), 0);
        let source = |path: &Path| stage.path("source").join(path.file_name().unwrap());
        for (path, model) in found {
            assert_eq!(contents(&source(&path)), model);
        }
        let log = fs::read_to_string(source(&log)).unwrap();
        let numbers: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
        assert!(numbers.into_iter().eq(0..appended), "{appended} appended");
    }
}

#[test]
fn the_holder_gives_up_when_the_server_crashes_again_and_again() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve_with(&["--hold"]) else { return };
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
