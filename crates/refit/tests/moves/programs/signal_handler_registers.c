// A handler that uses every vector register: whoever is interrupted has his back, also where the handler was moved.
#include "check.h"

static atomic_int calls;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    asm volatile(".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n pcmpeqb %%xmm\\n, %%xmm\\n\n.endr\n fninit\n fldpi"
                 :
                 :
                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                   "xmm12", "xmm13", "xmm14", "xmm15", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)");
    atomic_fetch_add(&calls, 1);
}

static void *pester(void *argument) {
    pthread_t *victim = argument;
    for (int sent = 0; sent < 50; sent++) {
        EQUAL(pthread_kill(*victim, SIGUSR1), 0);
        await(&calls, sent + 1);
    }
    return NULL;
}

int main(void) {
    on_signal(SIGUSR1, handler, 0);
    REPEAT(1) {
        pthread_t self = pthread_self();
        atomic_store(&calls, 0);
        pthread_t other = start(pester, &self);
        uint64_t whole = 1, wanted = 1;
        double part = 1;
        long double third = 1;
        while (atomic_load(&calls) < 50) {
            for (unsigned i = 0; i < 1000; i++) {
                whole = whole * 6364136223846793005u + 1;
                asm volatile("addsd %1, %0" : "+x"(part) : "x"(1.0));
                third = third / 3 * 3 + 1 - 1;
            }
            for (unsigned i = 0; i < 1000; i++)
                wanted = wanted * 6364136223846793005u + 1;
            part -= 1000;
            CHECK(whole == wanted && part == 1 && third > 0.999L && third < 1.001L);
        }
        join(other);
    }
    printf("50 signals at a time, nothing lost\n");
    return 0;
}
