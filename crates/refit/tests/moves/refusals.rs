//! Tests of programs that cannot be moved, and of processes that are no instances: one line reports
//! that, and everything continues.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::{fs, thread};

use rustix::process::{Resource, Rlimit, prlimit};

use crate::failures::Two;
use crate::stage::Stage;
use crate::stage::running::until;

#[test]
fn what_is_not_there_is_not_moved() {
    let two = Two::boot(None);
    let counting = two.count("one", &["--movable"]);
    let plain = two.count("plain", &[]);
    let (id, other) = (counting.id(), plain.id());
    let refused = |arguments: &[&str], says: &str| {
        let (code, said, complained) = two.stage.run(arguments);
        assert_eq!((code, said.as_str()), (1, ""), "{arguments:?}");
        assert_eq!(complained, format!("refit: {says}\n"), "{arguments:?}");
    };
    let remedy = "list instances with `refit instances`";
    refused(&["move", &id, "7"], &format!("move process {id}: there is no instance 7; {remedy}"));
    let why = "no such process; list processes under refit with `refit ps`";
    refused(&["move", "4194304", "1"], &format!("move 4194304: {why}"));
    let why = "the process does not run under refit; list those that do with `refit ps`, or start \
        a program with `refit run -- COMMAND`";
    refused(&["move", "1", "1"], &format!("move 1: {why}"));
    let why = "the program has no thread 1; list its threads with `ls /proc/PID/task`";
    refused(&["move", &format!("{id}/1"), "1"], &format!("move thread 1 of process {id}: {why}"));
    let why = "it is not movable: it was not started by `refit run --movable`; start it with \
        `refit run --on 0 --movable -- COMMAND`";
    refused(&["move", &other, "1"], &format!("move process {other}: {why}"));
    refused(
        &["run", "--on", "7", "--", "true"],
        "run on 7: no running instance has this number; list instances with `refit instances`, or start \
        some with `refit boot --instances 2`",
    );
    let (code, _, said) = two.stage.run(&["move", "x", "1"]);
    assert!(code == 2 && said.contains("`x` is not a process or thread ID"), "{said}");
    counting.goes_on();
    two.moved(&counting, "1").expect("it can be moved all the same");
    counting.goes_on();
    plain.goes_on();
}

#[test]
fn an_instance_of_another_version_is_not_joined() {
    let stage = Stage::new();
    let sockets = stage.path("sockets");
    fs::create_dir(&sockets).expect("made");
    fs::set_permissions(&sockets, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("ours");
    let place = sockets.join("7.kernel");
    let listener = UnixListener::bind(&place).expect("bound");
    let answer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it comes");
        let mut hello = [0; 64];
        stream.read_exact(&mut hello).expect("it says hello");
        // The same, except for the version and the number.
        hello[8..12].copy_from_slice(&[99, 0, 7, 0]);
        stream.write_all(&hello).expect("heard");
        // The instance reports that it refuses, and the reason.
        let mut verdict = [0];
        stream.read_exact(&mut verdict).expect("it says so");
        stream.write_all(&[2]).expect("heard");
        verdict
    });
    let mut boot = stage.refit(&["boot", "--instances", "1"]);
    let output = boot.stdin(Stdio::null()).output().expect("it starts");
    assert_eq!(answer.join().expect("no panic"), [2]);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    let why = "it speaks version 99 of the messages, this instance version 1; run the same refit";
    let remedy = "see `refit doctor` for what this host permits";
    assert_eq!(said, format!("refit: boot instance 0: {}: {why}; {remedy}\n", place.display()));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_is_no_message_harms_nobody() {
    let two = Two::boot(None);
    let counting = two.count("one", &["--movable"]);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0xff; 4096], b"refitmsg"] {
        let path = two.stage.path("sockets").join("0.kernel");
        let mut stream = UnixStream::connect(path).expect("it is there");
        // The instance may have hung up already.
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let refused = "refit: instance 0 refused a connection (";
    until("four lines", || two.lines(refused) == 4);
    two.moved(&counting, "1").expect("there");
    two.moved(&counting, "0").expect("back");
    counting.goes_on();
    two.says(refused);
}

/// The last requester succeeds, and the others are told so.
#[test]
fn a_move_during_a_move_is_done_or_said_not_to_be() {
    let two = Two::boot(None);
    let counting = two.count("one", &["--movable"]);
    let id = counting.id();
    let all: Vec<_> = thread::scope(|scope| {
        let (two, id) = (&two, &id);
        let moves = (0..40).map(|turn: u32| {
            let to = (turn % 2).to_string();
            scope.spawn(move || (to.clone(), two.stage.run(&["move", id, &to])))
        });
        moves.collect::<Vec<_>>().into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    for (to, (code, said, complained)) in all {
        let other = if to == "0" { "1" } else { "0" };
        let since = format!(
            "refit: move process {id}: a later request moves it to instance {other}; it continues where it was; try again\n"
        );
        let done = code == 0 && complained.is_empty();
        assert!(said.is_empty() && (done || code == 1 && complained == since), "{complained}");
    }
    counting.goes_on();
    two.moved(&counting, "1").expect("there");
    counting.goes_on();
}

#[test]
fn an_instance_that_has_no_memory_left_refuses() {
    let two = Two::boot(None);
    let counting = two.count("one", &["--movable"]);
    let instance = two.instance(1);
    let pages = fs::read_to_string(format!("/proc/{}/statm", instance.as_raw_nonzero()));
    let pages = pages.expect("it runs").split(' ').next().expect("a number").parse::<u64>();
    // Not enough even for the stack of a thread.
    let none = Rlimit { current: Some(pages.expect("a number") * 4096 + (1 << 19)), maximum: None };
    let before = prlimit(Some(instance), Resource::As, none).expect("it is ours");
    let why = two.moved(&counting, "1").expect_err("it has no memory");
    let begins = format!("refit: move process {}: ", counting.id());
    assert!(why.starts_with(&begins) && why.lines().count() == 1, "{why}");
    assert!(why.ends_with("; it continues where it was; try again\n"), "{why}");
    counting.goes_on();
    prlimit(Some(instance), Resource::As, before).expect("it runs on");
    two.moved(&counting, "1").expect("there");
    counting.goes_on();
}
