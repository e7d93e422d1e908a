//! Programs within a limit of memory see what they would see without one: their children, their advice, their ends.

mod stage;

use std::process::{Command, Output};

use stage::Stage;
use stage::running::{build, can_limit};

/// What all the programs here begin with.
const PRELUDE: &str = r#"#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define PAGE 4096ul
#define SMALL (2ul << 20)
#define LARGE (40ul << 20)
static uint64_t *map(size_t length, int kind) {
    void *at = mmap(0, length, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) { perror("mmap"); exit(2); }
    return at;
}
static void fill(uint64_t *at, size_t length, uint64_t seed) {
    for (size_t i = 0; i < length / 8; i++) at[i] = (i + 1) * 0x9e3779b97f4a7c15ul ^ seed;
}
static long wrong(uint64_t *at, size_t length, uint64_t seed) {
    long count = 0;
    for (size_t i = 0; i < length / 8; i++) count += at[i] != ((i + 1) * 0x9e3779b97f4a7c15ul ^ seed);
    return count;
}
static long nonzero(uint64_t *at, size_t length) {
    long count = 0;
    for (size_t i = 0; i < length / 8; i++) count += at[i] != 0;
    return count;
}
/* Goes through more than there may be, until of `at` nothing is in memory; without a limit once. */
static void push_out(void *at, size_t length) {
    static uint64_t *large;
    static uint64_t round;
    unsigned char *there = malloc(length / PAGE);
    if (!large) large = map(LARGE, MAP_PRIVATE);
    for (size_t left = 1; left; left *= getenv("LIMITED") != 0) {
        fill(large, LARGE, ++round);
        if (mincore(at, length, there)) { perror("mincore"); exit(2); }
        for (size_t i = left = 0; i < length / PAGE; i++) left += there[i] & 1;
    }
    free(there);
}
static int ended(pid_t child) {
    int status;
    while (waitpid(child, &status, __WALL) < 0) if (errno != EINTR) return -errno;
    return status;
}
"#;

/// Runs a program within 16 MiB; `None` where that cannot be.
fn limited(stage: &Stage, name: &str, body: &str) -> Option<Output> {
    if !can_limit(stage) {
        return None;
    }
    let program = build(stage, name, &format!("{PRELUDE}{body}"));
    let alone = Command::new(&program).current_dir(&stage.top).output().expect("it starts");
    assert!(alone.status.success(), "without a limit: {alone:?}");
    let mut command = stage.refit(&["run", "--memory", "16M", "--", &program]);
    let limited = command.current_dir(&stage.top).env("LIMITED", "1").output().expect("it starts");
    assert_eq!(limited, alone, "{name}");
    Some(limited)
}

#[test]
fn a_child_has_nothing_of_what_its_parent_keeps_to_itself() {
    let stage = Stage::new();
    limited(
        &stage,
        "keeps",
        r#"
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8
#endif
int main(void) {
    uint64_t *wiped = map(SMALL, MAP_PRIVATE), *alone = map(SMALL, MAP_PRIVATE), *both = map(SMALL, MAP_PRIVATE);
    uint64_t *dropped = mmap(0, SMALL, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
    if (dropped == MAP_FAILED) dropped = map(SMALL, MAP_PRIVATE), madvise(dropped, SMALL, MADV_WIPEONFORK);
    fill(wiped, SMALL, 1), fill(alone, SMALL, 2), fill(both, SMALL, 3), fill(dropped, SMALL, 4);
    if (madvise(wiped, SMALL, MADV_WIPEONFORK) || madvise(alone, SMALL, MADV_DONTFORK)) return 2;
    push_out(wiped, SMALL), push_out(alone, SMALL), push_out(both, SMALL);
    pid_t child = fork();
    if (!child) {
        long bad = nonzero(wiped, SMALL) + nonzero(dropped, SMALL) + wrong(both, SMALL, 3);
        /* What is no more to be wiped is empty all the same. */
        madvise(wiped, SMALL, MADV_KEEPONFORK);
        bad += nonzero(wiped, SMALL);
        uint64_t *again = mmap(alone, SMALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (again != alone) _exit(3);
        fill(again, SMALL / 2, 5), push_out(again, SMALL);
        bad += nonzero(again + SMALL / 16, SMALL / 2) + wrong(again, SMALL / 2, 5);
        /* And so are its own children's. */
        madvise(again, SMALL, MADV_WIPEONFORK);
        pid_t next = fork();
        if (!next) _exit(nonzero(again, SMALL) + nonzero(dropped, SMALL) + wrong(both, SMALL, 3) != 0);
        _exit(bad || ended(next));
    }
    int status = ended(child);
    printf("child %x, own %ld\n", status, wrong(wiped, SMALL, 1) + wrong(alone, SMALL, 2) + wrong(both, SMALL, 3));
    return status;
}
"#,
    );
}
