//! Refit's own code, changed by refit while it serves, and the code of programs that it serves.

mod stage;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stage::running::{Running, build, until};
use stage::{Serving, Stage};

/// Size of the file that both workers read.
const STEADY: usize = 20_000;

/// Works on files of a folder until it is told to end, and checks what it reads; counts rounds.
fn work(folder: &Path, number: u64, is_over: &AtomicBool, rounds: &AtomicU64) {
    let own = folder.join(number.to_string());
    fs::create_dir(&own).expect("made");
    let (mut round, mut names) = (0_u64, BTreeSet::new());
    // Relaxed: only the end depends on it, and the count is only compared with earlier ones.
    while !is_over.load(Ordering::Relaxed) {
        let bytes: Vec<u8> = (0..9_000).map(|at| (at * number + round) as u8).collect();
        let (new, name) = (own.join("new"), (round % 20).to_string());
        let mut file = File::create(&new).expect("created");
        file.write_all(&bytes).expect("written");
        if round.is_multiple_of(5) {
            file.sync_all().expect("synced");
        }
        drop(file);
        fs::rename(&new, own.join(&name)).expect("renamed");
        names.insert(name.clone());
        assert!(fs::read(own.join(&name)).expect("read") == bytes, "round {round}");
        assert!(fs::read(folder.join("steady")).expect("read") == [7; STEADY], "round {round}");
        let listed = fs::read_dir(&own).expect("a folder").map(|entry| entry.expect("an entry"));
        let listed = listed.map(|entry| entry.file_name().into_string().expect("UTF-8"));
        assert_eq!(listed.collect::<BTreeSet<_>>(), names);
        if round % 50 == 49 {
            names.iter().for_each(|name| fs::remove_file(own.join(name)).expect("removed"));
            names.clear();
        }
        round += 1;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Does something while files are worked on.
fn while_worked_on(folder: &Path, change: impl FnOnce(&AtomicU64)) {
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    /// Lets the workers end, even if an assertion fails meanwhile.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _end = End(&is_over);
        for number in 1..=2 {
            let (is_over, rounds) = (&is_over, &rounds);
            scope.spawn(move || work(folder, number, is_over, rounds));
        }
        change(&rounds);
    });
}

/// Waits until there has been some more work.
fn more(rounds: &AtomicU64) {
    let before = rounds.load(Ordering::Relaxed);
    until("more work", || rounds.load(Ordering::Relaxed) > before + 20);
}

#[test]
fn a_server_of_files_is_laid_out_anew_while_it_serves() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve_with(&["--cache", "direct"]) else { return };
    // The number of the instance, whose process only holds the server.
    let id = serving.child.id().to_string();
    let optimize = |more: &[&str]| {
        let (code, stdout, stderr) = stage.run(&[&["optimize", "-p", &id], more].concat());
        assert_eq!(code, 0, "{more:?}: {stdout}{stderr}");
        stdout
    };
    let now = ["--for", "800ms", "--unproved"];
    fs::write(serving.mountpoint.join("steady"), [7; STEADY]).expect("written");
    while_worked_on(&serving.mountpoint, |rounds| {
        for implementation in ["shared", "partitioned"] {
            more(rounds);
            let laid_out = optimize(&now);
            assert!(laid_out.ends_with("kept, unproved\n"), "{laid_out}");
            more(rounds);
            assert!(optimize(&["--status"]).starts_with("optimised: "));
            // Control is in copies while the object is swapped.
            let (code, stdout, stderr) = stage.run(&["swap", "fcm:/steady", implementation]);
            assert_eq!(code, 0, "{stdout}{stderr}");
            more(rounds);
            assert!(optimize(&["--undo"]).starts_with("undone: "));
            assert_eq!(optimize(&["--status"]), "not optimised\n");
        }
        killed_at_work(&stage, &[&["optimize", "-p", &id], &now[..]].concat(), &id, rounds);
    });
    let (_, verified, _) = stage.run(&["repair", "-p", &id, "--verify"]);
    assert!(verified.contains("all as on disk"), "{verified}");
    unmounted(&mut serving);
}

/// Kills a command at different times, and has what it leaves removed.
fn killed_at_work(stage: &Stage, command: &[&str], id: &str, rounds: &AtomicU64) {
    for lines in [2, 4] {
        let mut refit = stage.refit(command);
        let mut refit = refit.stdout(Stdio::piped()).spawn().expect("refit");
        let output = std::io::BufReader::new(refit.stdout.take().expect("a pipe"));
        let said = std::io::BufRead::lines(output).take(lines).count();
        refit.kill().expect("it is our child");
        refit.wait().expect("it is our child");
        assert_eq!(said, lines);
        more(rounds);
        until("the removal", || {
            let (code, stdout, stderr) = stage.run(&["repair", "-p", id]);
            // Copies stay mapped while the stacks of ended threads have return addresses to them.
            assert!(code == 0 || stderr.contains("which no code enters"), "{stdout}{stderr}");
            let (_, verified, _) = stage.run(&["repair", "-p", id, "--verify"]);
            verified.contains("all as on disk")
        });
    }
}

fn unmounted(serving: &mut Serving) {
    serving.signal(rustix::process::Signal::INT);
    assert_eq!(serving.wait(), 0);
    let source = serving.mountpoint.with_file_name("source");
    for number in 1..=2 {
        let own = source.join(number.to_string());
        for entry in fs::read_dir(own).expect("a folder") {
            let entry = entry.expect("an entry");
            assert_eq!(entry.metadata().expect("a file").len(), 9_000, "{entry:?}");
        }
    }
}

/// A program that sorts by the C library until its input ends, and fails if something is not
/// sorted.
const SORTS: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int by_number(const void *one, const void *other) {
    return atoi(*(char *const *)one) - atoi(*(char *const *)other);
}
int main(void) {
    char *texts[500], byte;
    fcntl(0, F_SETFL, O_NONBLOCK);
    while (read(0, &byte, 1) != 0) {
        for (unsigned at = 0; at < 500; at++) {
            texts[at] = malloc(16);
            snprintf(texts[at], 16, "%u", at * 7919 % 500);
        }
        qsort(texts, 500, sizeof *texts, by_number);
        for (unsigned at = 0; at < 500; at++) {
            if (strtoul(texts[at], NULL, 10) != at) return 1;
            free(texts[at]);
        }
    }
    return 0;
}
"#;

#[test]
fn a_program_under_an_instance_is_laid_out_anew() {
    let stage = Stage::new();
    let program = build(&stage, "sorts", SORTS);
    let mut running = Running::start(&stage, &[], &[&program], "sorts");
    let id = running.id().to_string();
    let file = ["--file", "libc.so", "--for", "600ms", "--unproved"];
    for _ in 0..2 {
        let (code, stdout, stderr) = stage.run(&[&["optimize", "-p", &id], &file[..]].concat());
        assert_eq!(code, 0, "{stdout}{stderr}");
        assert!(stdout.ends_with("kept, unproved\n"), "{stdout}");
        let (code, stdout, stderr) = stage.run(&["optimize", "-p", &id, "--undo"]);
        assert!(code == 0 && stdout.starts_with("undone: "), "{stdout}{stderr}");
    }
    drop(running.0.stdin.take());
    assert!(running.0.wait().expect("it is our child").success());
}
