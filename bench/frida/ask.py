"""Asks a running program a question with Frida, in its usual way: ask.py QUESTION PID OFFSET.

OFFSET is that of the function in the program's file. Waits for the end of its input, then prints the answer: a line
`NUMBER WHAT` for each stack, text or duration, or the messages as they come.
"""

import sys

import frida

STACKS = """
Interceptor.attach(asked, function () {
  add(Thread.backtrace(this.context, Backtracer.ACCURATE).slice(0, 8).join(' '));
});
"""
TEXTS = """
Interceptor.attach(asked, { onEnter(args) { add(args[0].readUtf8String()); } });
"""
# JavaScript has no clock that is fine enough.
TIMES = """
const code = new CModule(`
#include <gum/guminterceptor.h>
#include <glib.h>
extern gint counts[64];
void on_enter(GumInvocationContext *context) {
  *(gint64 *) gum_invocation_context_get_listener_invocation_data(context, sizeof(gint64)) = g_get_monotonic_time();
}
void on_leave(GumInvocationContext *context) {
  gint64 took = g_get_monotonic_time()
    - *(gint64 *) gum_invocation_context_get_listener_invocation_data(context, sizeof(gint64));
  int bits = 0;
  while (took >> bits) bits++;
  g_atomic_int_add(&counts[bits], 1);
}
`, { counts: cells });
Interceptor.attach(asked, { onEnter: code.on_enter, onLeave: code.on_leave });
"""
MESSAGES = """
Interceptor.attach(asked, { onEnter(args) { send(args[1].toString() + ' ' + args[0].readUtf8String()); } });
"""
SCRIPT = """
const counts = new Map();
const cells = Memory.alloc(64 * 4);
const asked = Process.mainModule.base.add(ptr('%s'));
function add(key) { counts.set(key, (counts.get(key) || 0) + 1); }
%s
rpc.exports = {
  answer() {
    for (let bits = 0; bits < 64; bits++) {
      const count = cells.add(4 * bits).readU32();
      if (count) counts.set('below 2^' + bits + ' us', count);
    }
    return Array.from(counts);
  }
};
"""

question = {"stacks": STACKS, "texts": TEXTS, "times": TIMES, "messages": MESSAGES}[sys.argv[1]]
session = frida.attach(int(sys.argv[2]))
script = session.create_script(SCRIPT % (sys.argv[3], question))
script.on("message", lambda message, _: print(message.get("payload", message)))
script.load()
sys.stdin.read()
for what, number in script.exports_sync.answer():
    print(number, what)
script.unload()
session.detach()
