// Files that are made, renamed, linked, listed and removed; what is removed while it is open is there until it is closed.
#include "check.h"
#include <dirent.h>
#include <sys/stat.h>

static int list(int folder) {
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY), count = 0;
    DIR *dir = fdopendir(copy);
    CHECK(dir != NULL);
    for (struct dirent *one; (one = readdir(dir)) != NULL;)
        count += one->d_name[0] != '.';
    closedir(dir);
    return count;
}

int main(void) {
    EQUAL(mkdir("files", 0700), 0);
    int folder = open("files", O_RDONLY | O_DIRECTORY);
    CHECK(folder >= 0);
    REPEAT(2) {
        char name[16], text[16] = {0};
        struct stat told;
        for (int i = 0; i < 20; i++) {
            snprintf(name, sizeof(name), "file%d", i);
            EQUAL(close(openat(folder, name, O_CREAT | O_EXCL | O_WRONLY, 0600)), 0);
        }
        EQUAL(list(folder), 20);
        EQUAL(renameat(folder, "file1", folder, "file2"), 0);
        EQUAL(linkat(folder, "file3", folder, "other", 0), 0);
        EQUAL(symlinkat("file4", folder, "sign"), 0);
        EQUAL(list(folder), 21);
        CHECK(readlinkat(folder, "sign", text, 15) == 5 && strcmp(text, "file4") == 0);
        EQUAL(fstatat(folder, "file3", &told, 0), 0);
        EQUAL(told.st_nlink, 2);
        int fd = openat(folder, "file5", O_RDWR);
        EQUAL(unlinkat(folder, "file5", 0), 0);
        EQUAL(write(fd, "still", 5), 5);
        EQUAL(pread(fd, text, 5, 0), 5);
        CHECK(memcmp(text, "still", 5) == 0 && fstat(fd, &told) == 0 && told.st_nlink == 0);
        close(fd);
        for (int i = 0; i < 20; i++) {
            snprintf(name, sizeof(name), "file%d", i);
            EQUAL(unlinkat(folder, name, 0), i == 1 || i == 5 ? -1 : 0);
        }
        CHECK(unlinkat(folder, "other", 0) == 0 && unlinkat(folder, "sign", 0) == 0 && list(folder) == 0);
    }
    printf("20 files at a time\n");
    return 0;
}
