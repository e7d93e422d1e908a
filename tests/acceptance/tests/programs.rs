//! Ordinary use of git and sqlite while the caches of their files are swapped.

use refit_acceptance::{CacheMode, Limit, Pace, Random, Served, possible, run, tool};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

const LIMIT: Limit = Limit(std::time::Duration::from_secs(180));

/// Runs a program in a directory; returns its output.
fn in_directory(program: &Path, directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.current_dir(directory).args(arguments);
    // The user who runs the tests may have configured git.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    for (name, value) in [("NAME", "Test"), ("EMAIL", "test@example.invalid")] {
        command.env(format!("GIT_AUTHOR_{name}"), value);
        command.env(format!("GIT_COMMITTER_{name}"), value);
    }
    run(&mut command, "", LIMIT).success()
}

/// Returns `lines` lines of text.
fn text(random: &mut Random, lines: u64) -> String {
    let line = |_| format!("{:x} and {:x}\n", random.number(), random.below(1000));
    (0..lines).map(line).collect()
}

/// Creates a repository with some hundred files and some history.
fn repository(git: &Path, directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    in_directory(git, directory, &["init", "--quiet", "--initial-branch=main"]);
    let mut random = Random::new(1);
    for commit in 0..8 {
        for file in 0..400 {
            let path = directory.join(format!("part{}/deep/file{file}.txt", file % 20));
            if commit == 0 || random.below(5) == 0 {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let lines = 1 + random.below(200);
                fs::write(path, text(&mut random, lines)).unwrap();
            }
        }
        in_directory(git, directory, &["add", "--all"]);
        in_directory(git, directory, &["commit", "--quiet", "-m", &format!("commit {commit}")]);
    }
}

fn clone_and_work(name: &str, cache: CacheMode) {
    let Some(git) = possible().then(|| tool("git")).flatten() else { return };
    let mut served = Served::new(name, cache, 2 << 20);
    let origin = served.scratch().join("origin");
    repository(&git, &origin);
    let storm = served.storm(Pace::EachMillisecond);
    let (url, clone) = (format!("file://{}", origin.display()), served.path("clone"));
    in_directory(&git, &served.directory(), &["clone", "--quiet", &url, "clone"]);
    let same = |arguments: &[&str]| {
        let [there, here] = [&origin, &clone].map(|place| in_directory(&git, place, arguments));
        assert_eq!(here, there, "{arguments:?}");
    };
    same(&["rev-parse", "HEAD"]);
    same(&["ls-tree", "-r", "HEAD"]);
    // The directory contains the committed data, read anew.
    in_directory(&git, &clone, &["update-index", "--really-refresh"]);
    assert_eq!(in_directory(&git, &clone, &["status", "--porcelain"]), "");
    in_directory(&git, &clone, &["fsck", "--full", "--strict"]);
    // The clone can be worked in.
    in_directory(&git, &clone, &["checkout", "--quiet", "-b", "work", "HEAD~3"]);
    fs::write(clone.join("new.txt"), text(&mut Random::new(2), 1000)).unwrap();
    in_directory(&git, &clone, &["add", "new.txt"]);
    in_directory(&git, &clone, &["commit", "--quiet", "-m", "work"]);
    in_directory(&git, &clone, &["merge", "--quiet", "-m", "merge", "main"]);
    in_directory(&git, &clone, &["gc", "--quiet", "--prune=now"]);
    in_directory(&git, &clone, &["fsck", "--full", "--strict"]);
    storm.stop();
    served.unmount();
    // The host has the same repository.
    let host = served.host("clone");
    in_directory(&git, &host, &["fsck", "--full", "--strict"]);
    in_directory(&git, &host, &["update-index", "--really-refresh"]);
    assert_eq!(in_directory(&git, &host, &["status", "--porcelain"]), "");
}

#[test]
fn git_clones_and_works_kernel() {
    clone_and_work("git-kernel", CacheMode::Kernel);
}

#[test]
fn git_clones_and_works_direct() {
    clone_and_work("git-direct", CacheMode::Direct);
}

const TRANSACTIONS: u64 = 120;
const ROWS: u64 = 10;
const WRITERS: u64 = 2;

fn sql(sqlite: &Path, database: &Path, script: &str) -> String {
    let mut command = Command::new(sqlite);
    command.args(["-batch", "-bail", "-cmd", ".timeout 60000"]).arg(database);
    run(&mut command, script, LIMIT).success()
}

/// Returns the transactions of one writer: each adds rows, changes some and removes some, and
/// leaves as many as it added.
fn transactions(writer: u64) -> String {
    let mut script = String::new();
    for number in 0..TRANSACTIONS {
        script += "begin immediate;\n";
        for row in 0..ROWS + 1 {
            let key = (writer * TRANSACTIONS + number) * 100 + row;
            writeln!(
                script,
                "insert into t values({key}, {writer}, {row}, hex(randomblob(200)), 0);"
            )
            .unwrap();
        }
        let first = (writer * TRANSACTIONS + number) * 100;
        writeln!(script, "update t set sum = length(text) + row where key >= {first};").unwrap();
        writeln!(script, "delete from t where key = {};\ncommit;", first + ROWS).unwrap();
    }
    script
}

fn database(name: &str, cache: CacheMode, journal: &str) {
    let Some(sqlite) = possible().then(|| tool("sqlite3")).flatten() else { return };
    let mut served = Served::new(name, cache, 1 << 20);
    let file = served.path("base.db");
    let table = "create table t(key integer primary key, writer, row, text, sum);
        create index by_text on t(text);";
    let mode = sql(&sqlite, &file, &format!("pragma journal_mode = {journal};\n{table}"));
    assert_eq!(mode.trim(), journal);
    let storm = served.storm(Pace::EachMillisecond);
    let done = AtomicBool::new(false);
    // A reader sees whole transactions only.
    let look = "select count(*) % 10, coalesce(sum(sum - length(text) - row), 0) from t;\n";
    thread::scope(|scope| {
        let (sqlite, file, done) = (&sqlite, &file, &done);
        let readers = [(); 2].map(|()| {
            scope.spawn(move || {
                let mut looks = 0;
                while !done.load(Relaxed) {
                    let seen = sql(sqlite, file, &look.repeat(5));
                    assert!(seen.lines().all(|line| line == "0|0"), "{seen}");
                    looks += 1;
                }
                looks
            })
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || sql(sqlite, file, &transactions(writer))))
            .collect();
        let written: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Relaxed);
        assert!(written.iter().all(Result::is_ok), "a writer failed");
        let looks: u32 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(looks > 0, "nobody looked");
    });
    let check = "pragma integrity_check; select count(*), count(distinct text) from t;";
    let rows = WRITERS * TRANSACTIONS * ROWS;
    let expected = format!("ok\n{rows}|{rows}\n");
    assert_eq!(sql(&sqlite, &file, check), expected);
    storm.stop();
    served.unmount();
    assert_eq!(sql(&sqlite, &served.host("base.db"), check), expected);
}

#[test]
fn sqlite_with_a_write_ahead_log_kernel() {
    database("wal-kernel", CacheMode::Kernel, "wal");
}

#[test]
fn sqlite_with_a_write_ahead_log_direct() {
    database("wal-direct", CacheMode::Direct, "wal");
}

#[test]
fn sqlite_with_a_rollback_journal_kernel() {
    database("delete-kernel", CacheMode::Kernel, "delete");
}

#[test]
fn sqlite_with_a_rollback_journal_direct() {
    database("delete-direct", CacheMode::Direct, "delete");
}
