# Steps through a function instruction by instruction, and compares the stacks that gdb finds:
# a step changes the innermost frame, adds one, or leaves one.
import gdb

OUTERMOST = "walked_by_debugger"
REGISTERS = ["rsp", "rbx", "rbp", "r12", "r13", "r14", "r15"]


def stack():
    """Returns the frames up to the function, each as its address and registers."""
    frames, frame = [], gdb.newest_frame()
    while frame is not None:
        registers = tuple(int(frame.read_register(name)) for name in REGISTERS)
        frames.append((frame.pc(),) + registers)
        if OUTERMOST in (frame.name() or ""):
            return frames
        frame = frame.older()
    return None


gdb.execute("set pagination off")
gdb.Breakpoint(OUTERMOST, temporary=True)
print("ready", flush=True)
gdb.execute("continue", to_string=True)
steps = wrong = spliced = 0
before = stack()
depth = gdb.newest_frame()
while True:
    gdb.execute("stepi", to_string=True)
    name = gdb.newest_frame().name() or ""
    now = stack()
    if now is None and before is not None and len(before) == 1:
        # The function has returned.
        break
    steps += 1
    spliced += "[refit]" in name
    if now is None or not (
        now[1:] == before[1:]
        or (now[2:] == before[1:] and now[1][2:] == before[0][2:])
        or (now[1:] == before[2:] and now[0] == before[1])
    ):
        wrong += 1
        if wrong < 5:
            print("wrong at", hex(gdb.newest_frame().pc()), name, before, now)
    if now is not None:
        before = now
    if steps > 20000 or wrong > 200:
        break
print(f"{steps} steps, {spliced} in spliced code, {wrong} wrong", flush=True)
gdb.execute("detach")
