//! Programs that use a mount all the time, and know what must be there in the end.

#![allow(dead_code, clippy::allow_attributes, reason = "each test uses some of it")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

/// Threads that append to a file and change the names of two directories.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    log: (PathBuf, JoinHandle<u64>),
    names: Vec<(PathBuf, JoinHandle<Model>)>,
}

impl Load {
    /// Starts the threads in a directory of a mount. What they make has names that begin with
    /// `prefix`.
    pub(crate) fn start(mountpoint: &Path, prefix: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let at = |name: &str| mountpoint.join(format!("{prefix}-{name}"));
        let log = {
            let (path, stop) = (at("log"), Arc::clone(&stop));
            (at("log"), thread::spawn(move || append(&path, &stop)))
        };
        let names = ["one", "two"].map(|name| {
            let (path, stop) = (at(name), Arc::clone(&stop));
            (at(name), thread::spawn(move || change_names(&path, &stop)))
        });
        Self { stop, log, names: names.into() }
    }

    /// Ends the threads, none of which may have seen an error, and returns what must be there.
    pub(crate) fn end(self) -> Expected {
        self.stop.store(true, Relaxed);
        let (log, appender) = self.log;
        let appended = appender.join().expect("it saw no error");
        let names = self.names.into_iter();
        let names = names.map(|(path, thread)| (path, thread.join().expect("it saw no error")));
        Expected { log, appended, names: names.collect() }
    }
}

/// The files that must be there when the threads have ended.
pub(crate) struct Expected {
    log: PathBuf,
    appended: u64,
    names: Vec<(PathBuf, Model)>,
}

impl Expected {
    /// Asserts that it is in a directory, such as the source of the mount.
    pub(crate) fn is_in(&self, directory: &Path) {
        let at = |path: &Path| directory.join(path.file_name().unwrap());
        for (path, model) in &self.names {
            assert_eq!(contents(&at(path)), *model);
        }
        let log = fs::read_to_string(at(&self.log)).unwrap();
        let numbers: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
        assert!(numbers.into_iter().eq(0..self.appended), "{} appended", self.appended);
    }
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
                match fs::read_to_string(&path) {
                    Ok(text) => assert_eq!(Some(text), there),
                    Err(error) => assert_eq!((error.kind(), &there), (ErrorKind::NotFound, &None)),
                }
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

/// Writes pages that stay in the cache of the file server for two seconds, has another server take
/// over by `replace`, and asserts that nothing is missing. Returns the contents of the file.
pub(crate) fn unstored_pages_stay(file: &Path, replace: impl FnOnce()) -> Vec<u8> {
    let open = OpenOptions::new().create_new(true).read(true).write(true).open(file).unwrap();
    let written = (0..300_000_u32).map(|n| (n % 251) as u8);
    let contents: Vec<u8> = std::iter::repeat_n(0, 10_000).chain(written).collect();
    open.write_all_at(&contents[10_000..], 10_000).unwrap();
    let modified = open.metadata().unwrap().modified().unwrap();
    replace();
    let mut read = vec![1; contents.len()];
    open.read_exact_at(&mut read, 0).unwrap();
    assert!(read == contents);
    assert_eq!(open.metadata().unwrap().len(), contents.len() as u64);
    assert_eq!(open.metadata().unwrap().modified().unwrap(), modified);
    contents
}

/// Has another server take over five times while a file and a nameless one are open, and asserts
/// each time that both stay. `replace` is told how often it has been called. Returns the contents
/// of the file, and both, which are open.
pub(crate) fn open_files_stay(
    mountpoint: &Path,
    mut replace: impl FnMut(u64),
) -> (String, [File; 2]) {
    let at = |name: &str| mountpoint.join(name);
    let mut file = File::create_new(at("file")).unwrap();
    let mut nameless =
        OpenOptions::new().create_new(true).read(true).write(true).open(at("gone")).unwrap();
    fs::remove_file(at("gone")).unwrap();
    nameless.write_all(b"nobody names this").unwrap();
    let inode = file.metadata().unwrap().ino();
    let mut contents = String::new();
    for round in 0..5 {
        let line = format!("line {round}\n");
        file.write_all(line.as_bytes()).unwrap();
        contents += &line;
        replace(round);
        assert_eq!(file.metadata().unwrap().ino(), inode);
        assert_eq!(file.metadata().unwrap().len(), contents.len() as u64);
        assert_eq!(fs::read_to_string(at("file")).unwrap(), contents);
    }
    let mut text = String::new();
    nameless.seek(SeekFrom::Start(0)).unwrap();
    nameless.read_to_string(&mut text).unwrap();
    assert_eq!(text, "nobody names this");
    (contents, [file, nameless])
}
