// What is said of memory and children holds, whether it is said before or after the memory is touched: wiped, not copied, kept; and advice for dumps stays.
#include "check.h"

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8
#endif
#define COUNT 4

static bool filled(const uint8_t *area, uint8_t with) {
    for (int i = 0; i < COUNT * PAGE; i += 64)
        if (area[i] != with)
            return false;
    return true;
}

// Whether what the kernel says of the mapping at an address has this word of two letters.
static bool has(const void *at, const char *word) {
    char line[512], name[8];
    bool within = false, found = false;
    FILE *all = fopen("/proc/self/smaps", "r");
    CHECK(all != NULL);
    snprintf(name, sizeof name, " %s", word);
    while (fgets(line, sizeof line, all)) {
        unsigned long begin, end;
        char access;
        if (sscanf(line, "%lx-%lx %c", &begin, &end, &access) == 3 && strchr("r-", access))
            within = begin <= (uintptr_t)at && (uintptr_t)at < end;
        if (within && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, name) != NULL;
    }
    fclose(all);
    return found;
}

static int child_of(uint8_t *wiped, uint8_t *kept, uint8_t *not_copied, uint8_t *dropped, uint8_t *dumped) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int wrong = filled(wiped, 0) ? 0 : 1;
        wrong |= filled(kept, 7) ? 0 : 2;
        wrong |= filled(dropped, 0) ? 0 : 4;
        wrong |= has(dumped, "dd") ? 0 : 8;
        // Nothing is there.
        int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        wrong |= mmap(not_copied, COUNT * PAGE, PROT_NONE, kind, -1, 0) == not_copied ? 0 : 16;
        // And what it says itself holds for its own.
        memset(wiped, 9, COUNT * PAGE);
        pid_t next = fork();
        if (next == 0)
            _exit(!filled(wiped, 0));
        int status;
        CHECK(waitpid(next, &status, 0) == next);
        _exit(status == 0 ? wrong : wrong | 32);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(void) {
    uint8_t *wiped = pages(COUNT), *kept = pages(COUNT), *not_copied = pages(COUNT), *dumped = pages(COUNT), *small = pages(COUNT);
    uint8_t *dropped = mmap(NULL, COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
    if (dropped == MAP_FAILED) {
        dropped = pages(COUNT);
        EQUAL(madvise(dropped, COUNT * PAGE, MADV_WIPEONFORK), 0);
    }
    EQUAL(madvise(dumped, COUNT * PAGE, MADV_DONTDUMP), 0);
    EQUAL(madvise(small, COUNT * PAGE, MADV_NOHUGEPAGE), 0);
    REPEAT(5) {
        uint8_t *all[] = {wiped, kept, not_copied, dropped, dumped, small};
        for (int i = 0; i < 6; i++)
            memset(all[i], 7, COUNT * PAGE);
        EQUAL(madvise(wiped, COUNT * PAGE, MADV_WIPEONFORK), 0);
        EQUAL(madvise(kept, COUNT * PAGE, MADV_WIPEONFORK), 0);
        EQUAL(madvise(kept, COUNT * PAGE, MADV_KEEPONFORK), 0);
        EQUAL(madvise(not_copied, COUNT * PAGE, MADV_DONTFORK), 0);
        EQUAL(child_of(wiped, kept, not_copied, dropped, dumped), 0);
        CHECK(filled(wiped, 7) && filled(kept, 7) && filled(not_copied, 7) && filled(dumped, 7) && filled(small, 7));
        CHECK(has(dumped, "dd") && has(small, "nh") && has(not_copied, "dc"));
        EQUAL(madvise(not_copied, COUNT * PAGE, MADV_DOFORK), 0);
        EQUAL(madvise(wiped, COUNT * PAGE, MADV_KEEPONFORK), 0);
    }
    printf("children have what they should\n");
    return 0;
}
