//! Programs within a memory limit behave as without one: their children, their advice, their ends.

mod stage;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use stage::Stage;
use stage::running::{build, can_limit};

/// The beginning of all programs here.
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
/* Goes through more than there may be, until most of `at` is not in memory; without a limit once. Some pages that are not many are not counted. */
static void push_out(void *at, size_t length) {
    static uint64_t *large;
    static uint64_t round;
    unsigned char *there = malloc(length / PAGE);
    if (!large) large = map(LARGE, MAP_PRIVATE);
    for (size_t left = length; left > length / PAGE / 4; left *= getenv("LIMITED") != 0) {
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

/// Runs a program within 16 MiB, where that is possible: it behaves as without a limit.
fn limited(stage: &Stage, name: &str, body: &str) -> Option<Output> {
    can_limit(stage).then(|| {
        let program = build(stage, name, &format!("{PRELUDE}{body}"));
        compare(stage, name, &program, "16M")
    })
}

/// As [`limited`], for one of the programs of the matrix of moves, within less memory than it
/// touches.
fn limited_as_moved(stage: &Stage, name: &str) {
    if can_limit(stage) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/moves/programs");
        let program = stage.path(name);
        let mut compile = Command::new("cc");
        compile.args(["-std=gnu11", "-O2", "-pthread", "-o"]).arg(&program);
        let built = compile.arg(folder.join(format!("{name}.c"))).status();
        assert!(built.expect("a C compiler").success());
        compare(stage, name, program.to_str().expect("UTF-8"), "1M");
    }
}

fn compare(stage: &Stage, name: &str, program: &str, limit: &str) -> Output {
    let alone = Command::new(program).current_dir(&stage.top).output().expect("it starts");
    assert!(alone.status.success(), "without a limit: {alone:?}");
    let mut command = stage.refit(&["run", "--memory", limit, "--", program]);
    let limited = command.current_dir(&stage.top).env("LIMITED", "1").output().expect("it starts");
    assert_eq!(limited, alone, "{name}");
    limited
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

/// Runs all programs about advice, children and filters of the matrix of moves.
#[test]
fn what_holds_for_programs_that_move_holds_within_a_limit() {
    let stage = Stage::new();
    for name in [
        "memory_advice",
        "memory_advice_for_children",
        "memory_forget",
        "memory_forget_in_fork",
        "memory_stack_is_made_executable",
        "process_exec_by_another_thread",
        "process_filter_of_its_own",
        "process_no_strange_children",
        "regs_old_calls",
    ] {
        limited_as_moved(&stage, name);
    }
}

#[test]
fn a_program_has_no_child_that_it_has_not_made() {
    let stage = Stage::new();
    limited(
        &stage,
        "childless",
        r#"
int main(void) {
    uint64_t *some = map(SMALL, MAP_PRIVATE);
    fill(some, SMALL, 1), push_out(some, SMALL);
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    FILE *file = fopen(path, "r");
    if (!file) return 2;
    if (fgets(text, sizeof text, file)) printf("children: %s\n", text);
    pid_t none = waitpid(-1, 0, WNOHANG | __WALL);
    printf("%d, %s\n", none, none < 0 ? strerror(errno) : "none has ended");
    pid_t child = fork();
    if (!child) _exit(wrong(some, SMALL, 1) != 0);
    int status, count = 0;
    alarm(50);
    while (waitpid(-1, &status, __WALL) > 0) printf("ended: %x\n", status), count++;
    printf("%d, then %s\n", count, strerror(errno));
    return 0;
}
"#,
    );
}

#[test]
fn a_task_that_is_not_to_be_traced_is_followed_all_the_same() {
    let stage = Stage::new();
    limited(
        &stage,
        "untraced",
        r#"
struct arguments { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; };
static int child(uint64_t *some) {
    char line[200];
    int traced = 0, bad = wrong(some, SMALL, 1) != 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file)) sscanf(line, "TracerPid: %d", &traced);
    fill(some, SMALL, 2);
    bad |= (wrong(some, SMALL, 2) != 0) << 1;
    return bad | (getenv("LIMITED") && !traced) << 2;
}
int main(void) {
    uint64_t *some = map(SMALL, MAP_PRIVATE);
    fill(some, SMALL, 1), push_out(some, SMALL);
    pid_t one = syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0);
    if (!one) _exit(child(some));
    struct arguments how = {.flags = CLONE_UNTRACED, .exit_signal = SIGCHLD};
    pid_t other = syscall(SYS_clone3, &how, sizeof how);
    if (!other) _exit(child(some));
    printf("%x %x %ld\n", ended(one), ended(other), wrong(some, SMALL, 1));
    return 0;
}
"#,
    );
}

/// `docs/guide/limit.md` explains why `/proc/self/mem` cannot wait for pages.
#[test]
fn what_a_program_reads_of_its_memory_from_outside_is_right_or_refused() {
    let stage = Stage::new();
    limited(
        &stage,
        "looks",
        r#"
#include <fcntl.h>
#include <sys/uio.h>
int main(void) {
    uint64_t *some = map(SMALL, MAP_PRIVATE), read;
    fill(some, SMALL, 1), push_out(some, SMALL);
    int mem = open("/proc/self/mem", O_RDONLY);
    long bad = 0, others = 0, refused = 0;
    for (size_t at = 0; at < SMALL / 8; at += PAGE / 8) {
        uint64_t right = (at + 1) * 0x9e3779b97f4a7c15ul ^ 1;
        ssize_t size = pread(mem, &read, 8, (off_t)(some + at));
        if (size == 8) bad += read != right;
        else others += size != -1 || errno != EIO, refused++;
    }
    struct iovec here = {&read, 8}, there = {some, 8};
    push_out(some, SMALL);
    for (size_t at = 0; at < SMALL / 8; at += PAGE / 8) {
        there.iov_base = some + at;
        bad += process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 8 || read != ((at + 1) * 0x9e3779b97f4a7c15ul ^ 1);
    }
    if (getenv("LIMITED") && !refused) printf("the kernel waits for pages: say so in docs/guide/limit.md\n");
    printf("%ld wrong, %ld other errors, %ld changed\n", bad, others, wrong(some, SMALL, 1));
    return 0;
}
"#,
    );
}

/// Runs only where core images are written as files to the directory.
#[test]
fn an_image_of_a_program_has_all_of_its_memory() {
    let stage = Stage::new();
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !pattern.starts_with("core") || !can_limit(&stage) {
        println!("skipped: images go to {pattern}");
        return;
    }
    let body = r#"
#include <sys/resource.h>
int main(void) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_CORE, &all);
    uint64_t *some = map(SMALL, MAP_PRIVATE);
    fill(some, SMALL, 7), push_out(some, SMALL);
    abort();
}
"#;
    let program = build(&stage, "dumped", &format!("{PRELUDE}{body}"));
    let mut command = stage.refit(&["run", "--memory", "16M", "--", &program]);
    let ended = command.current_dir(&stage.top).env("LIMITED", "1").output().expect("it starts");
    assert!(ended.status.core_dumped(), "{ended:?}");
    let name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("core");
    let all = std::fs::read_dir(&stage.top).expect("a folder").flatten();
    let image = all.into_iter().find(name).expect("an image");
    let image = std::fs::read(image.path()).expect("it is readable");
    let word = |at: u64| ((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 7).to_ne_bytes();
    // One word of each of the 512 pages.
    let pages: Vec<[u8; 8]> = (0..512).map(|page| word(512 * page)).collect();
    let there = |page: &&[u8; 8]| image.chunks_exact(8).any(|word| word == *page);
    assert_eq!(pages.iter().filter(there).count(), 512);
}

#[test]
fn ignored_signals_end_no_wait() {
    let stage = Stage::new();
    let body = r#"
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
static void nothing(int signal) { (void)signal; }
static int waits(int how) {
    struct timespec limit = {0, 300000000};
    struct timeval time = {0, 300000};
    struct epoll_event event;
    struct sembuf take = {0, -1, 0};
    sigset_t set;
    int pair[2], answer, number, epoll = epoll_create1(EPOLL_CLOEXEC);
    char byte;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    switch (how) {
    case 0: answer = epoll_wait(epoll, &event, 1, 300), number = errno; break;
    case 1: answer = sigtimedwait(&set, 0, &limit), number = errno; break;
    case 2:
        number = semget(IPC_PRIVATE, 1, 0600), answer = semtimedop(number, &take, 1, &limit), how = errno;
        semctl(number, 0, IPC_RMID), number = how;
        break;
    default:
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
        answer = recv(pair[0], &byte, 1, 0), number = errno;
        close(pair[0]), close(pair[1]);
    }
    close(epoll);
    return answer < 0 ? number : 0;
}
int main(void) {
    int signals[] = {SIGCHLD, SIGWINCH, SIGUSR1, SIGALRM};
    signal(SIGUSR1, SIG_IGN);
    for (int i = 0; i < 4; i++)
        for (int how = 0; how < 4; how++) {
            struct sigaction handled = {.sa_handler = nothing, .sa_flags = SA_RESTART};
            if (signals[i] == SIGALRM) sigaction(SIGALRM, &handled, 0);
            pid_t own = getpid(), child = fork();
            if (!child) {
                /* Again and again, and longer than the wait. */
                for (int time = 0; time < 8; time++) usleep(60000), signals[i] == SIGCHLD || kill(own, signals[i]);
                _exit(0);
            }
            struct timespec before, behind;
            clock_gettime(CLOCK_MONOTONIC, &before);
            int number = waits(how);
            clock_gettime(CLOCK_MONOTONIC, &behind);
            long long took = (behind.tv_sec - before.tv_sec) * 1000000000ll + behind.tv_nsec - before.tv_nsec;
            printf("%d %d: %s%s\n", i, how, number ? strerror(number) : "over", number != EINTR && took < 200000000 ? ", too soon" : "");
            while (waitpid(child, 0, 0) < 0) ;
        }
    return 0;
}
"#;
    let program = build(&stage, "ignores", &format!("{PRELUDE}{body}"));
    let alone = Command::new(&program).output().expect("it starts");
    let followed = stage.refit(&["run", "--", &program]).output().expect("it starts");
    assert!(alone.status.success(), "{alone:?}");
    assert_eq!(followed, alone);
}
