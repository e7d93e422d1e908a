# Works on texts for ever: dictionaries, formats, sorting, regular expressions, calls.
import json, re


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Node:
    def __init__(self, key, value):
        self.key, self.value = key, value

    def weight(self):
        return len(self.key) * 3 + self.value % 7


while True:
    nodes = {}
    for i in range(2000):
        key = "key%d" % (i * 7 % 1000)
        nodes.setdefault(key, []).append(Node(key, i))
    order = sorted(nodes, key=lambda key: sum(node.weight() for node in nodes[key]))
    text = re.sub(r"key(\d+)", r"<\1>", "|".join(order))
    json.loads(json.dumps({key: [node.value for node in nodes[key]] for key in order[:200]}))
    fib(14)
