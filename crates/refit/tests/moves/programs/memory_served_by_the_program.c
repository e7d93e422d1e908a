// A program serves the page faults of some of its memory itself (userfaultfd): each page shows what it has put there.
#include "check.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>

#define COUNT 32

static int served;

static void *serve(void *unused) {
    static uint64_t page[PAGE / 8] __attribute__((aligned(PAGE)));
    for (;;) {
        struct pollfd ready = {served, POLLIN, 0};
        struct uffd_msg message;
        if (poll(&ready, 1, -1) != 1 || read(served, &message, sizeof message) != sizeof message)
            continue;
        uint64_t at = message.arg.pagefault.address & -(uint64_t)PAGE;
        page[0] = at;
        struct uffdio_copy copy = {at, (uintptr_t)page, PAGE, 0, 0};
        ioctl(served, UFFDIO_COPY, &copy);
    }
    return unused;
}

static void serves(uint8_t *area) {
    struct uffdio_register range = {.range = {(uintptr_t)area, COUNT * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    EQUAL(ioctl(served, UFFDIO_REGISTER, &range), 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(*(volatile uint64_t *)(area + i * PAGE) == (uintptr_t)area + i * PAGE);
}

int main(void) {
    struct uffdio_api agreed = {UFFD_API, 0, 0};
    pthread_t server;
    served = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    CHECK(served >= 0 && ioctl(served, UFFDIO_API, &agreed) == 0);
    CHECK(pthread_create(&server, NULL, serve, NULL) == 0);
    REPEAT(5) {
        uint8_t *fresh = pages(COUNT);
        serves(fresh);
        CHECK(munmap(fresh, COUNT * PAGE) == 0);
        // What has been ordinary memory before, too.
        uint8_t *former = pages(COUNT);
        memset(former, 1, COUNT * PAGE);
        usleep(500);
        CHECK(former[5] == 1 && madvise(former, COUNT * PAGE, MADV_DONTNEED) == 0);
        serves(former);
        CHECK(munmap(former, COUNT * PAGE) == 0);
    }
    printf("each page is the program's own\n");
    return 0;
}
