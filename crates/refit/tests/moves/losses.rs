//! Tests of hosts that end, or fall silent, at any moment: a program with threads or pages there is
//! killed, with a line in the log, and no other program is. No thread waits for a message that will
//! not come.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Signal, kill_process};

use crate::failures::{Counting, Two};
use crate::stage::Stage;
use crate::stage::running::{build, until};

/// A program whose threads are created and joined, and pass words and pages to each other. It
/// writes its progress to a file.
const PASSES: &str = r#"#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define THREADS 4
#define PAGES 16
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t counter, pages[PAGES][512];
static void *pass(void *argument) {
    for (int i = 0; i < 50; i++) {
        pthread_mutex_lock(&mutex);
        pages[counter++ % PAGES][i] += 1;
        pthread_mutex_unlock(&mutex);
    }
    void *some = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(some, 1, 1 << 16);
    munmap(some, 1 << 16);
    free(memset(malloc(3000), 1, 3000));
    return argument;
}
int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    for (uint64_t round = 1;; round++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, pass, 0);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
        pwrite(fd, &round, sizeof round, 0);
    }
}
"#;

/// The number of rounds after the loss that prove that a program does not wait for anything that is
/// lost.
const ENOUGH: u64 = 20;
/// Longer than any operation takes that does not hang.
const LIMIT: Duration = Duration::from_secs(30);

/// Boots a host with one instance.
fn boot(number: &str, silence: &str, arguments: &[&str]) -> Two {
    let stage = Stage::new();
    let boot = ["boot", "--instances", "1", "--number", number, "--silence", silence];
    let (code, said, complained) = stage.run(&[&boot, arguments].concat());
    assert_eq!((code, complained.as_str()), (0, ""), "{said}");
    Two::of(stage)
}

/// Random times until the next event.
struct Moments(u64);

/// Returns a seed, which is different each time; the test prints each moment.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("after 1970").subsec_nanos().into()
}

impl Moments {
    fn next(&mut self) -> Duration {
        // A linear congruential generator, whose upper bits are good enough (Knuth, TAOCP 2,
        // 3.3.4).
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_micros((self.0 >> 33) % 400_000)
    }
}

fn has_moved(two: &Two, passing: &Counting) -> bool {
    let (_, shown, _) = two.stage.run(&["--json", "show", &passing.id()]);
    let shown: serde_json::Value = serde_json::from_str(shown.trim()).unwrap_or_default();
    shown["moves"]["out"]["count"].as_u64().unwrap_or(0) > 0
}

/// Lets one host lose the other, which gets this signal at any moment.
fn loses_a_host_by(signal: Signal, rounds: u64) {
    let rounds = std::env::var("REFIT_MOVES_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(rounds);
    // A stopped instance counts as dead after ten times as long, because its kernel answers.
    let silence = if signal == Signal::STOP { "500ms" } else { "30s" };
    let mut moments = Moments(seed());
    for round in 0..rounds {
        let first = boot("0", silence, &["--listen", "127.0.0.1:0"]);
        let (_, instances, _) = first.stage.run(&["--json", "instances"]);
        let instances: serde_json::Value = serde_json::from_str(instances.trim()).expect("JSON");
        let address = instances["address"].as_str().expect("it listens");
        let second = boot("1", silence, &["--join", address]);
        let program = build(&first.stage, "passes", PASSES);
        let other = first.start(&program, "other", &["--movable"]);
        let how: &[&str] = if round % 2 == 0 { &["--spread"] } else { &["--roam", "10ms"] };
        let mut passing = first.start(&program, "passing", &[&["--movable"], how].concat());
        other.goes_on();
        passing.goes_on();
        until("a move", || has_moved(&first, &passing));
        let moment = moments.next();
        // Any moment is intended.
        thread::sleep(moment);
        let lost = second.instance(1);
        kill_process(lost, signal).expect("it is there");
        let deadline = Instant::now() + LIMIT;
        let line = format!("({}) is killed: ", passing.id());
        // The program may have been at home at that moment, with all of its state.
        let mut since = None;
        let lives = loop {
            if passing.has_ended() {
                break false;
            }
            let now = passing.word();
            if since.is_none() && first.lines(" has lost instance 1: ") == 1 {
                since = Some(now);
            }
            if since.is_some_and(|then| now >= then + ENOUGH) {
                break true;
            }
            let hangs = || format!("{moment:?} after its beginning, {how:?}: {since:?}, {now}");
            assert!(Instant::now() < deadline, "it hangs, {}", hangs());
            // The interval of checks; their results do not depend on it.
            thread::sleep(Duration::from_millis(2));
        };
        let killed = first.lines(&line);
        println!("{moment:?}, {how:?}: {}", if lives { "goes on" } else { "is killed" });
        assert_eq!(killed, usize::from(!lives), "killed with one line, or not at all");
        other.goes_on();
        drop(passing);
        until("its end", || first.stage.run(&["ps"]).1.matches("passes").count() == 1);
        // A stopped instance is not asked to end, and one that has ended no longer has its process
        // number.
        if signal == Signal::STOP {
            kill_process(lost, Signal::KILL).expect("it is there");
        }
        first.says(" has lost instance 1: ");
    }
}

#[test]
fn a_host_that_ends_at_any_moment_takes_with_it_only_who_is_there() {
    loses_a_host_by(Signal::KILL, 3);
}

#[test]
fn a_host_that_falls_silent_at_any_moment_takes_with_it_only_who_is_there() {
    loses_a_host_by(Signal::STOP, 3);
}
