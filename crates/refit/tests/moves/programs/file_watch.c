// What happens in a folder is told in its order to who watches it (inotify).
#include "check.h"
#include <sys/inotify.h>
#include <sys/stat.h>

int main(void) {
    static const uint32_t wanted[] = {IN_CREATE, IN_MODIFY, IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO, IN_DELETE};
    static const char *const names[] = {"one", "one", "one", "one", "two", "two"};
    EQUAL(mkdir("watched", 0700), 0);
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    int id = inotify_add_watch(watch, "watched", IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVE | IN_DELETE);
    CHECK(watch >= 0 && id >= 0);
    REPEAT(3) {
        int fd = open("watched/one", O_CREAT | O_WRONLY, 0600);
        EQUAL(write(fd, "x", 1), 1);
        EQUAL(close(fd), 0);
        EQUAL(rename("watched/one", "watched/two"), 0);
        EQUAL(unlink("watched/two"), 0);
        _Alignas(struct inotify_event) char told[4096];
        ssize_t length = read(watch, told, sizeof(told)), at = 0;
        uint32_t cookie = 0;
        for (int i = 0; i < 6; i++) {
            CHECK(at < length);
            struct inotify_event *event = (struct inotify_event *)(told + at);
            CHECK(event->wd == id && event->mask == wanted[i] && strcmp(event->name, names[i]) == 0);
            CHECK(i != 4 || (event->cookie == cookie && cookie != 0));
            cookie = event->cookie;
            at += (ssize_t)(sizeof(*event) + event->len);
        }
        EQUAL(at, length);
        CHECK(read(watch, told, sizeof(told)) == -1 && errno == EAGAIN);
    }
    printf("6 events at a time\n");
    return 0;
}
