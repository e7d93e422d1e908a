#!/bin/sh
# Where squid's time goes while it stores small objects, found as in KernInst's study of a web proxy (docs/studies/squid.md).
#   bench/squid.sh            the study, then the cures; some six minutes, as root or as any user
#   bench/squid.sh study      only where the time goes
#   bench/squid.sh cures      only what becomes of it with other stores
# REFIT: the command. Numbers go to standard output.
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
# Squid reads its settings from elsewhere.
settings=$(cd "$top/bench" && pwd)/squid.conf
need_packages squid:squid nginx:nginx-light wrk:wrk jq:jq
refit=${REFIT:-${CARGO_TARGET_DIR:-target}/release/refit}
[ -x "$refit" ] || cargo build --release --locked -q -p refit
number=0 port=18092 behind=18090 seconds=${SECONDS_EACH:-10}
folder=$(mktemp -d) origin='' server='' mount='' load=''
# Squid gives root up, and works in a folder of its own below.
chmod 755 "$folder"

end() {
	[ -n "$1" ] || return 0
	kill -INT "$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
}
finish() {
	end "$load"
	end "$server"
	end "$mount"
	end "$origin"
	rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

until_it_works() {
	tries=0
	until "$@" >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ "$tries" -lt 300 ] || die "does not begin to work: $*"
		sleep 0.2
	done
}

# An origin that has 6 KB under every name, and a load that asks for a new name each time: nothing is ever in the cache.
start_origin() {
	mkdir "$folder/www"
	head -c 6000 /dev/zero | tr '\0' x >"$folder/www/file"
	cat >"$folder/nginx.conf" <<-END
		daemon off; master_process off; pid $folder/pid; error_log $folder/errors; events {}
		http { access_log off; server {
			listen 127.0.0.1:$behind; root $folder/www; expires 1h; location / { try_files /file =404; }
		} }
	END
	cat >"$folder/load.lua" <<-END
		local began, n = os.time(), 0
		function request()
			n = n + 1
			return wrk.format("GET", "http://127.0.0.1:$behind/" .. began .. "/" .. n)
		end
	END
	nginx -c "$folder/nginx.conf" &
	origin=$!
	until_it_works curl -sf "http://127.0.0.1:$behind/x"
}

# Starts squid with this store, whose folder is @; it asks the origin for whatever it is asked for. Folders of those before stay until
# the end: creating files where many have been deleted just now takes longer.
start_squid() {
	number=$((number + 1))
	own=$folder/squid$number
	mkdir "$own"
	[ "$(id -u)" != 0 ] || chown proxy "$own"
	[ -z "$mount_it" ] || start_mount
	cat >"$folder/squid.conf" <<-END
		http_port 127.0.0.1:$port
		$(echo "$1" | sed "s|@|$own|")
		cache_mem 4 MB
		cache_log $folder/squid.log
		include $settings
	END
	: >"$folder/squid.log"
	chmod 666 "$folder/squid.log"
	squid -n study -f "$folder/squid.conf" -N -z 2>"$folder/made" || { cat "$folder/made" >&2; exit 1; }
	squid -n study -f "$folder/squid.conf" -N &
	server=$!
	until_it_works curl -sf -x "http://127.0.0.1:$port" "http://127.0.0.1:$behind/x"
}

start_mount() {
	mkdir -p "$own/under" "$own/cache"
	[ "$(id -u)" != 0 ] || chown proxy "$own/under"
	"$refit" mount "$own/under" "$own/cache" --allow-other --frames 512M >"$folder/mounted" 2>&1 &
	mount=$!
	until_it_works mountpoint -q "$own/cache"
}

stop_squid() {
	end "$server"
	server=''
	end "$mount"
	mount=''
}

# Loads squid for so many seconds, until `end`.
begin_load() {
	wrk -c 16 -t 1 -d "$1" -s "$folder/load.lua" "http://127.0.0.1:$port/" >"$folder/wrk" &
	load=$!
}

load() {
	begin_load "$1"
	wait "$load"
	load=''
	! grep 'Non-2xx' "$folder/wrk" >&2
}

# Time that squid's process has had, in milliseconds: its own and the kernel's for it.
spent() {
	awk -v tick="$(getconf CLK_TCK)" '{ sub(/^.*\) /, ""); print ($12 + $13) * 1000 / tick }' "/proc/$server/stat"
}

run() {
	echo "\$ refit $*" | sed "s|$server|SQUID|g; s|$folder/||g"
	"$refit" "$@" 2>/dev/null | grep -v '^ *0 ns'
	echo
}

study() {
	mount_it=''
	start_squid "cache_dir ufs @/cache 1000 16 256"
	load 4
	begin_load $((seconds * 9))
	sleep 2
	files='uprobe:libc:open,uprobe:libc:write,uprobe:libc:read,uprobe:libc:close,uprobe:libc:epoll_wait'
	run probe -p "$server" --for "${seconds}s" -e "$files { latency, cpu, concurrency }"
	run probe -p "$server" --for 3s -e 'uprobe:squid:*SwapDir*finalizeSwapoutSuccess* { count }' \
		-e 'uprobe:squid:*UFSSwapDir*unlinkFile* { count }' -e 'uprobe:squid:_ZN10StoreEntry7swapOutEv { latency, cpu }'
	run drill -p "$server" --for 3s _ZN4Comm8DoSelectEi
	run drill -p "$server" --for 3s _ZN10StoreEntry7swapOutEv
	run drill -p "$server" --for 3s '_ZN2Fs3Ufs11UFSStrategy6createE*'
	run drill -p "$server" --for 3s _ZN12BlockingFile4openEij8RefCountI11IORequestorE
	run probe -p "$server" --for 3s -e 'uprobe:libc:open { histogram arg1 }'
	end "$load"
	load=''
	stop_squid
}

# A line of the table: the store's name and its cache_dir.
cure() {
	start_squid "$2"
	load 4
	before=$(spent)
	load "$seconds"
	after=$(spent)
	rate=$(awk '/Requests\/sec/ { print $2 }' "$folder/wrk")
	requests=$(awk '/requests in/ { print $1 }' "$folder/wrk")
	begin_load $((seconds + 60))
	sleep 2
	"$refit" --json probe -p "$server" --for "${seconds}s" -e 'uprobe:squid:*SwapDir*finalizeSwapoutSuccess* { count }' \
		-e 'uprobe:squid:_Z20clientProcessRequest* { count }' \
		-e 'uprobe:libc:open,uprobe:libc:write,uprobe:libc:pwrite { latency, cpu }' >"$folder/told" 2>/dev/null
	end "$load"
	load=''
	jq -rs --arg name "$1" --arg rate "$rate" --arg requests "$requests" --arg ms "$(awk "BEGIN { print $after - $before }")" '
		def sum(filter): [.[] | select(filter)] ;
		(sum(.action == "count" and (.name | test("finalize"))) | map(.count) | add // 0) as $stored |
		(sum(.action == "count" and (.name | test("clientProcess"))) | map(.count) | add // 0) as $asked |
		def us(action; name): (sum(.action == action and .name == name) | map(.nanos) | add // 0) / 1000 / ([$stored, 1] | max) | round;
		"| \($name) | \($rate) | \(1000 * ($ms | tonumber) / ($requests | tonumber) | round) | \(100 * $stored / ([$asked, 1] | max) | round) % | " +
		if $stored == 0 then "| |" else "\(us("latency"; "open")) / \(us("cpu"; "open")) | \(us("latency"; "write") + us("latency"; "pwrite")) / \(us("cpu"; "write") + us("cpu"; "pwrite")) |" end
	' "$folder/told"
	stop_squid
}

cures() {
	cat <<-END
		| store | requests/s | time of the processor for a request, µs | of them stored | in \`open\` for each that is stored, µs: by the clock / of the processor | in \`write\`, the same |
		|---|---|---|---|---|---|
	END
	mount_it=''
	cure 'none (no cache on disk)' ''
	cure 'ufs, 16 × 256 directories' "cache_dir ufs @/cache 1000 16 256"
	cure 'ufs, 64 × 256 directories' "cache_dir ufs @/cache 1000 64 256"
	cure 'aufs (threads)' "cache_dir aufs @/cache 1000 16 256"
	cure 'diskd (a process)' "cache_dir diskd @/cache 1000 16 256"
	cure 'rock (one file)' "cache_dir rock @/cache 1000 slot-size=8192"
	mount_it=yes
	cure 'ufs on a `refit mount`' "cache_dir ufs @/cache/in 1000 16 256"
	mount_it=''
}

start_origin
case ${1:-all} in
study) study ;;
cures) cures ;;
all)
	study
	cures
	;;
*) die "there is no part $1" ;;
esac
