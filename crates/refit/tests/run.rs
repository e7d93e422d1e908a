//! Tests of `refit run`: programs behave as without it, and their trees are known and end with
//! their instance.

mod stage;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use stage::Stage;
use stage::running::{Running, build, until};

fn finish(command: &mut Command, input: &str) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // Not all commands read their input.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

/// Asserts that the output and exit status of a command are the same under an instance; returns the
/// output.
fn same(stage: &Stage, command: &[&str], input: &str) -> String {
    let plain = finish(Command::new(command[0]).args(&command[1..]), input);
    let run = finish(stage.refit(&["run", "--"]).args(command), input);
    assert_eq!(run, plain, "{command:?}");
    String::from_utf8_lossy(&plain.stdout).into_owned()
}

/// Returns the processes of all trees from `refit ps`: instance, number, command.
fn listed(stage: &Stage) -> Vec<(u64, u64, String)> {
    let (_, stdout, _) = stage.run(&["--json", "ps"]);
    let parse = |line| {
        let one: serde_json::Value = serde_json::from_str(line).expect("a JSON object");
        let number = |name: &str| one[name].as_u64().expect("a number");
        (number("instance"), number("pid"), one["command"].as_str().expect("a text").to_owned())
    };
    stdout.lines().map(parse).collect()
}

fn signal(process: u64, which: Signal) {
    let process = Pid::from_raw(i32::try_from(process).expect("a number")).expect("not 0");
    kill_process(process, which).expect("it is there");
}

#[test]
fn programs_say_and_end_as_without() {
    let stage = Stage::new();
    let script = stage.path("a script");
    fs::write(&script, "#!/bin/sh -u\necho \"$0: $# $2\"; cat; exit 3\n").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
    let script = script.to_str().expect("UTF-8");
    assert_eq!(same(&stage, &["true"], ""), "");
    same(&stage, &["sh", "-c", "echo out; echo err >&2; exit 7"], "");
    assert!(same(&stage, &[script, "a b", "", "*"], "what it reads\n").ends_with("reads\n"));
    same(&stage, &["sh", "-c", "kill -TERM $$"], "");
    same(&stage, &["sh", "-c", "kill -SEGV $$"], "");
    same(&stage, &["sh", "-c", "umask; pwd; ulimit -n; echo $HOME; exec cat"], "in\n");
    same(&stage, &["bash", "-c", "ls /proc/self/fd; ps -o pgid=,sid= -p $$ | wc -w"], "");
    same(
        &stage,
        &["bash", "-c", "for i in $(seq 300); do /bin/true; done; seq 100000 | md5sum"],
        "",
    );
    same(
        &stage,
        &["bash", "-c", "trap 'echo $((++n))' USR1; for i in 1 2 3; do kill -USR1 $$; done"],
        "",
    );
    same(&stage, &["sh", "-c", "exec sh -c 'exec sh -c \"exit 9\"'"], "");
}

#[test]
fn stops_of_job_control_are_stops() {
    let stage = Stage::new();
    let script = "set -m; sleep 1000 & kill -STOP $!; wait $!; echo $?; kill -CONT $!; kill $!; \
        until wait $!; [ $? = 143 ]; do :; done; echo gone";
    let run = stage.refit(&["run", "--", "bash", "-c", script]).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&run.stdout), "147\ngone\n");

    let sleeps = Running::start(&stage, &[], &["sleep", "1000"], "sleep");
    let id = Pid::from_child(&sleeps.0);
    kill_process(id, Signal::STOP).expect("it is there");
    let (_, stopped) = waitpid(Some(id), WaitOptions::UNTRACED).expect("ours").expect("a stop");
    assert!(stopped.stopped(), "{stopped:?}");
    kill_process(id, Signal::CONT).expect("it is there");
    let (_, on) = waitpid(Some(id), WaitOptions::CONTINUED).expect("ours").expect("an answer");
    assert!(on.continued(), "{on:?}");
    kill_process(id, Signal::TERM).expect("it is there");
    let (_, end) = waitpid(Some(id), WaitOptions::empty()).expect("ours").expect("its end");
    assert_eq!(end.terminating_signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn threads_and_processes_of_all_kinds_are_followed() {
    let stage = Stage::new();
    // A thread other than the first executes another program, while the others wait.
    let exec = build(
        &stage,
        "exec",
        r#"#include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static void *wait_(void *p) { for (;;) pause(); }
        static void *exec_(void *p) { execl("/bin/echo", "echo", "from a thread", (char *)0); return p; }
        int main(void) {
            pthread_t t;
            for (int i = 0; i < 20; i++) pthread_create(&t, 0, i == 10 ? exec_ : wait_, 0);
            for (;;) pause();
        }"#,
    );
    assert_eq!(same(&stage, &[&exec], ""), "from a thread\n");
    let python = "
import multiprocessing, os, signal, subprocess, threading
def square(n): return n * n
with multiprocessing.Pool(4) as pool: print(sum(pool.map(square, range(1000))))
threads = [threading.Thread(target=square, args=(n,)) for n in range(50)]
[t.start() for t in threads]; [t.join() for t in threads]
print(subprocess.run(['sh', '-c', 'exit 5']).returncode)
got = []
signal.signal(signal.SIGALRM, lambda *a: got.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while len(got) < 50: pass
signal.setitimer(signal.ITIMER_REAL, 0)
pid = os.fork()
if pid == 0: os.abort()
print(os.waitpid(pid, 0)[1], len(got) >= 50)
";
    assert_eq!(same(&stage, &["python3", "-c", python], ""), "332833500\n5\n6 True\n");
    let makefile = stage.path("Makefile");
    fs::write(&makefile, "all: $(shell seq 40)\n$(shell seq 40):\n\t@echo made $@ >> $(OUT)\n")
        .expect("written");
    let out = stage.path("made");
    let (file, out_is) = (makefile.to_str().expect("UTF-8"), format!("OUT={}", out.display()));
    same(&stage, &["make", "-s", "-j4", "-f", file, &out_is], "");
    assert_eq!(fs::read_to_string(out).expect("made").lines().count(), 80);
}

#[test]
fn what_cannot_be_run_is_told_as_env_tells_it() {
    let stage = Stage::new();
    for (command, code) in
        [("/no/such/program", 127), ("no-such-program", 127), ("/etc/passwd", 126)]
    {
        let (got, stdout, stderr) = stage.run(&["run", "--", command, "argument"]);
        assert_eq!((got, &*stdout), (code, ""), "{command}: {stderr}");
        let said = format!("refit: run {command}: ");
        assert!(stderr.starts_with(&said) && stderr.lines().count() == 1, "{stderr}");
    }
    let (code, ..) = stage.run(&["run"]);
    assert_eq!(code, 2);
    until("the end of their instances", || stage.sockets().is_empty());
}

#[test]
fn trees_are_listed_and_leave_nothing() {
    let stage = Stage::new();
    let script = "sleep 1000 & setsid sleep 1001 & wait";
    let mut shell = Running::start(&stage, &[], &["bash", "-c", script], "bash");
    let mut all = Vec::new();
    until("three processes", || {
        all = listed(&stage);
        let programs: Vec<_> = all.iter().map(|(.., command)| command.as_str()).collect();
        programs.contains(&"sleep 1000") && programs.contains(&"sleep 1001")
    });
    assert!(all.contains(&(all[0].0, shell.id(), format!("bash -c {script}"))), "{all:?}");
    let (code, text, _) = stage.run(&["ps"]);
    assert_eq!((code, text.lines().count()), (0, 4), "{text}");
    // The program ends; its remaining processes run on, and its instance with them.
    signal(shell.id(), Signal::KILL);
    assert_eq!(shell.0.wait().expect("ours").signal(), Some(9));
    until("two processes", || listed(&stage).len() == 2);
    for (_, process, _) in listed(&stage) {
        signal(process, Signal::TERM);
    }
    until("the end of the instance", || stage.sockets().is_empty());
}

#[test]
fn all_ends_with_its_instance() {
    for how in [Signal::KILL, Signal::TERM] {
        let stage = Stage::new();
        let mut shell =
            Running::start(&stage, &[], &["bash", "-c", "setsid sleep 1000 & wait"], "bash");
        until("two processes", || listed(&stage).iter().any(|one| one.2 == "sleep 1000"));
        let all = listed(&stage);
        signal(all[0].0, how);
        assert_eq!(shell.0.wait().expect("ours").signal(), Some(9), "{how:?}");
        let there = |process: u64| {
            let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            Path::new(&format!("/proc/{process}")).exists() && !state.contains(") Z")
        };
        until("their ends", || !all.iter().any(|one| there(one.1)));
    }
}

/// A program that maps the file named in its input, adds up its words, writes one, and continues on
/// command, until its input ends.
const MAPS: &str = r#"#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
int main(int argc, char **argv) {
    struct stat st;
    char line[16];
    int fd = open(argv[1], O_RDWR);
    if (fd < 0 || fstat(fd, &st))
        return 1;
    volatile uint64_t *all = mmap(0, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (uint64_t round = 1; fgets(line, sizeof line, stdin); round++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < st.st_size / 8; i++)
            sum += all[i];
        all[0] = round;
        if (msync((void *)all, st.st_size, MS_SYNC))
            return 2;
        printf("%llu\n", (unsigned long long)sum);
        fflush(stdout);
        madvise((void *)all, st.st_size, MADV_DONTNEED);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    return 0;
}
"#;

#[test]
fn a_program_maps_a_file_through_the_cache_that_serves_it_to_all() {
    let stage = Stage::new();
    let Some(_serving) = stage.serve() else { return };
    let path = stage.path("mnt").join("a file");
    fs::write(&path, [1_u64.to_ne_bytes(); 64 * 512].concat()).expect("written");
    let program = build(&stage, "maps", MAPS);
    let mut command = stage.refit(&["run", "--", &program]);
    let mut child = command.arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let child = child.as_mut().expect("it starts");
    let mut lines = child.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(child.stdout.take().expect("a pipe"));
    let cache = "fcm:/a file";
    assert_eq!(stage.run(&["wrap", cache, "count"]).0, 0);
    let calls = |method: &str| {
        let (_, shown, _) = stage.run(&["--json", "show", cache]);
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("one JSON object");
        shown["wrappers"][0]["stats"][method].as_u64().unwrap_or(0)
    };
    for (round, to) in ["partitioned", "sequential", "shared", "partitioned"].iter().enumerate() {
        let before = (calls("read"), calls("write"));
        lines.write_all(b"\n").expect("it reads");
        assert_eq!(stage.run(&["swap", cache, to]).0, 0);
        let mut sum = String::new();
        answers.read_line(&mut sum).expect("it writes");
        // The word that it wrote last is not one any more.
        assert_eq!(sum, format!("{}\n", 64 * 512 - 1 + round.max(1)), "round {round}");
        // The kernel still had the data that was just written.
        assert!(round == 0 || calls("read") > before.0, "round {round}");
        assert!(calls("write") > before.1, "round {round}");
    }
    drop(lines);
    assert!(child.wait().expect("it ends").success());
    let first = fs::read(stage.path("source").join("a file")).expect("written back");
    assert_eq!(first[..8], 4_u64.to_ne_bytes());
}
