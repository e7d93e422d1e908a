// Numbers to text and back, sorting and searching of text, in buffers of the library.
#include "check.h"
#include <ctype.h>
#include <math.h>

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int main(void) {
    uint64_t seed = 161, first = 0;
    REPEAT(3) {
        char *words[200];
        seed = 161;
        uint64_t hash = 0;
        for (int i = 0; i < 200; i++) {
            double number = (double)(int64_t)next_random(&seed) / 1048576, back;
            char *end;
            EQUAL(asprintf(&words[i], "%.17g|%a|%s", number, number, isalpha(i) ? "letter" : "other") > 0, 1);
            back = strtod(words[i], &end);
            CHECK(back == number && *end == '|');
            CHECK(strtod(end + 1, &end) == number && *end == '|');
        }
        qsort(words, 200, sizeof(*words), compare);
        for (int i = 0; i < 200; i++) {
            CHECK(i == 0 || strcmp(words[i - 1], words[i]) < 0);
            CHECK(bsearch(&words[i], words, 200, sizeof(*words), compare) == &words[i]);
            for (const char *at = words[i]; *at; at++)
                hash = hash * 31 + (uint8_t)*at;
        }
        for (int i = 0; i < 200; i++)
            free(words[i]);
        first = first ? first : hash;
        CHECK(hash == first);
    }
    printf("%016llx\n", (unsigned long long)first);
    return 0;
}
