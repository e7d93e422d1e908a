//! A refit mount is one file system, wherever a thread that uses it runs, and whatever happens to
//! its caches meanwhile.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::stage::Stage;
use crate::stage::running::{build, until};

const ROUNDS: u64 = 60;
const WORDS: u64 = 700;

/// Numbers of system calls (`asm/unistd_64.h`).
const PREAD: u64 = 17;
const PWRITE: u64 = 18;

/// A program that is killed if the test fails half-way.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn word(file: &File, number: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, number * 8).expect("a word");
    u64::from_ne_bytes(bytes)
}

/// Returns the number of calls of a system call, by shadows (`calls`) or where the thread ran
/// (`files`).
fn count(shown: &Value, whom: &str, call: u64) -> u64 {
    let all = shown["moves"]["destinations"][0][whom].as_array().expect("a list");
    let found = all.iter().find(|one| one["number"] == call);
    found.map_or(0, |one| one["count"].as_u64().expect("a number"))
}

#[test]
fn a_thread_elsewhere_uses_the_files_of_a_mount_there() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    let program = program(&stage);
    let (code, _, said) = stage.run(&["boot", "--instances", "2"]);
    assert_eq!(code, 0, "{said}");
    let mount = stage.path("mnt");
    let create = |name: &str, bytes: &[u8]| fs::write(mount.join(name), bytes).expect("written");
    create("question", &[0; 8]);
    create("answer", &[0; WORDS as usize * 8]);
    create("log", &[]);
    let mut run = stage.refit(&["run", "--on", "0", "--movable", "--"]);
    let run = run.arg(program).arg(&mount).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut program = Program(run.spawn().expect("it starts"));
    let process = program.0.id().to_string();

    // No file is kept open while a command is started.
    let open = |name: &str| File::open(mount.join(name)).expect("a file");
    let ask = |round: u64| {
        let file = File::options().write(true).open(mount.join("question")).expect("a file");
        file.write_all_at(&round.to_ne_bytes(), 0).expect("written");
    };
    let server = serving.child.id().to_string();
    for round in 1..=ROUNDS {
        ask(round);
        let to = if round % 2 == 0 { "shared" } else { "partitioned" };
        for file in ["fcm:/question", "fcm:/answer"] {
            let (code, _, said) = stage.run(&["--instance", &server, "swap", file, to]);
            assert_eq!(code, 0, "{said}");
        }
        until("the answer", || word(&open("answer"), 0) == round);
        let answer = open("answer");
        let words: Vec<u64> = (0..WORDS).map(|number| word(&answer, number)).collect();
        let expected: Vec<u64> = (1..=WORDS).map(|number| number * round).collect();
        assert_eq!(words, expected);
    }
    ask(u64::MAX);
    let ended = program.0.wait().expect("it ends");
    assert!(ended.success(), "{ended}");
    let log = fs::read(mount.join("log")).expect("a file");
    let expected: Vec<u8> = (1..=ROUNDS).flat_map(u64::to_ne_bytes).collect();
    assert_eq!(log, expected);

    let (_, shown, said) = stage.run(&["--json", "show", &process]);
    let shown: Value = serde_json::from_str(&shown).expect(&said);
    let (here, away) = (count(&shown, "files", PREAD), count(&shown, "calls", PREAD));
    // The first call may be made before the thread's memory is there.
    assert!(here >= ROUNDS && away <= 2, "{here} there, {away} by the shadow");
    // Otherwise the mount would be written to twice.
    assert_eq!((count(&shown, "files", PWRITE), count(&shown, "calls", PWRITE)), (0, 2 * ROUNDS));
    let (_, text, _) = stage.run(&["show", &process]);
    assert!(text.contains("pread64, made there"), "{text}");
    let (code, _, said) = stage.run(&["shutdown"]);
    assert_eq!(code, 0, "{said}");
    stage.forget_losses();
}

/// Builds the program with the header.
fn program(stage: &Stage) -> String {
    let (code, header, said) = stage.run(&["header"]);
    assert_eq!((code, said.as_str()), (0, ""));
    fs::write(stage.path("refit_move.h"), header).expect("written");
    build(stage, "mounted", include_str!("mounted.c"))
}
