// Breadth-first search as in Rodinia (Che et al., IISWC 2009): level by level, over all nodes, with a mask of those that were reached last.
//
// The graph is random: each node has two to four edges to others, which lead back, too, so six on average. What a node draws follows from its
// number, so any thread can make it. Edges of a node come in any order; levels do not depend on it, and are compared with those of a queue.

#include "workload.h"

enum { SMALLEST = 16, LARGEST = 100000000, UNREACHED = -1 };

// Neighbours of node `i` are `edges[k]` for `first[i] <= k < first[i + 1]`.
struct graph {
	int nodes, *first, *edges;
};

// Steele, Lea and Flood's SplitMix64: the `number`-th of a sequence.
static uint64_t mixed(uint64_t number) {
	number = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
	number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
	return number ^ number >> 31;
}

// The edges that a node draws; how many.
static int drawn(int node, int nodes, int to[4]) {
	uint64_t base = (uint64_t)node * 8;
	int count = 2 + (int)(mixed(base) % 3);
	for (int k = 0; k < count; k++) to[k] = (int)(mixed(base + 1 + (uint64_t)k) % (uint64_t)nodes);
	return count;
}

static struct graph graph(int nodes) {
	struct graph g = {nodes, allocate((size_t)nodes + 1, sizeof(int)), NULL};
	int *next = allocate((size_t)nodes, sizeof *next), to[4];
#pragma omp parallel for schedule(static)
	for (int i = 0; i < nodes; i++) next[i] = 0;
#pragma omp parallel for schedule(static) private(to)
	for (int i = 0; i < nodes; i++)
		for (int k = drawn(i, nodes, to); k--;) {
#pragma omp atomic
			next[i]++;
#pragma omp atomic
			next[to[k]]++;
		}
	int sum = 0;
	for (int i = 0; i < nodes; i++) {
		g.first[i] = sum;
		sum += next[i];
		next[i] = g.first[i];
	}
	g.first[nodes] = sum;
	g.edges = allocate((size_t)sum, sizeof *g.edges);
#pragma omp parallel for schedule(static)
	for (int i = 0; i < nodes; i++)
		for (int k = g.first[i]; k < g.first[i + 1]; k++) g.edges[k] = 0;
#pragma omp parallel for schedule(static) private(to)
	for (int i = 0; i < nodes; i++)
		for (int k = drawn(i, nodes, to); k--;) {
			int here, there;
#pragma omp atomic capture
			here = next[i]++;
#pragma omp atomic capture
			there = next[to[k]]++;
			g.edges[here] = to[k];
			g.edges[there] = i;
		}
	free(next);
	return g;
}

// Nodes that were reached at the last level, that are reached at this one, that have been reached.
struct search {
	unsigned char *last, *now, *reached;
	int *level;
};

static void prepare(const struct graph *g, struct search *s) {
	size_t nodes = (size_t)g->nodes;
	s->last = allocate(nodes, 1), s->now = allocate(nodes, 1), s->reached = allocate(nodes, 1);
	s->level = allocate(nodes, sizeof *s->level);
#pragma omp parallel for schedule(static)
	for (int i = 0; i < g->nodes; i++) {
		s->last[i] = s->reached[i] = i == 0;
		s->now[i] = 0;
		s->level[i] = i ? UNREACHED : 0;
	}
}

// Searches from node 0; how many levels there are. Several threads may reach a node at once, and write the same.
static int search(const struct graph *g, struct search *s) {
	int levels = 0, more = 1;
	while (more) {
		levels++;
#pragma omp parallel for schedule(static)
		for (int i = 0; i < g->nodes; i++) {
			if (!s->last[i]) continue;
			s->last[i] = 0;
			for (int k = g->first[i]; k < g->first[i + 1]; k++) {
				int node = g->edges[k];
				if (s->reached[node]) continue;
#pragma omp atomic write
				s->level[node] = levels;
#pragma omp atomic write
				s->now[node] = 1;
			}
		}
		more = 0;
#pragma omp parallel for schedule(static) reduction(| : more)
		for (int i = 0; i < g->nodes; i++) {
			if (!s->now[i]) continue;
			s->now[i] = 0;
			s->last[i] = s->reached[i] = 1;
			more = 1;
		}
	}
	return levels;
}

// Whether levels are those that one thread finds with a queue.
static int right(const struct graph *g, const int *level) {
	size_t nodes = (size_t)g->nodes;
	int *own = allocate(nodes, sizeof *own), *queue = allocate(nodes, sizeof *queue), head = 0, tail = 1;
	for (size_t i = 0; i < nodes; i++) own[i] = UNREACHED;
	own[0] = queue[0] = 0;
	while (head < tail) {
		int node = queue[head++];
		for (int k = g->first[node]; k < g->first[node + 1]; k++) {
			int to = g->edges[k];
			if (own[to] != UNREACHED) continue;
			own[to] = own[node] + 1;
			queue[tail++] = to;
		}
	}
	int same = !memcmp(own, level, nodes * sizeof *own);
	free(own);
	free(queue);
	return same;
}

int main(int argc, char **argv) {
	const char *expected = "NODES, from 16 to 100000000", *name = begin(argc, argv, "65536", expected);
	long nodes = number(name, SMALLEST, LARGEST);
	if (nodes < 0) refuse(argv[0], "there is no such size", expected);
	struct graph g = graph((int)nodes);
	struct search s;
	prepare(&g, &s);
	double began = seconds();
	int levels = search(&g, &s);
	double took = seconds() - began;
	int verified = right(&g, s.level);
	free(g.first), free(g.edges);
	free(s.last), free(s.now), free(s.reached), free(s.level);
	return finish("bfs", name, levels, took, verified);
}
