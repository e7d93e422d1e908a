// The C library's streams: buffers in memory and offsets in the kernel that have to fit together.
#include "check.h"

int main(void) {
    REPEAT(2) {
        FILE *file = fopen("stream", "w+");
        CHECK(file != NULL);
        for (int i = 0; i < 2000; i++)
            CHECK(fprintf(file, "line %d of %s\n", i * 7, "many") > 0);
        EQUAL(fseek(file, 0, SEEK_SET), 0);
        char word[16], line[64];
        int number;
        for (int i = 0; i < 2000; i++) {
            CHECK(fscanf(file, "line %d of %15s\n", &number, word) == 2);
            CHECK(number == i * 7 && strcmp(word, "many") == 0);
        }
        EQUAL(fgetc(file), EOF);
        EQUAL(fseek(file, -14, SEEK_END), 0);
        CHECK(fgets(line, sizeof(line), file) != NULL && strcmp(line, "13993 of many\n") == 0);
        CHECK(ungetc('x', file) == 'x' && fgetc(file) == 'x' && fgetc(file) == EOF);
        EQUAL(fclose(file), 0);
        FILE *program = popen("wc -l <stream", "r");
        CHECK(program != NULL && fscanf(program, "%d", &number) == 1);
        EQUAL(number, 2000);
        EQUAL(pclose(program), 0);
    }
    printf("2000 lines at a time\n");
    return 0;
}
