// Runs the model for ever.
#include "Vmodel.h"

int main() {
    Vmodel model;
    for (;;) {
        model.clk = !model.clk;
        model.eval();
    }
}
