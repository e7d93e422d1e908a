#!/bin/sh
# Programs unwind their stack at every instruction that they execute, without spliced code and then with it at every function
# (unwind.c says how a stack is known to be right). Prints what was examined; fails if a stack is wrong in or near spliced
# code.
#   ci/unwind.sh          some programs with many kinds of probes; five to ten minutes
#   ci/unwind.sh long     more programs, each that is installed, with fewer kinds of probes; fails below 10,000 functions
#
# UNWINDER says which unwinder is asked: libgcc (GCC's runtime library) or libunwind (nongnu). UNWIND_STEPS says how far each
# run goes (500,000; long: 4,000,000), UNWIND_PAUSE for how many microseconds a program goes on by itself when it has come to
# nothing new (0; long: 300).
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
need_packages python3:python3 sqlite3:sqlite3 perl:perl git:git openssl:openssl
case ${1:-} in '') steps=500000 pause=0 least=0 ;; long) steps=4000000 pause=300 least=10000 ;; *) die "it is $0 [long]" ;; esac
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
functions=0 wrong=0
: >"$folder/functions"

# Both runs have the same addresses, so that functions can be compared.
stepping() { setarch -R env LD_PRELOAD="$folder/unwind.so" "$@" <"$input" >"$folder/output" 2>&1; }

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
	echo "$(basename "$1") $actions: $result"
	grep '^wrong' "$folder/log" || true
	functions=$((functions + $(echo "$result" | sed 's/.* instructions of \([0-9]*\) functions.*/\1/')))
	wrong=$((wrong + $(echo "$result" | sed 's/.*: \([0-9]*\) wrong/\1/')))
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
	watch '{ count }' "$(gcc -print-prog-name=cc1)" -quiet -O3 -g "$folder/a.c" -o /dev/null
	watch '{ exits }' "$(gcc -print-prog-name=cc1)" -quiet -O2 "$folder/a.c" -o /dev/null
	perhaps '{ count }' clang -cc1 -O2 -emit-obj -o /dev/null "$folder/a.c"
	watch '{ count, latency }' /usr/bin/python3 "$folder/a.py"
	watch '{ exits }' perl "$folder/a.pl"
	watch '{ count, poison }' sqlite3 :memory: ".read $folder/a.sql"
	watch '{ count, histogram arg0 }' git log --stat -3
	watch '{ @[str(arg0), tid] = sum(arg1) }' openssl dgst -sha256 -hmac key "$folder/unwind.so"
	perhaps '{ count }' php -r 'echo strlen(json_encode(array_map(fn($a) => sha1(strrev($a)), preg_split("/a/", str_repeat("bab", 99)))));'
	perhaps '{ count }' gdb -nx -batch -ex 'info line main' -ex 'print sizeof(long)' /usr/bin/true
	perhaps '{ count }' vim -es -u NONE -c 'call setline(1, range(99))' -c '%s/\d/<&>/g' -c 'sort!' -c 'qa!'
	perhaps '{ count }' ffmpeg -v error -nostdin -f lavfi -i testsrc2=d=0.1:s=64x48 -threads 1 -c:v mpeg4 -bitexact -f null -
	perhaps '{ count }' gawk 'BEGIN { for (i = 0; i < 99; i++) a[i] = sprintf("%x", i * i); print asort(a), gensub(/[0-9]/, "", "g", a[7]) }'
}

"${1:-short}"
sort -u "$folder/functions" >"$folder/distinct"
distinct=$(wc -l <"$folder/distinct")
echo "$functions functions (counted once for each program and actions), $distinct distinct ones, $wrong wrong stacks"
[ $wrong = 0 ] && [ "$distinct" -ge $least ]
