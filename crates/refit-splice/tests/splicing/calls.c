// Makes one system call that waits: `calls ROW`. The first thread makes it; on a line `go`, the
// other thread causes the event that ends it. A line reports the result of the call, and its
// effect. Without a row it lists the rows: name, number of the call, and how it ends: by `go`, or
// by itself (`time`).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { WHOLE = 1 << 20, MESSAGES = 64, LENGTH = 1000 };
static char bytes[WHOLE], got[WHOLE];
static int ends[2], own;
static long arguments[6], wrong, rang;
static struct iovec pieces[MESSAGES], before[MESSAGES];
static struct msghdr message;
static struct mmsghdr messages[MESSAGES];
static struct timespec soon = {0, 400000000};
// Memory that the kernel cannot write to.
static const struct timespec fixed = {60, 0};
static const struct timeval fixed_too = {60, 0};

static void need(int holds) {
	if (holds) return;
	printf("not to be had: %s\n", strerror(errno));
	fflush(stdout);
	_exit(9);
}
static char at(long index) { return (char)(index % 251); }
static void cut(char *from) {
	static const size_t sizes[5] = {1000, 0, 300000, 77, WHOLE - 301077};
	for (int i = 0; i < 5; from += sizes[i++]) before[i] = pieces[i] = (struct iovec){from, sizes[i]};
	message = (struct msghdr){.msg_iov = pieces, .msg_iovlen = 5};
}
static void cut_in_two(char *from) {
	before[0] = pieces[0] = (struct iovec){from, 300000};
	before[2] = pieces[2] = (struct iovec){from + 300000, WHOLE - 300000};
	message = (struct msghdr){.msg_iov = pieces, .msg_iovlen = 3};
}
static void set(long a, long b, long c, long d, long e, long f) {
	long all[6] = {a, b, c, d, e, f};
	memcpy(arguments, all, sizeof all);
}
static void pair(int kind) { need(!socketpair(AF_UNIX, kind, 0, ends)); }
static void limit(int option) {
	struct timeval time = {60, 0};
	need(!setsockopt(ends[0], SOL_SOCKET, option, &time, sizeof time));
}

// The events that the other thread causes.
static void drains(void) {
	unsigned char part[4096];
	for (long all = 0; all < WHOLE; usleep(20)) {
		ssize_t size = read(ends[1], part, sizeof part);
		if (size <= 0) break;
		for (ssize_t i = 0; i < size; i++, all++) wrong += part[i] != (unsigned char)at(all);
		rang = all;
	}
}
static void takes_messages(void) {
	for (; rang < MESSAGES; rang++, usleep(100)) {
		need(read(ends[1], got, sizeof got) == LENGTH);
		wrong += !!memcmp(got, bytes + rang * LENGTH, LENGTH);
	}
}
static void fills(void) {
	for (long all = 0; all < WHOLE;) {
		ssize_t size = write(ends[1], bytes + all, WHOLE - all < 3000 ? WHOLE - all : 3000);
		if (size <= 0) break;
		all += size;
		usleep(20);
	}
}
static void rings(void) { need(write(ends[1], bytes, 8) == 8); }
static void comes(void) {
	struct sockaddr_un name;
	socklen_t size = sizeof name;
	need(!getsockname(ends[0], (void *)&name, &size));
	need(!connect(ends[1], (void *)&name, size));
}
static void takes(void) { need(accept(own, 0, 0) >= 0), need(accept(own, 0, 0) >= 0); }
static void raises(void) {
	struct sembuf up = {0, 1, 0};
	need(!semop(own, &up, 1));
}
static void signals(void) { need(!kill(getpid(), SIGUSR1)); }
static void nothing(void) {}

// Prepare the call of the first thread, except for its number.
static void pipe_full(void) { int p[2]; need(!pipe(p)), ends[0] = p[1], ends[1] = p[0]; }
static void stream(void) { pair(SOCK_STREAM); }
static void late(void) { pair(SOCK_STREAM), limit(SO_RCVTIMEO); }
static void p_read(void) { late(), set(ends[0], (long)got, 8, 0, 0, 0); }
static void p_readv(void) { late(), cut(got), set(ends[0], (long)pieces, 5, -1, 0, 0); }
static void p_write(void) { pipe_full(), set(ends[0], (long)bytes, WHOLE, 0, 0, 0); }
static void p_send(void) { stream(), set(ends[0], (long)bytes, WHOLE, 0, 0, 0); }
static void p_writev(void) { pipe_full(), cut(bytes), set(ends[0], (long)pieces, 5, -1, 0, 0); }
static void p_sendv(void) { stream(), cut(bytes), set(ends[0], (long)pieces, 5, -1, 0, 0); }
static void p_sendmsg(void) { stream(), cut(bytes), set(ends[0], (long)&message, 0, 0, 0, 0); }
static void p_recvmsg(void) { stream(), cut_in_two(got), set(ends[0], (long)&message, MSG_WAITALL, 0, 0, 0); }
static void p_recvmsg_late(void) { late(), cut(got), set(ends[0], (long)&message, 0, 0, 0, 0); }
static void p_recv(void) { stream(), set(ends[0], (long)got, WHOLE, MSG_WAITALL, 0, 0); }
static void p_recv_late(void) { late(), set(ends[0], (long)got, 8, 0, 0, 0); }
static void p_sendmmsg(void) {
	pair(SOCK_SEQPACKET);
	for (int i = 0; i < MESSAGES; i++) {
		pieces[i] = (struct iovec){bytes + i * LENGTH, LENGTH};
		messages[i].msg_hdr = (struct msghdr){.msg_iov = pieces + i, .msg_iovlen = 1};
	}
	memcpy(before, pieces, sizeof before);
	set(ends[0], (long)messages, MESSAGES, 0, 0, 0);
}
static void p_recvmmsg(void) {
	pair(SOCK_DGRAM), limit(SO_RCVTIMEO), cut(got);
	messages[0].msg_hdr = message;
	set(ends[0], (long)messages, 1, 0, 0, 0);
}
static void p_sendfile(void) {
	stream();
	own = memfd_create("file", 0);
	need(own >= 0 && write(own, bytes, WHOLE) == WHOLE && !lseek(own, 0, SEEK_SET));
	set(ends[0], own, 0, WHOLE, 0, 0);
}
static void p_random(void) { set((long)got, WHOLE, 0, 0, 0, 0); }
static void p_listens(void) {
	ends[0] = socket(AF_UNIX, SOCK_STREAM, 0), ends[1] = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un name = {AF_UNIX, ""};
	need(!bind(ends[0], (void *)&name, sizeof(sa_family_t)) && !listen(ends[0], 1));
	limit(SO_RCVTIMEO), set(ends[0], 0, 0, 0, 0, 0);
}
static void p_connect(void) {
	static struct sockaddr_un name;
	socklen_t size = sizeof name;
	own = socket(AF_UNIX, SOCK_STREAM, 0), name.sun_family = AF_UNIX;
	need(!bind(own, (void *)&name, sizeof(sa_family_t)) && !listen(own, 0));
	need(!getsockname(own, (void *)&name, &size));
	// One connection may wait without being accepted: this one fills the queue.
	ends[1] = socket(AF_UNIX, SOCK_STREAM, 0);
	need(!connect(ends[1], (void *)&name, size));
	ends[0] = socket(AF_UNIX, SOCK_STREAM, 0);
	limit(SO_SNDTIMEO), set(ends[0], (long)&name, size, 0, 0, 0);
}
static void watched(void) {
	static struct pollfd one;
	stream(), one.fd = ends[0], one.events = POLLIN;
	set((long)&one, 1, (long)&fixed, 0, 8, 0);
}
static void selected(const void *time) {
	static fd_set some;
	stream(), FD_SET(ends[0], &some);
	set(ends[0] + 1, (long)&some, 0, 0, (long)time, 0);
}
static void p_pselect(void) { selected(&fixed); }
static void p_select(void) { selected(&fixed_too); }
static void events(long time) {
	static struct epoll_event found, wanted = {EPOLLIN, {0}};
	stream(), own = epoll_create1(0);
	need(own >= 0 && !epoll_ctl(own, EPOLL_CTL_ADD, ends[0], &wanted));
	set(own, (long)&found, 1, time, 0, 8);
}
static void p_epoll(void) { events(-1); }
static void p_epoll_soon(void) { events(400); }
static void p_epoll2_soon(void) { events((long)&soon); }
static void semaphores(long time) {
	static struct sembuf down = {0, -1, 0};
	own = semget(IPC_PRIVATE, 1, 0600);
	need(own >= 0), set(own, (long)&down, 1, time, 0, 0);
}
static void p_semaphore(void) { semaphores(0); }
static void p_semaphore_soon(void) { semaphores((long)&soon); }
static void p_signal(void) {
	static long wanted = 1 << (SIGUSR1 - 1);
	set((long)&wanted, 0, 0, 8, 0, 0);
}
static void p_signal_soon(void) { p_signal(), arguments[2] = (long)&soon; }
static void p_aio(void) {
	static aio_context_t context;
	static struct io_event found;
	need(!syscall(SYS_io_setup, 1, &context));
	set(context, 1, 1, (long)&found, (long)&soon, 0);
}
static void p_uring(void) {
	struct io_uring_params how = {0};
	own = syscall(SYS_io_uring_setup, 4, &how), pair(SOCK_STREAM);
	need(own >= 0);
	char *ring = mmap(0, how.sq_off.array + 4 * how.sq_entries, 3, MAP_SHARED, own, IORING_OFF_SQ_RING);
	struct io_uring_sqe *all = mmap(0, how.sq_entries * sizeof *all, 3, MAP_SHARED, own, IORING_OFF_SQES);
	need(ring != MAP_FAILED && all != MAP_FAILED);
	all[0] = (struct io_uring_sqe){.opcode = IORING_OP_POLL_ADD, .fd = ends[0], .poll32_events = POLLIN};
	((uint32_t *)(ring + how.sq_off.array))[0] = 0;
	__atomic_store_n((uint32_t *)(ring + how.sq_off.tail), 1, __ATOMIC_RELEASE);
	set(own, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
}
static void p_pipe(void) { int p[2]; need(!pipe(p)), ends[0] = p[0], ends[1] = p[1], set(p[0], (long)got, 8, 0, 0, 0); }
static void p_poll(void) { watched(), arguments[2] = -1; }
static void p_sleep(void) { set((long)&soon, 0, 0, 0, 0, 0); }
static void p_futex(void) { static int word; set((long)&word, 0, 0, (long)&soon, 0, 0); }

static const struct row {
	const char *name;
	long number;
	void (*prepare)(void), (*other)(void);
} rows[] = {
	{"read", SYS_read, p_read, rings},
	{"readv", SYS_readv, p_readv, rings},
	{"preadv2", SYS_preadv2, p_readv, rings},
	{"write", SYS_write, p_write, drains},
	{"write_socket", SYS_write, p_send, drains},
	{"writev", SYS_writev, p_writev, drains},
	{"writev_socket", SYS_writev, p_sendv, drains},
	{"pwritev2", SYS_pwritev2, p_writev, drains},
	{"sendfile", SYS_sendfile, p_sendfile, drains},
	{"getrandom", SYS_getrandom, p_random, nothing},
	{"sendto", SYS_sendto, p_send, drains},
	{"recvfrom", SYS_recvfrom, p_recv_late, rings},
	{"recvfrom_all", SYS_recvfrom, p_recv, fills},
	{"sendmsg", SYS_sendmsg, p_sendmsg, drains},
	{"recvmsg", SYS_recvmsg, p_recvmsg_late, rings},
	{"recvmsg_all", SYS_recvmsg, p_recvmsg, fills},
	{"sendmmsg", SYS_sendmmsg, p_sendmmsg, takes_messages},
	{"recvmmsg", SYS_recvmmsg, p_recvmmsg, rings},
	{"connect", SYS_connect, p_connect, takes},
	{"accept", SYS_accept, p_listens, comes},
	{"accept4", SYS_accept4, p_listens, comes},
	{"ppoll", SYS_ppoll, watched, rings},
	{"pselect6", SYS_pselect6, p_pselect, rings},
	{"select", SYS_select, p_select, rings},
	{"epoll_wait", SYS_epoll_wait, p_epoll, rings},
	{"epoll_wait_time", SYS_epoll_wait, p_epoll_soon, 0},
	{"epoll_pwait", SYS_epoll_pwait, p_epoll, rings},
	{"epoll_pwait_time", SYS_epoll_pwait, p_epoll_soon, 0},
	{"epoll_pwait2_time", SYS_epoll_pwait2, p_epoll2_soon, 0},
	{"semop", SYS_semop, p_semaphore, raises},
	{"semtimedop", SYS_semtimedop, p_semaphore, raises},
	{"semtimedop_time", SYS_semtimedop, p_semaphore_soon, 0},
	{"io_getevents_time", SYS_io_getevents, p_aio, 0},
	{"io_pgetevents_time", 333, p_aio, 0},
	{"rt_sigtimedwait", SYS_rt_sigtimedwait, p_signal, signals},
	{"rt_sigtimedwait_time", SYS_rt_sigtimedwait, p_signal_soon, 0},
	{"io_uring_enter", SYS_io_uring_enter, p_uring, rings},
	// Calls that the kernel restarts by itself.
	{"kernel_read", SYS_read, p_pipe, rings},
	{"kernel_poll", SYS_poll, p_poll, rings},
	{"kernel_nanosleep_time", SYS_nanosleep, p_sleep, 0},
	{"kernel_futex_time", SYS_futex, p_futex, 0},
};

static void *other(void *of) {
	const struct row *row = of;
	char line[16];
	if (!fgets(line, sizeof line, stdin)) _exit(0);
	if (row->other) row->other();
	return 0;
}

static long call(long number, long *after) {
	register long r10 __asm__("r10") = after[3], r8 __asm__("r8") = after[4], r9 __asm__("r9") = after[5];
	__asm__ volatile("syscall"
		: "+a"(number), "+D"(after[0]), "+S"(after[1]), "+d"(after[2]), "+r"(r10), "+r"(r8), "+r"(r9)::"rcx", "r11", "memory");
	after[3] = r10, after[4] = r8, after[5] = r9;
	return number;
}

int main(int count, char **of) {
	const struct row *row = rows, *end = rows + sizeof rows / sizeof *rows;
	if (count < 2) {
		for (; row < end; row++) printf("%s %ld %s\n", row->name, row->number, row->other ? "go" : "time");
		return 0;
	}
	while (row < end && strcmp(row->name, of[1])) row++;
	if (row == end) return 8;
	signal(SIGPIPE, SIG_IGN);
	sigset_t blocked;
	sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1), sigprocmask(SIG_BLOCK, &blocked, 0);
	for (long i = 0; i < WHOLE; i++) bytes[i] = at(i);
	row->prepare();
	pthread_t thread;
	pthread_create(&thread, 0, other, (void *)row);
	printf("ready\n"), fflush(stdout);
	long after[6];
	memcpy(after, arguments, sizeof after);
	struct timespec began, ended;
	clock_gettime(CLOCK_MONOTONIC, &began);
	long answer = call(row->number, after);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	int early = (ended.tv_sec - began.tv_sec) * 1000000000 + ended.tv_nsec - began.tv_nsec < soon.tv_nsec;
	int changed = memcmp(after, arguments, sizeof after) || memcmp(pieces, before, sizeof before);
	if (row->other) pthread_join(thread, 0);
	if (row->other == fills) wrong += !!memcmp(bytes, got, WHOLE);
	if (row->prepare == p_semaphore || row->prepare == p_semaphore_soon) semctl(own, 0, IPC_RMID);
	for (int i = 0; i < MESSAGES && row->prepare == p_sendmmsg; i++) wrong += messages[i].msg_len != LENGTH;
	// A call that accepts returns a new descriptor, the same each time.
	printf("%s: %ld, %ld wrong, %ld taken%s%s\n", row->name, answer, wrong, rang, changed ? ", arguments changed" : "",
		!row->other && early ? ", too early" : "");
	return 0;
}
