//! Tests of instances that own little memory: a program that does not fit continues at home, with
//! the same output and exit status, and the requester gets the reason.

use std::process::Stdio;

use serde_json::Value;

use crate::failures::{Counting, Two};
use crate::stage::Stage;
use crate::stage::running::{build, until};

/// A program that reads 8 MiB again and again until it is told to end, and counts the rounds in a
/// file.
const READS: &str = r#"#include <alloca.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096)) return 1;
    volatile uint64_t *word = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    size_t count = SIZE / sizeof(uint64_t);
    volatile uint64_t *all = ALLOCATE(SIZE);
    for (size_t i = 0; i < count; i++) all[i] = i;
    uint64_t sum;
    do {
        sum = 0;
        for (size_t i = 0; i < count; i++) sum += all[i];
        word[0]++;
    } while (!word[1]);
    printf("%" PRIu64 "\n", sum);
    return 0;
}
"#;

/// The maximum use of an instance of 1 MiB: a page more for each thread that waits when it is full.
const MOST: u64 = (1 << 20) + (16 << 12);

/// Boots instances 0 and 1 with these options.
fn boot(of_first: &[&str], of_second: &[&str]) -> Two {
    let stage = Stage::new();
    for (number, options) in [("0", of_first), ("1", of_second)] {
        let mut boot = stage.refit(&["boot", "--instances", "1", "--number", number]);
        let booted = boot.args(options).stdin(Stdio::null()).output().expect("it starts");
        assert!(booted.status.success(), "{booted:?}");
    }
    Two::of(stage)
}

fn json(two: &Two, arguments: &[&str]) -> Vec<Value> {
    let (code, said, complained) = two.stage.run(&[&["--json"], arguments].concat());
    assert_eq!(code, 0, "{complained}");
    said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the bytes that programs that move use at both.
fn used(two: &Two) -> [u64; 2] {
    let all = json(two, &["instances"]);
    [0, 1].map(|one: usize| all[one]["memory"]["used"].as_u64().expect("a number"))
}

/// Returns the number of requests of a program that were refused for lack of memory.
fn wanted(two: &Two, counting: &Counting) -> u64 {
    let shown = json(two, &["show", &counting.id()]);
    shown[0]["moves"]["no_memory"].as_u64().unwrap_or(0)
}

fn reads(two: &Two, name: &str, size: u64, allocate: &str) -> Counting {
    let text = READS.replace("SIZE", &format!("{size}u")).replace("ALLOCATE", allocate);
    let program = build(&two.stage, &format!("reads-{allocate}-{size}"), &text);
    two.start(&program, name, &["--movable"])
}

/// Asserts that it prints the same as without refit.
fn ends_with_sum(counting: Counting, size: u64) {
    let count = size / 8;
    let output = counting.end();
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(said, format!("{}\n", count * (count - 1) / 2));
}

#[test]
fn what_does_not_fit_goes_on_where_it_began() {
    let two = boot(&["--memory", "1M"], &[]);
    let large = reads(&two, "large", 8 << 20, "malloc");
    two.moved(&large, "1").expect("it begins there");
    until("its return", || wanted(&two, &large) > 0);
    large.goes_on();
    let why = "continues where it began as far as needed: instance 0 has no memory left: ";
    until("a line", || two.lines(&format!("({}) {why}", large.id())) == 1);
    assert!(used(&two)[0] <= 1 << 20, "{:?}", used(&two));
    let (_, table, _) = two.stage.run(&["instances"]);
    assert!(table.contains(" of 1 MiB"), "{table}");
    let (_, shown, _) = two.stage.run(&["show", &large.id()]);
    assert!(shown.contains(" for want of memory)"), "{shown}");
    // Other programs have the rest.
    let small = reads(&two, "small", 64 << 10, "malloc");
    two.moved(&small, "1").expect("there");
    until("its memory", || used(&two)[0] >= 64 << 10);
    small.goes_on();
    ends_with_sum(large, 8 << 20);
    ends_with_sum(small, 64 << 10);
    until("all is given back", || used(&two) == [0, 0]);
    two.says(why);
}

#[test]
fn a_thread_whose_stack_does_not_fit_is_refused() {
    let two = boot(&["--memory", "1M"], &[]);
    let deep = reads(&two, "deep", 2 << 20, "alloca");
    let refused = two.moved(&deep, "1").expect_err("there is no memory");
    let begins = format!("refit: move process {}: instance 0 has no memory left: 2", deep.id());
    assert!(refused.starts_with(&begins) && refused.lines().count() == 1, "{refused}");
    let ends = " of its 1024 KiB are used by programs that move; it continues where it was; see \
        the memory of each in `refit instances`\n";
    assert!(refused.ends_with(ends), "{refused}");
    deep.goes_on();
    ends_with_sum(deep, 2 << 20);
    until("all is given back", || used(&two) == [0, 0]);
    two.says("instance 0 has no memory left: ");
}

#[test]
fn pages_that_a_host_has_no_memory_for_are_not_held_there() {
    let moves = ["--pages", "move"];
    let two = boot(&moves, &["--pages", "move", "--memory", "1M"]);
    let large = reads(&two, "large", 8 << 20, "malloc");
    two.moved(&large, "1").expect("it begins there");
    until("its return", || wanted(&two, &large) > 0);
    large.goes_on();
    // The first want is that of a page, or, if the thread has come back at that moment to touch the
    // file, that of its next arrival.
    let why = "as far as needed: instance 1 has no memory left";
    until("a line", || two.lines(&format!("({}) continues where it began {why}", large.id())) == 1);
    let held = used(&two)[1];
    assert!((MOST >> 1..MOST).contains(&held), "{held}");
    // The pages are only read, so they stay.
    let small = two.count("small", &["--movable"]);
    let refused = two.moved(&small, "1").expect_err("there is no memory");
    assert!(refused.contains(": instance 1 has no memory left: 64 KiB are needed, "), "{refused}");
    small.goes_on();
    ends_with_sum(large, 8 << 20);
    until("its memory is given back", || used(&two)[1] == 0);
    two.moved(&small, "1").expect("there is room");
    small.goes_on();
    two.says("instance 1 has no memory left");
}

#[test]
fn sizes_that_are_none_are_refused() {
    let stage = Stage::new();
    for (size, says) in [("1K", "needs at least 1 MiB"), ("much", "is not a size")] {
        let (code, _, complained) = stage.run(&["boot", "--instances", "1", "--memory", size]);
        assert!(code == 2 && complained.contains(says), "{complained}");
    }
}
