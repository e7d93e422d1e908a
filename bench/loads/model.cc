// Runs the model for ever; writes a line for each thousand cycles.
#include <cstdio>

#include "Vmodel.h"

int main() {
    Vmodel model;
    for (;;) {
        for (int half = 0; half < 2000; half++) {
            model.clk = !model.clk;
            model.eval();
        }
        puts("");
        fflush(stdout);
    }
}
