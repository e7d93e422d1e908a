#!/usr/bin/env python3
"""Measures what one knob gains that Redis does not export: from which size on a string that grows
gets 1 MiB more rather than twice its size (SDS_MAX_PREALLOC).

    REFIT=target/release/refit bench/knobs.py [KEYS CHUNK BYTES ROUNDS]

One redis-server serves APPEND of CHUNK bytes to KEYS keys in turn, up to BYTES each. In each round,
the knob is as in the file, set, set, and as in the file; the process stays the same. Prints medians
and quartiles of appends per second, and of the server's processor time for all of them."""
import json, os, socket, statistics, subprocess, sys, tempfile, time

REFIT = os.environ.get("REFIT", "refit")
FUNCTION, FILES, SET = "_sdsMakeRoomFor", 1048575, 268435455


def command(*parts):
    texts = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"*%d\r\n" % len(parts) + texts


class Server:
    def __init__(self, folder):
        path = os.path.join(folder, "socket")
        options = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"]
        self.child = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        self.connection = socket.socket(socket.AF_UNIX)
        while self.connection.connect_ex(path) != 0:
            time.sleep(0.05)

    def ask(self, text, answers):
        self.connection.sendall(text)
        while answers > 0:
            answers -= self.connection.recv(1 << 16).count(b"\n")

    def processor_time(self):
        with open("/proc/%d/stat" % self.child.pid) as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def load(self, keys, chunk, size):
        self.ask(command(b"FLUSHALL"), 1)
        data = b"x" * chunk
        text = b"".join(command(b"APPEND", b"log:%d" % key, data) for key in range(keys))
        began, used = time.monotonic(), self.processor_time()
        for _ in range(size // chunk):
            self.ask(text, keys)
        lasted = time.monotonic() - began
        return size // chunk * keys / lasted, (self.processor_time() - used) * 1000


def refit(server, *arguments):
    command = [REFIT, "knob", "-p", str(server.child.pid), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def described(values):
    low, median, high = statistics.quantiles(values, n=4)
    return "%10.0f (%.0f to %.0f)" % (median, low, high)


def main():
    keys, chunk, size, rounds = map(int, sys.argv[1:] or [8, 16384, 32 << 20, 8])
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder)
        try:
            listed = refit(server, "list", "--all", "--json", "--func", FUNCTION)
            knobs = [json.loads(line) for line in listed.splitlines()]
            name = next(knob["name"] for knob in knobs if knob["original"] == FILES)
            measured = {False: [], True: []}
            for turn in range(-2, 4 * rounds):
                is_set = turn % 4 in (1, 2)
                if is_set:
                    refit(server, "set", name, str(SET), "--unchecked")
                else:
                    refit(server, "unset", name)
                result = server.load(keys, chunk, size)
                # The first two only warm up the allocator.
                if turn >= 0:
                    measured[is_set].append(result)
        finally:
            server.child.terminate()
            server.child.wait()
    print("%s, %d keys of %d bytes, chunks of %d, %d rounds" % (name, keys, size, chunk, rounds))
    for title, index in (("appends/s", 0), ("processor ms", 1)):
        of_file, of_set = ([one[index] for one in measured[is_set]] for is_set in (False, True))
        ratio = statistics.median(of_set) / statistics.median(of_file)
        print("%-14s file %s  set %s  ratio %.2f" % (title, described(of_file), described(of_set), ratio))


main()
