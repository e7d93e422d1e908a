// Division by zero and floating-point traps are told with their code and place, to the thread that made them.
#include "check.h"
#include <fenv.h>
#include <setjmp.h>

static _Thread_local sigjmp_buf back;
static _Thread_local volatile int code;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    code = info->si_code;
    siglongjmp(back, 1);
}

static void *run(void *argument) {
    volatile int one = 1000, zero = 0, sink;
    volatile double nothing = 0, result;
    REPEAT(10) {
        code = 0;
        if (sigsetjmp(back, 1) == 0)
            sink = one / zero;
        EQUAL(code, FPE_INTDIV);
        CHECK(feenableexcept(FE_DIVBYZERO | FE_OVERFLOW) != -1);
        code = 0;
        if (sigsetjmp(back, 1) == 0)
            result = 1 / nothing;
        EQUAL(code, FPE_FLTDIV);
        feclearexcept(FE_ALL_EXCEPT);
        feenableexcept(FE_DIVBYZERO | FE_OVERFLOW);
        code = 0;
        if (sigsetjmp(back, 1) == 0) {
            result = 1e300;
            result = result * result;
        }
        EQUAL(code, FPE_FLTOVF);
        feclearexcept(FE_ALL_EXCEPT);
        fedisableexcept(FE_ALL_EXCEPT);
        result = 1 / nothing;
        CHECK(result > 1e308);
        feclearexcept(FE_ALL_EXCEPT);
    }
    (void)sink;
    return argument;
}

int main(void) {
    on_signal(SIGFPE, handler, SA_NODEFER);
    pthread_t other = start(run, NULL);
    run(NULL);
    join(other);
    printf("3 kinds of traps in 2 threads\n");
    return 0;
}
