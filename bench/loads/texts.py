# Works on texts for ever, or so many rounds: dictionaries, formats, sorting, regular expressions, calls.
# Writes a line for each.
import json, re, sys


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Node:
    def __init__(self, key, value):
        self.key, self.value = key, value

    def weight(self):
        return len(self.key) * 3 + self.value % 7


left = int(sys.argv[1]) if len(sys.argv) > 1 else -1
while left:
    left -= 1
    nodes = {}
    for i in range(2000):
        key = "key%d" % (i * 7 % 1000)
        nodes.setdefault(key, []).append(Node(key, i))
    order = sorted(nodes, key=lambda key: sum(node.weight() for node in nodes[key]))
    text = re.sub(r"key(\d+)", r"<\1>", "|".join(order))
    json.loads(json.dumps({key: [node.value for node in nodes[key]] for key in order[:200]}))
    fib(14)
    print(flush=True)
