/*
 * Instruments for C (C11) and C++ (C++17): events that a program writes into a session of refit.
 *
 *     static refit_event get = REFIT_EVENT("kv", "Store::get", REFIT_U64("key"));
 *
 *     int main(void) {
 *         refit_attach();                          // once; 0 if the environment names no session
 *         refit_begin(&get, 4711, 0);
 *         refit_end(&get, 4711, 0);
 *     }
 *
 * Nothing but libc is needed when the program runs. Without a session an event costs two loads and two branches.
 * Recording is safe in signal handlers; the first use of an event is not, where there is a session: refit_register() it
 * before. GCC or Clang on x86-64 Linux.
 *
 * The same memory is written by Rust programs: how it is laid out and why it is right stands in the crate
 * refit-instruments, in `session/layout.rs` and `ring.rs`. The numbers below are compared with those by a test.
 */
#ifndef REFIT_H
#define REFIT_H

#if !defined(__x86_64__) || !defined(__linux__)
#error "refit.h is for Linux on x86-64"
#endif

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#else
/* Strict C hides them; they are there. */
extern long syscall(long number, ...);
extern int clock_gettime(int clock, struct timespec *time);
#endif
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));
#ifdef __cplusplus
}
#endif

/* Where things are, in words of 64 bits: session/layout.rs. */
enum {
	REFIT_HEADER = 64,
	REFIT_DEFINITION = 64,
	REFIT_CELL = 2,
	REFIT_RING = 32,
	REFIT_SLOT = 4,
	REFIT_AT_MAGIC = 0,
	REFIT_AT_VERSION = 1,
	REFIT_AT_CLOCK = 2,
	REFIT_AT_PROCESSORS = 3,
	REFIT_AT_RECORDS = 4,
	REFIT_AT_DEFINITIONS = 5,
	REFIT_AT_DEFINED = 6,
	REFIT_AT_STATE = 7,
	REFIT_AT_RECORDER = 8,
	REFIT_AT_RECORDER_BEGAN = 9,
	REFIT_AT_DUMPS = 10,
	REFIT_AT_ASKED = 11,
	REFIT_AT_STOOD = 12,
	REFIT_AT_SYSTEM = 13,
	REFIT_RING_RESERVED = 0,
	REFIT_RING_LOST = 1,
	REFIT_RING_LIMIT = 16,
	REFIT_DEF_STATE = 0,
	REFIT_DEF_SWITCH = 1,
	REFIT_DEF_ROLE = 2,
	REFIT_DEF_PARENT = 3,
	REFIT_DEF_NAME = 4,
	REFIT_DEF_NAME_WORDS = 28,
	REFIT_DEF_MANAGER = 32,
	REFIT_DEF_MANAGER_WORDS = 12,
	REFIT_DEF_FIELDS = 44,
	REFIT_DEF_FIELD_COUNT = 4,
	REFIT_DEF_FIELD_WORDS = 5,
	REFIT_VERSION = 1
};

/* What readers may make of an event: role numbers of session/definitions.rs. */
enum {
	REFIT_PLAIN, REFIT_REQUEST, REFIT_CHANGE, REFIT_WAIT, REFIT_HOLD,
	REFIT_SWITCH_IN, REFIT_SWITCH_OUT, REFIT_DUMP
};

/* What happened: phases of record.rs. */
enum {
	REFIT_PHASE_POINT, REFIT_PHASE_BEGIN, REFIT_PHASE_END, REFIT_PHASE_SAMPLE,
	REFIT_PHASE_OUT, REFIT_PHASE_IN
};

/* Kinds of fields, 64 bits each but for the last two. */
#define REFIT_U64(name) { 1, name }
#define REFIT_I64(name) { 2, name }
#define REFIT_F64(name) { 3, name }
#define REFIT_ADDRESS(name) { 4, name }
#define REFIT_TICKS(name) { 5, name }
#define REFIT_U32(name) { 6, name }
#define REFIT_I32(name) { 7, name }

typedef struct refit_field {
	unsigned char kind;
	const char *name;
} refit_field;

/* An event: static, and made by REFIT_EVENT. */
typedef struct refit_event {
	uint64_t *entry; /* its definition in the session; null: none yet */
	uint32_t id;
	uint32_t role;
	const char *manager;
	const char *name;
	refit_field fields[REFIT_DEF_FIELD_COUNT];
} refit_event;

/* Up to four fields may follow the name. */
#define REFIT_EVENT(manager, ...) REFIT_EVENT_OF(REFIT_PLAIN, manager, __VA_ARGS__)
#define REFIT_EVENT_OF(role, manager, ...) \
	{ 0, 0, role, manager, REFIT_NAME_(__VA_ARGS__, 0), { REFIT_FIELDS_(__VA_ARGS__, { 0, 0 }) } }
#define REFIT_NAME_(name, ...) name
#define REFIT_FIELDS_(name, ...) __VA_ARGS__

/* The session of this program; one, however many files include this one. */
typedef struct refit_session_ {
	uint64_t *words; /* null: none */
	uint64_t processors, records, definitions;
	uint64_t *rings, *slots;
	ptrdiff_t rseq; /* 0: the kernel is asked for the processor */
	int cycles;
} refit_session_;

__attribute__((weak)) refit_session_ refit_current_;
/* The thread's number, 0 if it is not known, with the top bit set while it records. */
__attribute__((weak)) __thread uint32_t refit_thread_;

/* `rf-sessn` in little-endian. */
#define REFIT_MAGIC 0x6e737365732d6672ull
#define REFIT_BUSY_ 0x80000000u
#define REFIT_CLOSED_ (1ull << 63)
#define REFIT_WAITS_ 1u
#define REFIT_ENDED_ 2u
#define REFIT_COLD_ __attribute__((cold, noinline, unused)) static
#define REFIT_LOAD_(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define REFIT_STORE_(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)

static inline uint64_t refit_now_(void)
{
	struct timespec time;
	if (refit_current_.cycles)
		return __builtin_ia32_rdtsc();
	clock_gettime(4 /* CLOCK_MONOTONIC_RAW */, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline uint32_t refit_processor_(void)
{
	uint32_t cpu = UINT32_MAX;
	if (refit_current_.rseq != 0)
		__asm__ volatile("movl %%fs:4(%1), %0" : "=r"(cpu) : "r"(refit_current_.rseq));
	if (cpu >= refit_current_.processors)
		syscall(SYS_getcpu, &cpu, NULL, NULL);
	return cpu;
}

/* 1: written; 0: the ring is full or closed. See ring.rs for the proof. */
static inline int refit_write_(uint64_t *ring, uint64_t *slots, uint64_t head, uint64_t a, uint64_t b)
{
	uint64_t number = __atomic_load_n(&ring[REFIT_RING_RESERVED], __ATOMIC_RELAXED), time, *slot;
	do {
		/* Pairs with the Release of `Ring::give_back`. */
		if (number >= REFIT_LOAD_(&ring[REFIT_RING_LIMIT]))
			return 0;
		time = refit_now_();
	} while (!__atomic_compare_exchange_n(&ring[REFIT_RING_RESERVED], &number, number + 1, 1,
					      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	slot = slots + (number & (refit_current_.records - 1)) * REFIT_SLOT;
	REFIT_STORE_(&slot[1], head);
	REFIT_STORE_(&slot[2], a);
	REFIT_STORE_(&slot[3], b);
	/* Pairs with the Acquire of `Ring::read`. */
	__atomic_store_n(&slot[0], time, __ATOMIC_RELEASE);
	return 1;
}

/* Whether the recorder is there: its process has the number and the begin that the header says, and is no zombie. */
REFIT_COLD_ int refit_recorder_lives_(void)
{
	uint64_t *words = refit_current_.words, id = REFIT_LOAD_(&words[REFIT_AT_RECORDER]), began = 0;
	char path[32] = "/proc/", text[1024], digits[20], *at = path + 6, *end;
	int count = 0, field;
	long file, length;
	if (id == 0)
		return 0;
	for (; id != 0; id /= 10)
		digits[count++] = (char)('0' + id % 10);
	while (count > 0)
		*at++ = digits[--count];
	memcpy(at, "/stat", 6);
	file = syscall(SYS_openat, -100 /* AT_FDCWD */, path, 02000000 /* O_CLOEXEC */);
	if (file < 0)
		return 0;
	length = syscall(SYS_read, file, text, sizeof text - 1);
	syscall(SYS_close, file);
	if (length <= 0)
		return 0;
	text[length] = 0;
	/* The name, in parentheses, can hold anything; state is the next field, and 19 later the begin. */
	end = strrchr(text, ')');
	if (end == NULL || end + 2 >= text + length || strchr("ZXx", end[2]) != NULL)
		return 0;
	for (field = 0, end += 2; *end != 0 && field < 19; end++)
		field += *end == ' ';
	for (; *end >= '0' && *end <= '9'; end++)
		began = began * 10 + (uint64_t)(*end - '0');
	return began == REFIT_LOAD_(&words[REFIT_AT_RECORDER_BEGAN]);
}

/* The record found no place: it is counted as lost or, in dump mode, waits for some; see session/area.rs. */
REFIT_COLD_ void refit_refused_(uint64_t *ring, uint64_t *slots, uint64_t head, uint64_t a, uint64_t b, int nested)
{
	uint64_t *words = refit_current_.words, none = 0, since = 0;
	const struct timespec look = { 0, 250000000 };
	for (;;) {
		uint32_t dump = (uint32_t)REFIT_LOAD_(&words[REFIT_AT_DUMPS]);
		uint64_t state;
		if (refit_write_(ring, slots, head, a, b)) {
			/* The dump ended before we noted that we wait: the next would seem to begin then. */
			if (since != 0)
				__atomic_compare_exchange_n(&words[REFIT_AT_STOOD], &since, 0, 0,
							    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
			return;
		}
		state = REFIT_LOAD_(&words[REFIT_AT_STATE]);
		if (state & REFIT_ENDED_)
			return;
		if (!(state & REFIT_WAITS_) || nested) {
			__atomic_fetch_add(&ring[REFIT_RING_LOST], 1, __ATOMIC_RELAXED);
			return;
		}
		if (since == 0) {
			uint64_t now = refit_now_();
			none = 0;
			if (__atomic_compare_exchange_n(&words[REFIT_AT_STOOD], &none, now, 0,
							__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
				since = now;
		}
		if (!(REFIT_LOAD_(&ring[REFIT_RING_RESERVED]) & REFIT_CLOSED_)) {
			__atomic_fetch_add(&words[REFIT_AT_ASKED], 1, __ATOMIC_ACQ_REL);
			syscall(SYS_futex, &words[REFIT_AT_ASKED], 1 /* FUTEX_WAKE */, INT32_MAX);
		}
		syscall(SYS_futex, &words[REFIT_AT_DUMPS], 0 /* FUTEX_WAIT */, dump, &look);
		if (!refit_recorder_lives_()) {
			__atomic_fetch_or(&words[REFIT_AT_STATE], REFIT_ENDED_, __ATOMIC_ACQ_REL);
			__atomic_fetch_add(&words[REFIT_AT_DUMPS], 1, __ATOMIC_ACQ_REL);
			syscall(SYS_futex, &words[REFIT_AT_DUMPS], 1 /* FUTEX_WAKE */, INT32_MAX);
		}
	}
}

/* `text` as words, `first` (if it is not 0) before it, cut to whole characters and filled with zeros. */
REFIT_COLD_ void refit_text_(uint64_t *words, unsigned count, unsigned char first, const char *text)
{
	char *bytes = (char *)words;
	size_t room = count * 8u - (first != 0), length = strlen(text);
	if (length > room)
		for (length = room; length > 0 && (text[length] & 0xc0) == 0x80;)
			length--;
	memset(words, 0, count * 8u);
	if (first != 0)
		*bytes++ = (char)first;
	memcpy(bytes, text, length);
}

/* Whether the text is in the table as it would be written there. */
REFIT_COLD_ int refit_same_(const uint64_t *words, unsigned count, const char *text)
{
	uint64_t other[REFIT_DEF_NAME_WORDS];
	refit_text_(other, count, 0, text);
	return memcmp(words, other, count * 8u) == 0;
}

enum { REFIT_KIND_EVENT_ = 1, REFIT_KIND_MANAGER_ = 4 };

REFIT_COLD_ int refit_is_(const uint64_t *entry, unsigned kind, const char *manager, const char *name)
{
	return entry[REFIT_DEF_ROLE] >> 32 == kind
	    && refit_same_(entry + REFIT_DEF_NAME, REFIT_DEF_NAME_WORDS, name)
	    && refit_same_(entry + REFIT_DEF_MANAGER, REFIT_DEF_MANAGER_WORDS, manager);
}

/* Where to look for a name first: FNV-1a over manager and name. */
REFIT_COLD_ uint32_t refit_hash_(const char *manager, const char *name)
{
	uint32_t hash = 0x811c9dc5u;
	for (; *manager != 0; manager++)
		hash = (hash ^ (unsigned char)*manager) * 0x01000193u;
	for (; *name != 0; name++)
		hash = (hash ^ (unsigned char)*name) * 0x01000193u;
	return hash;
}

/* The entry of a manager, if there is one; a new event begins as that is. */
REFIT_COLD_ int refit_manager_suspended_(const char *manager)
{
	uint64_t i, count = refit_current_.definitions;
	uint32_t hash = refit_hash_("system", manager);
	for (i = 0; i < count; i++) {
		uint64_t *entry = refit_current_.words + REFIT_HEADER
				+ ((hash + i) & (count - 1)) * REFIT_DEFINITION;
		uint64_t state = REFIT_LOAD_(&entry[REFIT_DEF_STATE]);
		if (state == 0)
			return 0;
		if (state == 2 && refit_is_(entry, REFIT_KIND_MANAGER_, "system", manager))
			return REFIT_LOAD_(&entry[REFIT_DEF_SWITCH]) != 0;
	}
	return 0;
}

REFIT_COLD_ void refit_fill_(uint64_t *entry, const refit_event *event)
{
	unsigned i;
	entry[REFIT_DEF_ROLE] = (uint64_t)REFIT_KIND_EVENT_ << 32 | event->role;
	entry[REFIT_DEF_PARENT] = 0;
	refit_text_(entry + REFIT_DEF_NAME, REFIT_DEF_NAME_WORDS, 0, event->name);
	refit_text_(entry + REFIT_DEF_MANAGER, REFIT_DEF_MANAGER_WORDS, 0, event->manager);
	for (i = 0; i < REFIT_DEF_FIELD_COUNT && event->fields[i].kind != 0; i++)
		refit_text_(entry + REFIT_DEF_FIELDS + i * REFIT_DEF_FIELD_WORDS, REFIT_DEF_FIELD_WORDS,
			    event->fields[i].kind, event->fields[i].name);
	/* Pairs with the Acquire of who looks for it. */
	__atomic_store_n(&entry[REFIT_DEF_STATE], 2, __ATOMIC_RELEASE);
	__atomic_fetch_add(&refit_current_.words[REFIT_AT_DEFINED], 1, __ATOMIC_ACQ_REL);
	/* Pairs with the fences of who switches: either that sees the entry, or we its switch. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (refit_manager_suspended_(event->manager))
		__atomic_fetch_or(&entry[REFIT_DEF_SWITCH], 2, __ATOMIC_ACQ_REL);
	if (REFIT_LOAD_(&refit_current_.words[REFIT_AT_SYSTEM]) != 0)
		__atomic_fetch_or(&entry[REFIT_DEF_SWITCH], 4, __ATOMIC_ACQ_REL);
}

/* Makes the event known to the session now instead of at its first use. */
REFIT_COLD_ void refit_register(refit_event *event)
{
	uint64_t i, count = refit_current_.definitions;
	uint32_t hash = refit_hash_(event->manager, event->name);
	if (refit_current_.words == NULL)
		return;
	for (i = 0; i < count; i++) {
		uint64_t index = (hash + i) & (count - 1), none = 0;
		uint64_t *entry = refit_current_.words + REFIT_HEADER + index * REFIT_DEFINITION;
		int attempts = 1000;
		if (__atomic_compare_exchange_n(&entry[REFIT_DEF_STATE], &none, 1, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			refit_fill_(entry, event);
		else
			while (REFIT_LOAD_(&entry[REFIT_DEF_STATE]) != 2 && attempts-- > 0)
				syscall(SYS_sched_yield);
		if (REFIT_LOAD_(&entry[REFIT_DEF_STATE]) == 2
		    && refit_is_(entry, REFIT_KIND_EVENT_, event->manager, event->name)) {
			__atomic_store_n(&event->id, (uint32_t)index + 1, __ATOMIC_RELAXED);
			/* Pairs with the Acquire in `refit_event_`. */
			__atomic_store_n(&event->entry, entry, __ATOMIC_RELEASE);
			return;
		}
	}
}

static inline void refit_event_(refit_event *event, uint32_t phase, uint64_t a, uint64_t b)
{
	uint64_t *entry = REFIT_LOAD_(&event->entry), *ring, *slots, head;
	uint32_t found, processor;
	if (__builtin_expect(entry == NULL, 0)) {
		if (refit_current_.words == NULL)
			return;
		refit_register(event);
		entry = REFIT_LOAD_(&event->entry);
		if (entry == NULL)
			return;
	}
	if (__atomic_load_n(&entry[REFIT_DEF_SWITCH], __ATOMIC_RELAXED) != 0)
		return;
	found = refit_thread_;
	if (__builtin_expect(found == 0, 0))
		found = (uint32_t)syscall(SYS_gettid);
	*(volatile uint32_t *)&refit_thread_ = found | REFIT_BUSY_;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	processor = refit_processor_();
	if (processor < refit_current_.processors) {
		ring = refit_current_.rings + (uint64_t)processor * REFIT_RING;
		slots = refit_current_.slots + (uint64_t)processor * refit_current_.records * REFIT_SLOT;
		head = (uint64_t)(found & ~REFIT_BUSY_) << 32 | (event->id << 3 | phase);
		if (__builtin_expect(!refit_write_(ring, slots, head, a, b), 0))
			refit_refused_(ring, slots, head, a, b, (found & REFIT_BUSY_) != 0);
	}
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*(volatile uint32_t *)&refit_thread_ = found;
}

/* It happened, with these 16 bytes of payload. */
static inline void refit_record(refit_event *event, uint64_t a, uint64_t b)
{
	refit_event_(event, REFIT_PHASE_POINT, a, b);
}

/* It begins in this thread, until refit_end. */
static inline void refit_begin(refit_event *event, uint64_t a, uint64_t b)
{
	refit_event_(event, REFIT_PHASE_BEGIN, a, b);
}

static inline void refit_end(refit_event *event, uint64_t a, uint64_t b)
{
	refit_event_(event, REFIT_PHASE_END, a, b);
}

/* It has this value now. */
static inline void refit_sample(refit_event *event, uint64_t value)
{
	refit_event_(event, REFIT_PHASE_SAMPLE, value, 0);
}

/* A child of fork is another thread. */
__attribute__((unused)) static void refit_forget_thread_(void)
{
	refit_thread_ = 0;
}

/* Maps the session at `path`; 1 if the program records into it now, 0 if there is none. */
REFIT_COLD_ int refit_attach_path(const char *path)
{
	refit_session_ session;
	long file, length, address;
	uint64_t *words, rings, slots;
	memset(&session, 0, sizeof session);
	file = syscall(SYS_openat, -100 /* AT_FDCWD */, path, 02000002 /* O_CLOEXEC | O_RDWR */);
	if (file < 0)
		return 0;
	length = syscall(SYS_lseek, file, 0L, 2 /* SEEK_END */);
	address = length < REFIT_HEADER * 8 ? -1 :
		syscall(SYS_mmap, 0L, length, 3 /* read, write */, 0x8001 /* MAP_SHARED | MAP_POPULATE */,
			file, 0L);
	syscall(SYS_close, file);
	if (address < 0)
		return 0;
	words = (uint64_t *)address;
	session.words = words;
	session.cycles = words[REFIT_AT_CLOCK] == 1;
	session.processors = words[REFIT_AT_PROCESSORS];
	session.records = words[REFIT_AT_RECORDS];
	session.definitions = words[REFIT_AT_DEFINITIONS];
	/* Pairs with the Release of who made it. */
	if (REFIT_LOAD_(&words[REFIT_AT_MAGIC]) != REFIT_MAGIC || words[REFIT_AT_VERSION] != REFIT_VERSION
	    || session.processors - 1 >= 1u << 16 || session.records - 1 >= 1u << 30
	    || session.definitions - 1 >= 1u << 20 || (session.records & (session.records - 1)) != 0
	    || (session.definitions & (session.definitions - 1)) != 0)
		return 0;
	rings = REFIT_HEADER + session.definitions * REFIT_DEFINITION
	      + session.processors * session.definitions * REFIT_CELL;
	rings = (rings + REFIT_RING - 1) / REFIT_RING * REFIT_RING;
	slots = (rings + session.processors * REFIT_RING + 511) / 512 * 512;
	if ((uint64_t)length / 8 < slots + session.processors * session.records * REFIT_SLOT)
		return 0;
	/* Locked as far as the limit permits. */
	syscall(SYS_mlock2, address, length, 0L);
	session.rings = words + rings;
	session.slots = words + slots;
	/* `cpu_id` is the second half word of struct rseq. */
	if (&__rseq_size != NULL && __rseq_size >= 8)
		session.rseq = __rseq_offset;
	pthread_atfork(NULL, NULL, refit_forget_thread_);
	refit_current_ = session;
	return 1;
}

/* Maps the session that the environment variable REFIT_SESSION names. */
REFIT_COLD_ int refit_attach(void)
{
	const char *path = getenv("REFIT_SESSION");
	return path != NULL && refit_attach_path(path);
}

#endif
