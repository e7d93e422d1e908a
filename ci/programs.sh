#!/bin/sh
# Programs with all their functions watched and poisoned, for longer than ./test does it (REFIT_PROGRAMS_ROUNDS, 10), and
# servers under load that are watched with all their libraries: each that is installed of redis, nginx, squid, postgres, one
# in Go (server.go), and whatever of musl and Go.
#   ci/programs.sh                      everything
#   ci/programs.sh redis squid …        only these servers
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
# Squid reads its settings from elsewhere.
settings=$(cd "$top/bench" && pwd)/squid.conf
if [ $# = 0 ]; then
	REFIT_PROGRAMS_ROUNDS=${REFIT_PROGRAMS_ROUNDS:-10} cargo test --locked --release -p refit --test programs
	set -- redis nginx squid postgres go
fi
need_refit
folder=$(mktemp -d) server='' beside=''
# Servers that give root up work below it.
chmod 755 "$folder"
finish() {
	for one in $server $beside; do
		kill "$one" 2>/dev/null || continue
		wait "$one" 2>/dev/null || true
	done
	rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

there() {
	for command; do
		command -v "$command" >/dev/null || { echo "left out: there is no $command"; return 1; }
	done
}

# Runs a command as the user that is named, if we are root.
as() {
	user=$1
	shift
	if [ "$(id -u)" = 0 ]; then
		exec setpriv --reuid="$user" --regid="$user" --clear-groups "$@"
	fi
	exec "$@"
}

# Waits until a command works.
until_it_works() {
	tries=0
	until "$@" >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ "$tries" -lt 300 ] || { echo "does not begin to work: $*"; exit 1; }
		sleep 0.2
	done
}

# Loads the server and the processes that it has made while they are watched, then poisoned, and looks whether they are as before.
under_load() {
	processes=$(echo "$server" $(cat "/proc/$server/task/$server/children") | tr ' ' ,)
	"$1" >"$folder/load" 2>&1 || { cat "$folder/load"; exit 1; }
	watched_under_load "$1" probe -e 'uprobe:*:* { count, latency }'
	watched_under_load "$1" probe -e 'uprobe:*:* { latency, poison }'
	kill -INT "$server"
	wait "$server" 2>/dev/null || true
	server=''
}

watched_under_load() {
	load=$1
	shift
	# What the last one said must not be taken for what this one says.
	: >"$folder/said"
	"$refit" --json "$@" -p "$processes" >"$folder/told" 2>"$folder/said" &
	probing=$!
	while ! grep -q watching "$folder/said"; do
		kill -0 "$probing" || { cat "$folder/said"; exit 1; }
		sleep 0.1
	done
	"$load" >"$folder/load" 2>&1 || { cat "$folder/load" "$folder/said"; exit 1; }
	kill -INT "$probing"
	wait "$probing" || { cat "$folder/said"; exit 1; }
	for process in $(echo "$processes" | tr , ' '); do
		"$refit" repair --verify -p "$process"
	done
	passed=$(grep -c '"count":[1-9]' "$folder/told") || { echo "$load: $*: no place was passed"; exit 1; }
	echo "$load: $*: $(grep watching "$folder/said"); $passed places passed"
}

redis() {
	there redis-server redis-benchmark || return 0
	redis-server --port 0 --unixsocket "$folder/redis" --save '' --daemonize no >/dev/null &
	server=$!
	until_it_works redis-cli -s "$folder/redis" ping
	under_load load_redis
}

load_redis() {
	redis-benchmark -s "$folder/redis" -q -n 20000
}

# A server of files for other servers, too: begins as the process that is told last.
start_nginx() {
	mkdir -p "$folder/www"
	echo hello >"$folder/www/index.html"
	cat >"$folder/nginx.conf" <<-END
		daemon off; master_process off; pid $folder/pid; error_log $folder/errors;
		events {}
		http { access_log off; server { listen 127.0.0.1:18080; root $folder/www; expires 1h; } }
	END
	nginx -c "$folder/nginx.conf" &
}

nginx_answers() {
	curl -sf http://127.0.0.1:18080/
}

nginx_() {
	there nginx wrk || return 0
	start_nginx
	server=$!
	until_it_works nginx_answers
	under_load load_nginx
}

load_nginx() {
	wrk -c 16 -t 2 -d 5 http://127.0.0.1:18080/
}

# Squid with a cache in memory and one on disk that is too small for what is asked for, before nginx; bytes are compared.
squid_() {
	there squid nginx || return 0
	start_nginx
	beside=$!
	mkdir -p "$folder/squid" "$folder/www/some"
	[ "$(id -u)" != 0 ] || chown proxy "$folder/squid"
	for number in $(seq 1 400); do
		head -c $((number * 197)) "$refit" >"$folder/www/some/$number"
	done
	cat >"$folder/squid.conf" <<-END
		http_port 127.0.0.1:18082
		cache_dir ufs $folder/squid/cache 8 4 16
		cache_mem 4 MB
		cache_log $folder/squid/log
		include $settings
	END
	squid -f "$folder/squid.conf" -N -z 2>"$folder/made" || { cat "$folder/made"; exit 1; }
	squid -f "$folder/squid.conf" -N &
	server=$!
	until_it_works through_squid index.html
	under_load load_squid
	kill "$beside"
	wait "$beside" 2>/dev/null || true
	beside=''
}

through_squid() {
	curl -sf -x http://127.0.0.1:18082 "http://127.0.0.1:18080/$1"
}

load_squid() {
	mkdir -p "$folder/got"
	for turn in 1 2 3; do
		curl -sf -Z --parallel-max 8 -x http://127.0.0.1:18082 -o "$folder/got/#1" 'http://127.0.0.1:18080/some/[1-400]'
		diff -r "$folder/www/some" "$folder/got"
	done
	rm -r "$folder/got"
}

postgres() {
	programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
	there "${programs:-postgresql}/postgres" pgbench psql || return 0
	mkdir "$folder/postgres"
	[ "$(id -u)" != 0 ] || chown postgres "$folder/postgres"
	(as postgres "$programs/initdb" -D "$folder/postgres/data" -U postgres -A trust --no-sync >"$folder/made" 2>&1) ||
		{ cat "$folder/made"; exit 1; }
	as postgres "$programs/postgres" -D "$folder/postgres/data" -k "$folder/postgres" -c listen_addresses= -c autovacuum=off 2>"$folder/errors" &
	server=$!
	export PGHOST="$folder/postgres" PGUSER=postgres
	until_it_works pgbench -i -q postgres
	until_it_works only_lasting_processes
	under_load load_postgres
}

# Whether those are gone that serve clients.
only_lasting_processes() {
	for process in $(cat "/proc/$server/task/$server/children"); do
		case $(tr '\0' ' ' <"/proc/$process/cmdline") in *'[local]'*) return 1 ;; esac
	done
}

# What was paid has to add up, and a query with all kinds of plans to say what it says without probes.
load_postgres() {
	pgbench -c 4 -j 2 -t 300 postgres
	sums=$(psql -tA -c 'select sum(abalance) from pgbench_accounts' -c 'select sum(bbalance) from pgbench_branches' \
		-c 'select sum(tbalance) from pgbench_tellers' postgres | sort -u | wc -l)
	[ "$sums" = 1 ] || { echo 'balances differ'; return 1; }
	psql -tA -c "select md5(string_agg(t::text, ',' order by t)) from (select a.aid % 97, count(*), avg(a.aid)::numeric(20, 5),
		max(to_char(a.aid, '9,999,999')) from pgbench_accounts a join pgbench_tellers t on a.aid % 10 + 1 = t.tid
		where a.filler like '% %' and a.aid::text ~ '[13]+.*7' group by 1) t" postgres >"$folder/answer" 2>&1 || { cat "$folder/answer"; return 1; }
	[ -e "$folder/expected" ] || cp "$folder/answer" "$folder/expected"
	cmp "$folder/answer" "$folder/expected"
}

# A server whose goroutines share threads; every answer is compared with that of the first time.
go_() {
	there go curl || return 0
	go build -o "$folder/server" ci/server.go
	"$folder/server" 2>"$folder/errors" &
	server=$!
	until_it_works curl -sf http://127.0.0.1:18083/1
	under_load load_go
}

load_go() {
	mkdir -p "$folder/answers"
	for turn in 1 2 3; do
		curl -sf -Z --parallel-max 16 -o "$folder/answers/#1" 'http://127.0.0.1:18083/[1-500]'
		[ -e "$folder/first" ] || cp -r "$folder/answers" "$folder/first"
		diff -r "$folder/first" "$folder/answers"
	done
	rm -r "$folder/answers"
}

for name; do
	case $name in
	redis | postgres) "$name" ;;
	nginx | squid | go) "${name}_" ;;
	*) die "there is no server $name" ;;
	esac
done
