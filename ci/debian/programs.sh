# Sourced by ci/limits.sh and ci/movable.sh, behind stage.sh: programs of Debian, each of which says the same each time.

python3 - >lines <<'END'
import random
random.seed(1)
for i in range(120000): print(i, '%x' % random.getrandbits(64))
END

program sort 'sort -S 100M -k2 lines | md5sum'
program coreutils 'cut -d " " -f 2 lines | cut -c 1-4 | sort >keys; uniq -c keys | md5sum; uniq -d keys | comm -23 keys - | md5sum
sort -k1,1 lines >sorted; join sorted sorted | md5sum; od -A x -t x4z lines | md5sum; sha256sum lines; tac lines | md5sum'
program pigz 'pigz -p2 -c lines | gzip -dc | md5sum'
program xz 'xz -T2 -0 --block-size=1MiB -c lines | xz -dc -T2 | md5sum'
program zstd 'zstd -q -T2 -3 -c lines | zstd -q -dc | md5sum'
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

# Ten files of C, and a program of them.
mkdir project
for i in 0 1 2 3 4 5 6 7 8 9; do
	for j in 0 1 2 3 4 5 6 7 8 9; do
		printf 'static int f%s(int x) { for (int i = 0; i < 9; i++) x = x * %s + i; return x; }\n' "$j" "$((i + j))"
	done >"project/part$i.c"
	printf 'int part%s(int x) { return f0(f1(f2(f3(f4(f5(f6(f7(f8(f9(x)))))))))); }\n' "$i" >>"project/part$i.c"
	printf 'int part%s(int);\n' "$i"
done >project/parts.h
cat >project/main.c <<'END'
#include <stdio.h>
#include "parts.h"
int main(void) { printf("%d %d %d\n", part0(1), part5(2), part9(3)); return 0; }
END
printf '%s\n' 'CFLAGS = -O2' 'all: $(patsubst %.c,%.o,$(wildcard *.c))' '	$(CC) -o $@ $^' >project/Makefile
program gcc 'cd project && rm -f all *.o && make -s -j2 && ./all && cat part*.o main.o | md5sum'

program node 'node -e "let a = []; for (let i = 0; i < 120000; i++) a.push({ i, s: String(i) }); let t = 0; for (const o of a) t += o.s.length; console.log(t)"'
program shell 'x=; for i in $(seq 1 4000); do x="$x $i"; done; echo ${#x}; for i in $(seq 1 60); do (echo $i); done | md5sum'
cat >jobs.sh <<'END'
set -m
trap 'told=1' USR1
text=$(seq 30000)
sleep 1000 & first=$!
(kill -USR1 $$; exec sleep 1000) & second=$!
until [ "${told-}" ]; do sleep 0.01; done
echo told
kill -STOP %1
until [ "$(jobs -s | wc -l)" = 1 ]; do sleep 0.01; done
kill -CONT %1
kill %1
wait $first; echo "first: $?"
kill -KILL %2
wait $second; echo "second: $?, ${#text}"
for i in 1 2 3 4; do (echo "$text" | md5sum) & done
wait
END
program jobs 'bash jobs.sh 2>/dev/null'

# What is in it is written by requests whose answers are not compared; the benchmark's own keys come before.
cat >redis.sh <<'END'
rm -f redis.sock
redis-server --port 0 --unixsocket "$PWD/redis.sock" --save '' --appendonly no --enable-debug-command yes >redis.log & server=$!
ask() { redis-cli -s redis.sock "$@"; }
until [ "$(ask ping 2>/dev/null)" = PONG ]; do kill -0 $server || exit 1; sleep 0.02; done
redis-benchmark -s redis.sock -q -n 20000 -t set,get,lpush >/dev/null || echo "the benchmark has failed"
ask flushall
awk 'BEGIN { for (i = 0; i < 20000; i++) print "set key:" i " " i * 7919 "abcdefghijklmnopqrstuvwxyz"
	for (i = 0; i < 5000; i++) print "lpush list " i * 31 }' | ask >answers
tail -n 1 answers
ask dbsize; ask debug digest; ask get key:777; ask lrange list 100 102
ask shutdown nosave; wait $server; echo $?
END
program redis 'sh redis.sh'

mkdir www
cp lines www/lines
head -c 3000000 /dev/zero | tr '\0' z >www/zeros
cat >nginx.conf <<END
user root; daemon off; pid $folder/nginx.pid; error_log $folder/nginx.log; worker_processes 2;
events { }
http { access_log off; gzip on; gzip_types *; gzip_buffers 64 64k; gzip_min_length 0; output_buffers 2 256k; sendfile off;
	client_body_temp_path $folder/t1; proxy_temp_path $folder/t2; fastcgi_temp_path $folder/t3; uwsgi_temp_path $folder/t4; scgi_temp_path $folder/t5;
	server { listen unix:$folder/nginx.sock; root $folder/www; } }
END
cat >nginx.sh <<'END'
rm -f nginx.sock
nginx -c "$PWD/nginx.conf" -e "$PWD/nginx.log" & server=$!
get() { curl -s --compressed --unix-socket nginx.sock "http://here/$1"; }
until [ -S nginx.sock ] && get lines >/dev/null; do kill -0 $server || exit 1; sleep 0.02; done
for i in 1 2 3 4 5 6 7 8; do (get lines | md5sum) & (get zeros | md5sum) & done | sort
kill -QUIT $server; wait $server; echo $?
END
program nginx 'sh nginx.sh'

for stressor in 'mremap 2 --mremap-bytes 8M --mremap-ops 40' 'vm 2 --vm-bytes 16M --vm-ops 200' 'mmap 2 --mmap-bytes 8M --mmap-ops 20' 'fork 2 --fork-ops 300' \
	'brk 2 --brk-ops 3000' 'pthread 2 --pthread-ops 300'; do
	program "stress-${stressor%% *}" "stress-ng --$stressor --verify -q"
done
