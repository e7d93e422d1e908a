//! Tests of threads at two instances that write alternately to the same pages, where pages move.

use std::io::Read;
use std::process::Stdio;

use serde_json::Value;

use crate::failures::Two;
use crate::stage::Stage;
use crate::stage::running::{build, until};

/// A program whose two threads write to the same pages, first by turns of their own, however the
/// host schedules them, until they are told to end; then both at once. It prints whether a count is
/// lost.
const WRITES: &str = r#"#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
enum { PAGES = 400, WORDS = 512, BATCH = 100, AT_ONCE = 20000 };
static _Alignas(4096) uint64_t words[PAGES * WORDS];
static _Alignas(4096) volatile int over;
static _Alignas(4096) uintptr_t turn;
static void add(uint64_t word) { __atomic_fetch_add(&words[word], 1, __ATOMIC_RELAXED); }
static void *count(void *who) {
    uintptr_t own = (uintptr_t)who, counted = 0;
    for (; !over; __atomic_store_n(&turn, !own, __ATOMIC_RELEASE)) {
        while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != own)
            if (over) goto at_once; else sched_yield();
        for (int i = 0; i < BATCH; i++, counted++) add(i * 37 % PAGES * WORDS + own);
    }
at_once:;
    uint64_t state = own * 77 + 1;
    for (int i = 0; i < AT_ONCE; i++, counted++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        add(state % (PAGES * WORDS));
    }
    return (void *)counted;
}
int main(void) {
    pthread_t threads[2];
    for (uintptr_t one = 0; one < 2; one++) pthread_create(&threads[one], 0, count, (void *)one);
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
