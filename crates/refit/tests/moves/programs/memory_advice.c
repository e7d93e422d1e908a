// Each advice that changes memory, and each way to ask for it wrongly: what the kernel refuses drops nothing, and what it does is done.
#include "check.h"

#include <sys/uio.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define COUNT 16

static uint8_t *plain, *shared, *locked, *hole, *of_file;

static bool is_there(const uint8_t *area, int page) { return area != hole || page != 8; }

static void fill_all(void) {
    uint8_t *all[] = {plain, shared, locked, hole, of_file};
    for (int i = 0; i < 5; i++)
        for (int page = 0; page < COUNT; page++)
            if (is_there(all[i], page))
                memset(all[i] + page * PAGE, 7, PAGE);
}

struct row {
    const char *what;
    uint8_t **area;
    size_t at, length;
    int advice;
};

static const struct row rows[] = {
    {"as it should be", &plain, 4 * PAGE, 2 * PAGE, MADV_DONTNEED},
    {"an address within a page", &plain, 4 * PAGE + 1, PAGE, MADV_DONTNEED},
    {"the same, REMOVE", &plain, 8 * PAGE + 100, PAGE, MADV_REMOVE},
    {"REMOVE of private memory", &plain, 10 * PAGE, PAGE, MADV_REMOVE},
    {"REMOVE of shared memory", &shared, 10 * PAGE, PAGE, MADV_REMOVE},
    {"DONTNEED of shared memory", &shared, 3 * PAGE, PAGE, MADV_DONTNEED},
    {"FREE of shared memory", &shared, 3 * PAGE, PAGE, MADV_FREE},
    {"locked memory", &locked, 3 * PAGE, 2 * PAGE, MADV_DONTNEED},
    {"FREE of locked memory", &locked, 3 * PAGE, 2 * PAGE, MADV_FREE},
    {"locked memory, and it is said so", &locked, 5 * PAGE, PAGE, MADV_DONTNEED_LOCKED},
    {"nothing", &plain, 3 * PAGE, 0, MADV_DONTNEED},
    {"no such advice", &plain, 3 * PAGE, PAGE, 77},
    {"over a hole", &hole, 7 * PAGE, 3 * PAGE, MADV_DONTNEED},
    {"a byte too much", &plain, 3 * PAGE, PAGE + 1, MADV_DONTNEED},
    {"beyond all addresses", &plain, 12 * PAGE, -3ul * PAGE, MADV_DONTNEED},
    {"a length that is too large", &plain, 12 * PAGE, -1ul, MADV_FREE},
    {"FREE of a file's", &of_file, 2 * PAGE, PAGE, MADV_FREE},
    {"REMOVE of a file's", &of_file, 2 * PAGE, PAGE, MADV_REMOVE},
    {"DONTNEED of a file's", &of_file, 2 * PAGE, PAGE, MADV_DONTNEED},
    {"advice that concerns nobody", &plain, 0, COUNT * PAGE, MADV_DONTDUMP},
    {"the same, no huge pages", &plain, 0, COUNT * PAGE, MADV_NOHUGEPAGE},
};
#define ROWS (sizeof rows / sizeof *rows)

// Makes the calls by a descriptor of its own process, or as they are; what came of each row, at first.
static void go_through(bool by_descriptor, int self, char told[ROWS][80], bool first) {
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *row = rows + i;
        uint8_t *area = *row->area;
        fill_all();
        errno = 0;
        struct iovec range = {area + row->at, row->length};
        long answer = by_descriptor ? syscall(SYS_process_madvise, self, &range, 1ul, row->advice, 0)
                                    : syscall(SYS_madvise, area + row->at, row->length, row->advice);
        int number = answer < 0 ? errno : 0, lost = 0;
        for (int page = 0; page < COUNT; page++)
            lost += is_there(area, page) && area[page * PAGE + 9] != 7;
        char now[80];
        snprintf(now, sizeof now, "%ld, error %d, %d pages", answer, number, lost);
        if (first)
            strcpy(told[i], now);
        if (strcmp(told[i], now) != 0) {
            printf("%s: %s, and then %s\n", row->what, told[i], now);
            exit(1);
        }
    }
}

int main(void) {
    static char told[2][ROWS][80];
    int file = open("memory", O_RDWR | O_CREAT | O_TRUNC, 0600), self = syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(file >= 0 && ftruncate(file, COUNT * PAGE) == 0);
    plain = pages(COUNT), locked = pages(COUNT), hole = pages(COUNT);
    shared = mmap(NULL, COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    of_file = mmap(NULL, COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(shared != MAP_FAILED && of_file != MAP_FAILED && mlock(locked, COUNT * PAGE) == 0);
    CHECK(munmap(hole + 8 * PAGE, PAGE) == 0);
    bool first = true;
    REPEAT(3) {
        go_through(false, self, told[0], first);
        // Before Linux 6.13 this is refused for all of these.
        go_through(true, self, told[1], first);
        first = false;
    }
    for (size_t i = 0; i < ROWS; i++)
        printf("%s: %s; in parts %s\n", rows[i].what, told[0][i], told[1][i]);
    return 0;
}
