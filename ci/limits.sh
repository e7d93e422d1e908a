#!/bin/sh
# Programs of Debian with half of the memory that they take, against the same without a limit: what they write and their exit codes are
# compared. Meanwhile the caches of their regions are swapped.
#   ci/limits.sh                  each program REFIT_LIMITS_ROUNDS times (10)
#   ci/limits.sh sort perl …      only these
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
need_packages /usr/bin/time:time pigz:pigz python3:python3 sqlite3:sqlite3 perl:perl git:git gcc:gcc node:nodejs stress-ng:stress-ng
cargo build -q --locked --release -p refit
refit=${CARGO_TARGET_DIR:-target}/release/refit
case $refit in /*) ;; *) refit=$PWD/$refit ;; esac
rounds=${REFIT_LIMITS_ROUNDS:-10} wanted=" $* " failed=0 swaps=''
folder=$(mktemp -d)
finish() {
	[ -z "$swaps" ] || kill "$swaps" 2>/dev/null || true
	rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM
cd "$folder"
python3 - >lines <<'END'
import random
random.seed(1)
for i in range(120000): print(i, '%x' % random.getrandbits(64))
END

# Swaps whatever is there, to and fro; that nothing is there, or that it ends meanwhile, is no fault.
while :; do
	for to in partitioned sequential shared; do
		"$refit" swap 'anonymous:*' "$to" >/dev/null 2>&1 || sleep 0.01
	done
done &
swaps=$!

# program NAME COMMAND: its peak in kilobytes is what the kernel has seen of it and its children.
program() {
	name=$1
	[ "$wanted" = '  ' ] || case $wanted in *" $name "*) ;; *) return 0 ;; esac
	code=0
	/usr/bin/time -q -f %M -o peak sh -c "$2" >alone 2>errors || code=$?
	echo "$code" >code
	peak=$(tail -n 1 peak)
	half=$((peak / 2))
	[ "$half" -ge 2048 ] || half=2048
	round=0
	while [ "$round" -lt "$rounds" ]; do
		round=$((round + 1)) code=0
		timeout 300 "$refit" run --memory "${half}K" -- sh -c "$2" >limited 2>errors || code=$?
		if [ "$code" != "$(cat code)" ] || ! cmp -s alone limited; then
			failed=$((failed + 1))
			say "$name: round $round differs, exit code $code instead of $(cat code)"
			tail -3 errors >&2
		fi
	done
	echo "$name: $rounds rounds with $half K of $peak K"
}

program sort 'sort -S 100M -k2 lines | md5sum'
program pigz 'pigz -p2 -c lines | gzip -dc | md5sum'
program threads 'python3 -c "
import threading
sums = []
def work(k): sums.append((k, sum([(i * k) % 200003 for i in range(60000)])))
threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 9)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(sums))"'
program processes 'python3 -c "
import multiprocessing
def work(k): return sum([(i * k) % 200003 for i in range(80000)])
base = list(range(200000))
with multiprocessing.Pool(4) as pool: print(pool.map(work, range(1, 17)), sum(base))"'
program sqlite 'sqlite3 :memory: "create table t(a integer primary key, b text);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 80000) insert into t select x, hex(x) || x from c;
create index i on t(b); select count(*), sum(length(b)), max(b) from t where a % 7 = 0;"'
program perl 'perl -e "my %h; for (1 .. 80000) { \$h{\$_} = \$_ x 3 } my \$s = 0; for (1 .. 80000) { \$s += length \$h{\$_} } print \"\$s\n\""'
program git 'rm -rf g && git init -q g && cp lines g && cd g && git add . && git -c user.email=a@b -c user.name=a commit -qm x && git gc -q && git cat-file -p HEAD:lines | md5sum'
program gcc 'echo "#include <stdio.h>
int main(void) { return 0; }" >a.c && gcc -O2 -c a.c -o a.o && md5sum <a.o'
program node 'node -e "let a = []; for (let i = 0; i < 120000; i++) a.push({ i, s: String(i) }); let t = 0; for (const o of a) t += o.s.length; console.log(t)"'
program shell 'x=; for i in $(seq 1 4000); do x="$x $i"; done; echo ${#x}; for i in $(seq 1 60); do (echo $i); done | md5sum'
for stressor in 'vm 2 --vm-bytes 16M --vm-ops 200' 'mmap 2 --mmap-bytes 8M --mmap-ops 20' 'fork 2 --fork-ops 300' \
	'brk 2 --brk-ops 3000' 'pthread 2 --pthread-ops 300'; do
	program "stress-${stressor%% *}" "stress-ng --$stressor --verify -q"
done
[ "$failed" = 0 ] || die "$failed rounds differ"
