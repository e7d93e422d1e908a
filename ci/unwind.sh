#!/bin/sh
# Programs unwind their stack at every instruction that they execute, without spliced code and then with it at every function
# (unwind.c says how a stack is known to be right). Prints what was examined; fails if a stack is wrong in or near spliced
# code. The long form also examines steps within the program's own code while other code of it is spliced; a stack that is
# wrong there is counted apart if it is wrong at the same instruction without spliced code, too: the program describes itself
# wrongly. Otherwise, it is wrong.
#   ci/unwind.sh          some programs with many kinds of probes; five to ten minutes
#   ci/unwind.sh long     more programs, each that is installed, with fewer kinds of probes; fails below 10,000 functions
#
# UNWINDER says which unwinder is asked: libgcc (GCC's runtime library) or libunwind (nongnu). UNWIND_STEPS says how far each
# run goes (500,000; long: 4,000,000), UNWIND_PAUSE for how many microseconds a program goes on by itself when it has come to
# nothing new (0; long: 1,000).
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
need_packages python3:python3 sqlite3:sqlite3 perl:perl git:git openssl:openssl
case ${1:-} in '') steps=500000 pause=0 least=0 ;; long) steps=4000000 pause=1000 least=10000 ;; *) die "it is $0 [long]" ;; esac
case ${UNWINDER:=libgcc} in
libgcc) with='' ;;
libunwind)
	need_packages /usr/include/x86_64-linux-gnu/libunwind.h:libunwind-dev
	with='-DLIBUNWIND -Wl,--no-as-needed -lunwind'
	;;
*) die "there is no unwinder $UNWINDER" ;;
esac
need_refit
folder=$(mktemp -d) program=''
finish() {
	[ -z "$program" ] || kill "$program" 2>/dev/null || true
	rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM
cc -O2 -Wall -Wextra -shared -fPIC -o "$folder/unwind.so" ci/unwind.c $with
mkfifo "$folder/begin"
export UNWIND_STEPS="${UNWIND_STEPS:-$steps}" UNWIND_PAUSE="${UNWIND_PAUSE:-$pause}"
functions=0 wrong=0 examined=0 inside=0 own=0
: >"$folder/functions"

# Both runs have the same addresses, so that functions can be compared.
stepping() { setarch -R env LD_PRELOAD="$folder/unwind.so" "$@" <"$input" >"$folder/output" 2>&1; }

# again COMMAND…: where a stack was wrong at a step within the program's own code, examines whether it is wrong there without
# spliced code, too. If it is not, it counts as wrong.
after() { sed -n 's/^own [0-9a-f]* in [0-9a-f]*, after \([0-9a-f]*\) .*/\1/p' "$1"; }
again() {
	after "$folder/log" | sort -u >"$folder/own"
	[ -s "$folder/own" ] || return 0
	rm -f "$folder/again"
	UNWIND_LOG=$folder/again UNWIND_AGAIN=$folder/log stepping "$@" || true
	{ sed -n 's/^again //p' "$folder/again"; after "$folder/known"; } | sort -u | comm -13 - "$folder/own" >"$folder/only"
	echo "  wrong in its own code after $(wc -l <"$folder/own") instructions, only with spliced code after $(wc -l <"$folder/only")"
	sed 's/^/  only with spliced code, after /' "$folder/only"
	wrong=$((wrong + $(wc -l <"$folder/only")))
}

# watch ACTIONS COMMAND…: runs it twice. Its exit codes and its output have to be the same.
watch() {
	actions=$1
	shift
	rm -f "$folder/known" "$folder/log" "$folder/refit"
	before=0 after=0
	UNWIND_LOG=$folder/known stepping "$@" || before=$?
	cp "$folder/output" "$folder/expected"
	UNWIND_LOG=$folder/log UNWIND_KNOWN=$folder/known UNWIND_BEGIN=$folder/begin UNWIND_FUNCTIONS=$folder/functions stepping "$@" &
	program=$!
	until [ -e "$folder/log" ]; do sleep 0.1; done
	process=$(grep -ls "$folder/unwind.so" /proc/[0-9]*/maps | cut -d/ -f3)
	"$refit" probe -p "$process" -e "uprobe:*:* $actions" >"$folder/counts" 2>"$folder/refit" &
	watching=$!
	until grep -sq '^refit: watching' "$folder/refit"; do
		kill -0 $watching || { cat "$folder/refit"; exit 1; }
		sleep 0.1
	done
	echo >"$folder/begin"
	wait $program || after=$?
	program=''
	wait $watching
	[ $before = $after ] || { echo "$1: exit code $after, without spliced code $before"; exit 1; }
	cmp "$folder/expected" "$folder/output"
	result=$(sed -n 's/^\([0-9]* steps.*\)/\1/p' "$folder/log")
	[ -n "$result" ] || die "$1: $actions: it has not said what it has done"
	echo "$(basename "$1") $actions: $result"
	grep '^wrong\|^none' "$folder/log" || true
	again "$@"
	set -- $(echo "$result" | sed 's/[^0-9]\{1,\}/ /g')
	examined=$((examined + $2)) inside=$((inside + $3)) functions=$((functions + $5))
	# Spliced code without a description is as bad as one that is wrong.
	own=$((own + $7)) wrong=$((wrong + $6 + $8))
}

cat >"$folder/a.py" <<'END'
import collections, csv, decimal, hashlib, io, json, re, struct, zlib
rows = [{"a": n, "b": str(n) * 3, "c": n / 7} for n in range(40)]
text = json.dumps(rows)
words = collections.Counter(re.findall(r"[a-z]+|\d+", text))
table = io.StringIO()
csv.DictWriter(table, "abc").writerows(json.loads(text))
packed = zlib.compress(table.getvalue().encode())
print(len(text), len(words), decimal.Decimal(2).sqrt(), hashlib.sha256(packed).hexdigest(), struct.pack("<id", 7, 2.5))
try:
    int("x")
except ValueError as error:
    print(sorted(rows, key=lambda row: -row["c"])[0], error)
END
cat >"$folder/a.pl" <<'END'
use strict; use warnings; use Data::Dumper; use POSIX qw(floor strftime); use List::Util qw(sum first);
my %table = map { $_ => sprintf("%05.2f|%s", $_ * 1.7, join ",", reverse split //, "abc$_") } 1 .. 40;
$Data::Dumper::Sortkeys = 1;
my $text = Dumper(\%table);
$text =~ s/(\d+)/<$1>/g;
print length $text, " ", sum(map { floor($_) } keys %table), strftime("%Y", gmtime 0), first { $_ > 3 } sort { $a <=> $b } keys %table;
eval { die { code => 7 } };
print $@->{code}, unpack("H*", pack("N*", 1, 2)), "\n";
END
cat >"$folder/a.sql" <<'END'
create table t(a integer primary key, b text, c real);
create index i on t(b);
with recursive n(x) as (select 1 union all select x + 1 from n where x < 200) insert into t select x, hex(x * 77), x * 1.5 from n;
select count(*), sum(c), group_concat(substr(b, 1, 2)) from t where b > '33' order by c desc;
update t set c = c * 2 where a % 3 = 0;
delete from t where a % 7 = 1;
select json_group_array(json_object('a', a, 'b', b)) from t where a < 9;
vacuum;
pragma integrity_check;
END
cat >"$folder/a.c" <<'END'
struct s { int a; double b; char c[9]; struct s *n; };
int f(struct s *v, int n) {
	int t = 0;
	for (int i = 0; i < n; i++) switch (v[i].a % 7) {
	case 0: t += i; break;
	case 1: t ^= v[i].c[2]; break;
	case 3: t -= (int)v[i].b;
	default: t *= 3;
	}
	return t;
}
double g(struct s *v, float x) { while (v) x += v->b * x, v = v->n; return x; }
END
cat >"$folder/b.c" <<'END'
typedef float quad __attribute__((vector_size(16)));
typedef unsigned long size;
enum kind { NONE, SOME = 4, ALL };
struct tree { struct tree *side[2]; enum kind kind : 3; unsigned low : 11, high : 18; union { double d; long l; char c[12]; } u; };
static const char *const names[] = { "none", [SOME] = "some", "all" };
extern int printf(const char *, ...), puts(const char *);
extern void *malloc(size), *memcpy(void *, const void *, size), *memset(void *, int, size);
static _Thread_local int depth;
static inline struct tree *grown(struct tree *t, long key) {
	if (!t) {
		t = malloc(sizeof *t);
		memset(t, 0, sizeof *t);
		t->u.l = key;
	} else t->side[t->u.l < key] = grown(t->side[t->u.l < key], key);
	t->kind = t->side[0] && t->side[1] ? ALL : t->side[0] || t->side[1] ? SOME : NONE;
	return t;
}
quad mixed(quad a, quad b) { return a * b + (quad){ 1, 2, 3, 4 } - __builtin_shuffle(a, (__typeof__(__extension__(int __attribute__((vector_size(16)))){}) ){ 3, 2, 1, 0 }); }
int sum(int n, ...) {
	__builtin_va_list rest;
	int all = 0;
	__builtin_va_start(rest, n);
	while (n-- > 0) all += n & 1 ? __builtin_va_arg(rest, int) : (int)__builtin_va_arg(rest, double);
	__builtin_va_end(rest);
	return all;
}
_Complex double turned(_Complex double z, int n) { for (; n; n >>= 1) z = n & 1 ? z * z : z / 2; return z; }
long counted(struct tree *t) { depth++; long n = t ? t->low + counted(t->side[0]) + counted(t->side[1]) : 0; depth--; return n; }
void scaled(double *restrict a, const double *restrict b, const int *c, int n) {
	for (int i = 0; i < n; i++) a[i] = c[i] > 3 ? b[i] * 3 + a[i] : __builtin_sqrt(b[i]) / (1 + c[i]);
	for (int i = 1; i < n; i++) for (int j = 0; j < i; j++) a[i * 8 % n] += b[j] * c[i];
}
unsigned hashed(const unsigned char *text, size length) {
	unsigned h = 17, room[length % 9 + 1];
	for (size i = 0; i < length; i++) h = (h << 5 | h >> 27) ^ text[i], room[i % (length % 9 + 1)] = h;
	__builtin_memcpy(&h, room, sizeof h);
	__asm__ volatile("bswap %0" : "+r"(h));
	return __builtin_popcount(h) * 0x9e3779b9u / 7 % 1009;
}
int parsed(const char *at) {
	void *next[] = { &&digit, &&sign, &&end };
	int value = 0, minus = 0;
	goto *next[*at == '-' ? 1 : *at ? 0 : 2];
sign: minus = 1, at++;
digit: while (*at >= '0' && *at <= '9') value = value * 10 + *at++ - '0';
end: return minus ? -value : value;
}
__int128 product(long a, unsigned long b) { return (__int128)a * b / 1000003 + (a % 7 << b % 61); }
static int compared(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
extern void qsort(void *, size, size, int (*)(const void *, const void *));
int main(int count, char **words) {
	struct tree *t = 0;
	int all[64];
	for (int i = 0; i < 64; i++) t = grown(t, all[i] = i * 37 % 61 * parsed(words[i % count]));
	qsort(all, 64, sizeof *all, compared);
	switch (all[7]) { case 1: case 5 ... 9: puts(names[SOME]); break; case 100: return sum(3, 1, 2.0, 3); default: printf("%s\n", names[t->kind]); }
	return (int)counted(t) + (int)hashed((const unsigned char *)all, sizeof all) + (int)product(all[1], 7) + (int)__real__ turned(2, count);
}
END
grep -v '__asm__\|__builtin_shuffle' "$folder/b.c" >"$folder/c.c"
input=/dev/null

short() {
	for actions in '{ count }' '{ latency }' '{ count, poison }' '{ exits }' '{ @[ustack(3)] = count() }'; do
		watch "$actions" /usr/bin/python3 "$folder/a.py"
		watch "$actions" perl "$folder/a.pl"
		watch "$actions" sqlite3 :memory: ".read $folder/a.sql"
	done
	watch '{ count, histogram arg0 }' git log --stat -3
	watch '{ count }' "$(gcc -print-prog-name=cc1)" -quiet -O2 "$folder/a.c" -o /dev/null
	watch '{ @[str(arg0), tid] = sum(arg1) }' openssl dgst -sha256 -hmac key "$folder/unwind.so"
}

# Runs a program if it is installed.
perhaps() {
	if command -v "$2" >/dev/null; then watch "$@"; else echo "left out: there is no $2"; fi
}

long() {
	watch '{ count }' "$(gcc -print-prog-name=cc1)" -quiet -O3 -g "$folder/b.c" -o /dev/null
	watch '{ exits }' "$(gcc -print-prog-name=cc1)" -quiet -O2 -fsanitize=undefined "$folder/b.c" -o /dev/null
	perhaps '{ count }' clang -cc1 -O3 -debug-info-kind=limited -vectorize-loops -vectorize-slp -emit-obj -o /dev/null "$folder/c.c"
	perhaps '{ exits }' clang -cc1 -triple aarch64-linux -O2 -emit-obj -o /dev/null "$folder/c.c"
	watch '{ count, latency }' /usr/bin/python3 "$folder/a.py"
	watch '{ exits }' perl "$folder/a.pl"
	watch '{ count, poison }' sqlite3 :memory: ".read $folder/a.sql"
	watch '{ count, histogram arg0 }' git log --stat -3
	# A text would be copied by a system call at each call within the unwinder, too, which takes forever.
	watch '{ @[arg0, tid] = sum(arg1) }' openssl dgst -sha256 -hmac key "$folder/unwind.so"
	perhaps '{ count }' php -r 'echo strlen(json_encode(array_map(fn($a) => sha1(strrev($a)), preg_split("/a/", str_repeat("bab", 99)))));'
	perhaps '{ count }' gdb -nx -batch -ex 'info line main' -ex 'print sizeof(long)' /usr/bin/true
	perhaps '{ count }' vim -es -u NONE -c 'call setline(1, range(99))' -c '%s/\d/<&>/g' -c 'sort!' -c 'qa!'
	perhaps '{ count }' ffmpeg -v error -nostdin -f lavfi -i testsrc2=d=0.1:s=64x48 -threads 1 -c:v mpeg4 -bitexact -f null -
	perhaps '{ count }' ld -r --build-id /usr/lib/x86_64-linux-gnu/crti.o -o /dev/null
	perhaps '{ count }' objdump -d --stop-address=0x1000 -t "$folder/unwind.so"
	perhaps '{ count }' curl -s "file://$folder/a.c"
	perhaps '{ count }' bash -c 'declare -A a; for i in {1..99}; do a[$i]=${i//[0-4]/x}; done; printf "%s\n" "${!a[@]}" "${a[@]}"'
	perhaps '{ count }' povray --version
	perhaps '{ count }' gawk 'BEGIN { for (i = 0; i < 99; i++) a[i] = sprintf("%x", i * i); print asort(a), gensub(/[0-9]/, "", "g", a[7]) }'
}

"${1:-short}"
sort -u "$folder/functions" >"$folder/distinct"
distinct=$(wc -l <"$folder/distinct")
echo "$functions functions (counted once for each program and actions), $distinct distinct ones"
echo "$examined stacks, $inside of them in spliced code, $own wrong in the programs' own code as without spliced code, $wrong wrong"
[ $wrong = 0 ] && [ "$distinct" -ge $least ]
