//! Tests of programs and places that are refused: in a line with the reason and the remedy, with
//! the program unchanged; and of some that look as if they would be, and are not.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::shell::{Shell, refit, run, text, verified};

const COUNTED: &str = "uprobe:*:counted { count }";

/// The command that runs another one as the user nobody.
const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Copies a program in a process of its own: a concurrent fork of another test would hold a
/// descriptor of ours open for writing, and a file that is open for writing cannot be executed.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().expect("cp").success());
}

/// A folder that every user may access, with a program in it that counts lines, and refit.
struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("permissions");
        let stage = Self { folder };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probe/plain.c");
        let cc = Command::new("cc").args(["-O1", "-o"]).args([&stage.program(), &source]).status();
        assert!(cc.expect("a C compiler").success());
        stage
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("plain")
    }

    /// Starts the program by way of a command.
    fn start(&self, by: &[&str], argument: Option<&str>) -> Plain {
        let mut words: Vec<String> = by.iter().map(|word| (*word).to_owned()).collect();
        words.push(self.program().display().to_string());
        words.extend(argument.map(str::to_owned));
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdin = child.stdin.take().expect("a pipe");
        let mut plain = Plain {
            stdin: Some(stdin),
            stdout: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
        };
        assert_eq!(plain.line(), "0");
        plain
    }

    /// Returns the output of refit when the user nobody runs it.
    fn asked_by_nobody(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let own = self.folder.path().join("refit");
        copy(Path::new(env!("CARGO_BIN_EXE_refit")), &own);
        let output = Command::new(NOBODY[0])
            .args(&NOBODY[1..])
            .arg(own)
            .args(arguments)
            .env("REFIT_CODE_CACHE", "off")
            .output()
            .expect("setpriv");
        (output.status.code(), text(&output.stderr))
    }
}

/// A program that counts lines; ended on drop.
struct Plain {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Plain {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    fn count(&mut self) -> String {
        writeln!(self.stdin.as_mut().expect("a pipe")).expect("it listens");
        self.line()
    }

    fn id(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // The program ends with its input, also if another command has started it.
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Asks for a probe of a process, which is refused for a reason.
fn refused(id: &str, probe: &str, said: &str) {
    let output = run(&["probe", "-p", id, "-e", probe, "--for", "1ms"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{id}: {error}");
    assert!(error.contains(said) && error.lines().count() == 1, "{said}: {error}");
}

/// Watches the lines of a program that is not refused, and leaves it as it was.
fn watched(plain: &mut Plain, before: u32) {
    let id = plain.id();
    watched_as(plain, &id, before);
}

/// Does the same, by another process number.
fn watched_as(plain: &mut Plain, id: &str, before: u32) {
    let mut child = refit(&["--json", "probe", "-p", id, "-e", COUNTED])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let _told = crate::shell::watching(&mut child);
    for number in 1..=5 {
        assert_eq!(plain.count(), (before + number).to_string());
    }
    crate::shell::interrupt(&child);
    let output = child.wait_with_output().expect("refit");
    let counts = text(&output.stdout);
    assert!(output.status.success() && counts.contains("\"count\":5"), "{counts}");
    verified(id);
    assert_eq!(plain.count(), (before + 6).to_string());
}

#[test]
fn a_place_inside_an_instruction() {
    let shell = Shell::start();
    let (said, probe) = ("no instruction begins at", "insn:*:sqlite3_step+0x1 { count }");
    refused(&shell.id(), probe, said);
    refused(&shell.id(), "insn:*:0x1 { count }", "no function is called 0x1");
    verified(&shell.id());
}

#[test]
fn numbers_that_are_no_process() {
    for (id, code, said) in [
        ("0", 1, "there is no process 0"),
        ("4294967295", 1, "there is no process 4294967295"),
        ("4294967296", 2, "4294967296"),
        ("-1", 2, "-1"),
        ("x", 2, "invalid value"),
    ] {
        for command in [
            &["probe", "-e", COUNTED, "-p", id][..],
            &["cover", "-p", id],
            &["repair", "-p", id],
            &["drill", "-p", id, "main"],
        ] {
            let output = run(command);
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{command:?}: {error}");
            assert!(error.contains(said), "{command:?}: {error}");
        }
    }
}

#[test]
fn refit_itself() {
    let script = "exec \"$0\" probe -p $$ -e 'uprobe:*:main { count }'";
    let output =
        Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_refit")]).output().expect("sh");
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("is refit itself"), "{error}");
}

#[test]
fn a_process_of_another_user() {
    let stage = Stage::new();
    let mut plain = stage.start(&[], None);
    if is_root() {
        let (code, error) = stage.asked_by_nobody(&["probe", "-p", &plain.id(), "-e", COUNTED]);
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains("another user's") && error.lines().count() == 1, "{error}");
    } else {
        refused("1", COUNTED, "another user's");
    }
    assert_eq!(plain.count(), "1");
}

#[test]
fn a_program_that_its_user_may_not_read() {
    if !is_root() {
        println!("skipped: only root can be somebody else");
        return;
    }
    let stage = Stage::new();
    fs::set_permissions(stage.program(), Permissions::from_mode(0o711)).expect("permissions");
    let mut plain = stage.start(&NOBODY, None);
    let (code, error) = stage.asked_by_nobody(&["probe", "-p", &plain.id(), "-e", COUNTED]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("unreadable") && error.lines().count() == 1, "{error}");
    // Root is permitted.
    watched(&mut plain, 0);
}

#[test]
fn a_process_that_somebody_traces() {
    let stage = Stage::new();
    let mut plain = stage.start(&[], None);
    let held = refit_sys::trace::Tracee::seize(plain.child.id()).expect("a child of ours");
    refused(&plain.id(), COUNTED, "is traced by process");
    drop(held);
    assert_eq!(plain.count(), "1");
}

#[test]
fn a_program_that_limits_its_system_calls() {
    let stage = Stage::new();
    if !is_root() {
        let mut plain = stage.start(&[], Some("seccomp"));
        refused(&plain.id(), COUNTED, "seccomp");
        assert_eq!(plain.count(), "1");
        // Inspecting a process needs no permission from it.
        return verified(&plain.id());
    }
    let mut plain = stage.start(&NOBODY, Some("seccomp"));
    let (code, error) = stage.asked_by_nobody(&["probe", "-p", &plain.id(), "-e", COUNTED]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("seccomp") && error.lines().count() == 1, "{error}");
    // Root suspends the filters while the process makes calls for refit.
    watched(&mut plain, 0);
    // The calls of snippets are the program's own.
    refused(&plain.id(), "uprobe:*:counted { @[comm] = count() }", "limits its system calls");
    assert_eq!(plain.count(), "7");
}

#[test]
fn a_process_that_has_ended_and_one_of_the_kernel() {
    let mut child = Command::new("true").spawn().expect("true");
    let id = child.id().to_string();
    let stat = format!("/proc/{id}/stat");
    let ends = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&stat).expect("not waited for").contains(") Z ") {
        assert!(Instant::now() < ends, "it does not end");
        std::thread::yield_now();
    }
    refused(&id, COUNTED, "has ended");
    child.wait().expect("its end");
    // Where kernel threads are visible at all, process 2 is one.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") && is_root() {
        refused("2", COUNTED, "is a kernel thread");
    }
}

#[test]
fn a_program_for_32_bits() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("narrow");
    let source = folder.path().join("narrow.s");
    // A program that waits for ever: `pause` is call 29.
    fs::write(&source, ".globl _start\n_start: mov $29, %eax\nint $0x80\njmp _start\n")
        .expect("written");
    let cc = Command::new("cc")
        .args(["-m32", "-nostdlib", "-static", "-o"])
        .args([&path, &source])
        .status()
        .expect("a C compiler");
    assert!(cc.success());
    let Ok(mut child) = Command::new(&path).spawn() else {
        println!("skipped: this kernel runs no 32-bit programs");
        return;
    };
    refused(&child.id().to_string(), COUNTED, "is not 64-bit x86-64 code");
    assert!(child.try_wait().expect("a child").is_none(), "it goes on");
    child.kill().expect("killed");
    child.wait().expect("its end");
    let output = run(&["funcs", "-p", path.to_str().expect("a path"), "*"]);
    assert!(text(&output.stderr).contains("32-bit"), "{}", text(&output.stderr));
}

#[test]
fn a_file_that_was_deleted_or_replaced_is_read_all_the_same() {
    if !is_root() {
        println!("skipped: only root sees a file that has no name");
        return;
    }
    let stage = Stage::new();
    let mut plain = stage.start(&[], None);
    fs::remove_file(stage.program()).expect("removed");
    watched(&mut plain, 0);
    fs::copy("/bin/true", stage.program()).expect("another one");
    watched(&mut plain, 6);
}

#[test]
fn a_process_in_a_container() {
    let stage = Stage::new();
    let container = ["unshare", "--user", "--map-root-user", "--pid", "--mount", "--fork"];
    let can = Command::new(container[0]).args(&container[1..]).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: no containers can be made here");
        return;
    }
    let mut plain = stage.start(&[&container[..], &["--mount-proc"]].concat(), None);
    let id = plain.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let inside = children.expect("a list").trim().to_owned();
    watched_as(&mut plain, &inside, 0);
}
