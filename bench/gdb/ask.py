"""Asks a running program a question with gdb: gdb -batch -p PID -x ask.py, with the question, the address of the
function and the number of its calls in ASK.

Prints the answer as a line `NUMBER WHAT` for each stack or text, or the messages as they come. Gdb has no clock.
"""

import collections
import os

import gdb

question, address, calls = os.environ["ASK"].split()
gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set language c")
gdb.Breakpoint("*" + address, internal=True)
counts = collections.Counter()
for _ in range(int(calls)):
    gdb.execute("continue", to_string=True)
    text = gdb.parse_and_eval("(char *)$rdi").string()
    if question == "stacks":
        counts[gdb.execute("backtrace -frame-arguments none 8", to_string=True)] += 1
    elif question == "texts":
        counts[text] += 1
    else:
        print(int(gdb.parse_and_eval("$rsi")), text, flush=True)
for what, number in counts.items():
    print(number, " ".join(what.split()))
gdb.execute("detach")
