//! Tests of moves that fail, and of instances that end: a program that cannot continue is killed
//! with a clear reason, and no other program is.

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::matrix::Matrix;
use crate::modes::Choice;
use crate::stage::Stage;
use crate::stage::running::{build, until};

/// A program that counts in a file of its own, which others can read, and that ends with its input.
const COUNTS: &str = r#"#include <stdio.h>
#include <stdint.h>
#include <fcntl.h>
#include <unistd.h>
#include <sys/mman.h>
int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096)) return 1;
    volatile uint64_t *word = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    while (!word[1]) word[0]++;
    printf("counted\n");
    return 0;
}
"#;

/// Two instances, with programs that run at the first of them.
pub(crate) struct Two {
    pub(crate) stage: Stage,
    counts: String,
}

impl Two {
    pub(crate) fn boot(fault: Option<&str>) -> Self {
        let stage = Stage::new();
        let counts = build(&stage, "counts", COUNTS);
        let mut boot = stage.refit(&["boot", "--instances", "2"]);
        if let Some(step) = fault {
            boot.env("REFIT_MOVE_FAULT", step);
        }
        let booted = boot.stdin(Stdio::null()).output().expect("it starts");
        assert!(booted.status.success(), "{booted:?}");
        Self { stage, counts }
    }

    /// Uses instances that exist already.
    pub(crate) fn of(stage: Stage) -> Self {
        let counts = build(&stage, "counts", COUNTS);
        Self { stage, counts }
    }

    /// Starts a program that counts.
    pub(crate) fn count(&self, name: &str, options: &[&str]) -> Counting {
        self.start(&self.counts, name, options)
    }

    /// Starts another program that counts in the same way.
    pub(crate) fn start(&self, program: &str, name: &str, options: &[&str]) -> Counting {
        let file = self.stage.path(name);
        let mut refit = self.stage.refit(&["run", "--on", "0"]);
        refit.args(options).args(["--", program]).arg(&file);
        let refit = refit.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let counting = Counting { child: refit.spawn().expect("it starts"), file };
        counting.goes_on();
        counting
    }

    /// Moves a program.
    pub(crate) fn moved(&self, counting: &Counting, to: &str) -> Result<(), String> {
        let (code, _, said) = self.stage.run(&["move", &counting.id(), to]);
        if code == 0 { Ok(()) } else { Err(said) }
    }

    /// Returns the process of an instance.
    pub(crate) fn instance(&self, number: u64) -> Pid {
        let (code, listed, said) = self.stage.run(&["--json", "instances"]);
        assert_eq!(code, 0, "{said}");
        let of = |line: &str| {
            let one: serde_json::Value = serde_json::from_str(line).expect("JSON");
            (one["number"] == number).then(|| one["instance"].as_i64().expect("a number"))
        };
        let found = listed.lines().find_map(of).expect("an instance");
        Pid::from_raw(i32::try_from(found).expect("a process")).expect("a process")
    }

    /// Returns the number of lines about errors in the instances' logs that contain `what`.
    pub(crate) fn lines(&self, what: &str) -> usize {
        let logs = self.stage.sockets().into_iter().filter(|name| name.ends_with(".log"));
        let texts =
            logs.filter_map(|log| fs::read_to_string(self.stage.path("sockets").join(log)).ok());
        texts.map(|text| text.lines().filter(|line| line.contains(what)).count()).sum()
    }

    /// Waits until an instance has logged this error, in one line.
    pub(crate) fn says(&self, what: &str) {
        let path = |log: &String| self.stage.path("sockets").join(log);
        let logs = || self.stage.sockets().into_iter().filter(|name| name.ends_with(".log"));
        let said = |what: &str| {
            let mut texts = logs().filter_map(|log| fs::read_to_string(path(&log)).ok());
            texts.any(|text| text.lines().any(|line| line.contains(what)))
        };
        until(what, || said(what));
        // The other lines are about the same error.
        logs().for_each(|log| fs::remove_file(path(&log)).expect("it was there"));
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        let mut shutdown = self.stage.refit(&["shutdown", "--kill"]);
        let _ = shutdown.stdin(Stdio::null()).output();
        self.stage.forget_losses();
    }
}

/// A program that counts.
pub(crate) struct Counting {
    child: Child,
    file: std::path::PathBuf,
}

impl Counting {
    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// Returns its count.
    pub(crate) fn word(&self) -> u64 {
        let bytes = fs::read(&self.file).unwrap_or_default();
        bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
    }

    /// Waits until its count has increased.
    pub(crate) fn goes_on(&self) {
        let then = self.word();
        until("more", || self.word() > then);
    }

    /// Ends it; returns its output and exit status.
    pub(crate) fn end(mut self) -> Output {
        use std::os::unix::fs::FileExt;
        let file = fs::File::options().write(true).open(&self.file).expect("its file");
        file.write_all_at(&1_u64.to_ne_bytes(), 8).expect("written");
        let child =
            std::mem::replace(&mut self.child, Command::new("true").spawn().expect("it starts"));
        child.wait_with_output().expect("its end")
    }

    /// Returns whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for its end. Returns whether `SIGKILL` ended it.
    pub(crate) fn killed(&mut self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.wait().expect("its end");
        status.signal() == Some(9)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ends_well(counting: Counting) {
    let Output { status, stdout, .. } = counting.end();
    assert!(status.success() && stdout == b"counted\n", "{status:?}");
}

#[test]
fn programs_go_on_where_a_move_fails_at_any_step() {
    let some = "compute_digits compute_queue thread_mutex signal_nested process_fork_and_wait";
    let steps = ["plant", "leave", "replica", "task", "registers", "convert", "map"];
    let mut matrix = Matrix::default();
    for step in steps {
        let choice = Choice::parse(&format!("faults={step} one-host {some}")).expect("words");
        for (mode, hosts) in &choice.cells {
            matrix.fill(mode, *hosts, &choice.programs);
        }
    }
    assert!(matrix.failures.is_empty(), "{matrix}");
}

#[test]
fn a_program_whose_registers_are_lost_is_killed_and_nothing_else() {
    let lost = ["is lost: Back", "cannot be restored: Come"];
    for (step, why) in ["back", "come"].into_iter().zip(lost) {
        let two = Two::boot(Some(step));
        let mut counting = two.count("first", &["--movable"]);
        let other = two.count("other", &[]);
        // Every third one fails.
        for _ in 0..4 {
            let _ = two.moved(&counting, "1");
            let _ = two.moved(&counting, "0");
        }
        assert!(counting.killed(), "{step}");
        let id = counting.id();
        two.says(&format!(
            "refit: counts ({id}) is killed: thread {id} of it {why} fails on purpose"
        ));
        other.goes_on();
        ends_well(other);
    }
}

#[test]
fn a_thread_stays_if_the_instance_ends_that_it_goes_to() {
    let two = Two::boot(Some("arrive"));
    let counting = two.count("first", &["--movable"]);
    let mut refused = String::new();
    for turn in 1..=3 {
        match two.moved(&counting, "1") {
            Ok(()) => two.moved(&counting, "0").expect("back"),
            Err(why) => {
                assert_eq!(turn, 3, "{why}");
                refused = why;
            }
        }
    }
    let said = "instance 1 is lost: its connection has ended; it continues where it was; try again";
    assert_eq!(refused, format!("refit: move process {}: {said}\n", counting.id()));
    two.says("refit: instance 0 has lost instance 1: ");
    counting.goes_on();
    ends_well(counting);
}

#[test]
fn the_end_of_an_instance_kills_whose_threads_it_has_and_nothing_else() {
    let two = Two::boot(None);
    let mut away = two.count("away", &["--movable"]);
    let back = two.count("back", &["--movable"]);
    let other = two.count("other", &[]);
    two.moved(&away, "1").expect("there");
    two.moved(&back, "1").expect("there");
    two.moved(&back, "0").expect("back");
    kill_process(two.instance(1), Signal::KILL).expect("it is there");
    assert!(away.killed());
    two.says(&format!("refit: counts ({}) is killed: instance 1 was lost (", away.id()));
    for one in [back, other] {
        one.goes_on();
        ends_well(one);
    }
}

/// Programs that need a stopped instance wait for it, and nothing is lost.
#[test]
fn an_instance_that_is_stopped_for_a_while_kills_nothing() {
    const TIMES: usize = 20;
    let two = Two::boot(None);
    let there = two.count("there", &["--movable"]);
    let roams = two.count("roams", &["--movable", "--roam", "1ms"]);
    two.moved(&there, "1").expect("there");
    let instance = two.instance(1);
    let id = instance.as_raw_nonzero().get().cast_unsigned();
    for _ in 0..TIMES {
        kill_process(instance, Signal::STOP).expect("it is there");
        until("it stands", || refit_sys::process::stands(id));
        kill_process(instance, Signal::CONT).expect("it is there");
        roams.goes_on();
    }
    two.moved(&there, "0").expect("back");
    for one in [there, roams] {
        one.goes_on();
        ends_well(one);
    }
}
