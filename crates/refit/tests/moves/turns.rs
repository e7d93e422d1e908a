//! Tests of threads at two instances that write alternately to the same pages, where pages move.

use std::io::Read;
use std::process::Stdio;

use serde_json::Value;

use crate::failures::Two;
use crate::stage::Stage;
use crate::stage::running::{build, until};

/// A program whose two threads count in randomly assigned words until they are told to end, and
/// that prints whether a count is lost.
const WRITES: &str = r#"#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
enum { PAGES = 400, WORDS = 512 };
static _Alignas(4096) uint64_t words[PAGES * WORDS];
static volatile int over;
static void *count(void *seed) {
    uint64_t state = (uintptr_t)seed, counted = 0;
    for (; !over; counted++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        __atomic_fetch_add(&words[state % (PAGES * WORDS)], 1, __ATOMIC_RELAXED);
    }
    return (void *)(uintptr_t)counted;
}
int main(void) {
    pthread_t threads[2];
    for (uintptr_t one = 0; one < 2; one++) pthread_create(&threads[one], 0, count, (void *)(one * 77 + 1));
    char byte;
    if (read(0, &byte, 1) < 0) return 1;
    over = 1;
    uint64_t counted = 0, sum = 0;
    for (int one = 0; one < 2; one++) {
        void *result;
        pthread_join(threads[one], &result);
        counted += (uintptr_t)result;
    }
    for (int word = 0; word < PAGES * WORDS; word++) sum += words[word];
    printf("%s\n", sum == counted && sum ? "all counted" : "some are lost");
}
"#;

#[test]
fn who_writes_here_and_there_has_turns_and_loses_nothing() {
    let stage = Stage::new();
    let writes = build(&stage, "writes", WRITES);
    let mut boot = stage.refit(&["boot", "--instances", "2", "--pages", "move"]);
    let booted = boot.stdin(Stdio::null()).output().expect("it starts");
    assert!(booted.status.success(), "{booted:?}");
    let two = Two::of(stage);
    let mut refit = two.stage.refit(&["run", "--on", "0", "--movable", "--spread", "--", &writes]);
    let refit = refit.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = refit.spawn().expect("it starts");
    let id = child.id().to_string();
    let turns = || {
        let (_, shown, _) = two.stage.run(&["--json", "show", &id]);
        let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
        shown["moves"]["pages"]["turns"].as_u64().unwrap_or(0)
    };
    until("to have had turns, both of them", || turns() > 3);
    drop(child.stdin.take());
    let mut said = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("UTF-8");
    assert_eq!((&said[..], child.wait().expect("its end").code()), ("all counted\n", Some(0)));
}
