// Bytes that go from descriptor to descriptor without passing the program: sendfile, splice, tee, copy_file_range.
#include "check.h"
#include <sys/sendfile.h>
#include <sys/stat.h>

#define LENGTH 20000

int main(void) {
    static uint8_t bytes[LENGTH], copy[LENGTH];
    uint64_t seed = 101;
    for (size_t i = 0; i < LENGTH; i++)
        bytes[i] = (uint8_t)next_random(&seed);
    int from = open("from", O_CREAT | O_TRUNC | O_RDWR, 0600), to = open("to", O_CREAT | O_TRUNC | O_RDWR, 0600), one[2], two[2];
    CHECK(from >= 0 && to >= 0 && pipe(one) == 0 && pipe(two) == 0);
    EQUAL(pwrite(from, bytes, LENGTH, 0), LENGTH);
    REPEAT(3) {
        off_t at = 1000;
        EQUAL(sendfile(one[1], from, &at, 5000), 5000);
        EQUAL(at, 6000);
        EQUAL(tee(one[0], two[1], 5000, 0), 5000);
        EQUAL(read(two[0], copy, 5000), 5000);
        EQUAL(memcmp(copy, bytes + 1000, 5000), 0);
        loff_t place = 300;
        for (size_t left = 5000; left > 0;) {
            ssize_t now = splice(one[0], NULL, to, &place, left, 0);
            CHECK(now > 0);
            left -= (size_t)now;
        }
        EQUAL(place, 5300);
        EQUAL(pread(to, copy, 5000, 300), 5000);
        EQUAL(memcmp(copy, bytes + 1000, 5000), 0);
        loff_t source = 0, target = 0;
        for (size_t left = LENGTH; left > 0;) {
            ssize_t now = copy_file_range(from, &source, to, &target, left, 0);
            CHECK(now > 0);
            left -= (size_t)now;
        }
        EQUAL(pread(to, copy, LENGTH, 0), LENGTH);
        EQUAL(memcmp(copy, bytes, LENGTH), 0);
    }
    printf("4 ways without passing\n");
    return 0;
}
