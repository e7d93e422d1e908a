"""Counts the calls of a function with Frida, in C, as its fastest way is: count.py PID OFFSET.

OFFSET is that of the function in the program's file. Says `attached`, waits for the end of its input, says how often
the function was called.
"""

import sys

import frida

SCRIPT = """
const counter = Memory.alloc(8);
const code = new CModule(`
#include <gum/guminterceptor.h>
#include <glib.h>
extern volatile gint counter;
void on_enter(GumInvocationContext *context) { g_atomic_int_add(&counter, 1); }
`, { counter });
Interceptor.attach(Process.mainModule.base.add(ptr('%s')), { onEnter: code.on_enter });
rpc.exports = { count() { return counter.readU32(); } };
"""

session = frida.attach(int(sys.argv[1]))
script = session.create_script(SCRIPT % sys.argv[2])
script.load()
print("attached", flush=True)
sys.stdin.read()
print(script.exports_sync.count(), flush=True)
script.unload()
session.detach()
