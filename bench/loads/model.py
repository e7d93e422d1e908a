"""Writes a Verilog design of many units that differ: state machines whose decisions depend on their neighbours."""

import random
import sys

UNITS, STATES = int(sys.argv[1]), 24
chance = random.Random(1)


def expression(depth):
    if depth == 0:
        return chance.choice(["a", "b", "x", "y", "32'd%d" % chance.randrange(1 << 31)])
    one, other = expression(depth - 1), expression(depth - 1)
    return chance.choice([
        "(%s + %s)", "(%s ^ %s)", "(%s - %s)", "(%s & ~%s)", "((%s << 3) ^ %s)", "((%s >> 5) + %s)"]) % (one, other)


def unit(number):
    print("module unit%d(input clk, input [31:0] a, input [31:0] b, output reg [31:0] x);" % number)
    print("  reg [31:0] y; reg [4:0] state;")
    print("  initial begin x = %d; y = %d; state = 0; end" % (number + 1, chance.randrange(1 << 31)))
    print("  always @(posedge clk) begin case (state)")
    for state in range(STATES):
        print("    %d: begin" % state)
        for _ in range(2):
            # Most conditions are rare.
            print("      if (((%s) & 32'd%d) == 0) begin x <= %s; y <= %s; state <= %d; end" % (
                expression(2), chance.choice([1, 7, 63, 255]), expression(2), expression(1), chance.randrange(STATES)))
        print("      else begin y <= %s; state <= %d; end end" % (expression(2), (state + 1) % STATES))
    print("    default: state <= 0; endcase end endmodule")


for number in range(UNITS):
    unit(number)
print("module model(input clk, output [31:0] sum);")
for number in range(UNITS):
    print("  wire [31:0] w%d;" % number)
for number in range(UNITS):
    print("  unit%d u%d(clk, w%d, w%d, w%d);" % (number, number, (number + 1) % UNITS, (number + 7) % UNITS, number))
print("  assign sum = %s; endmodule" % " ^ ".join("w%d" % number for number in range(UNITS)))
