#!/bin/sh
# Programs with all their functions watched and poisoned, for longer than ./test does it (REFIT_PROGRAMS_ROUNDS, 10), and
# servers under load that are watched with all their libraries: each that is installed of redis, nginx, and whatever of musl and Go.
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
REFIT_PROGRAMS_ROUNDS=${REFIT_PROGRAMS_ROUNDS:-10} cargo test --locked --release -p refit --test programs
cargo build --locked --release -p refit
refit=${CARGO_TARGET_DIR:-target}/release/refit
folder=$(mktemp -d) server=
finish() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	[ -z "$server" ] || wait "$server" 2>/dev/null || true
	rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

# Loads a server while it is watched, then poisoned, and looks whether it is as before.
under_load() {
	for probe in 'uprobe:*:* { count, latency }' 'uprobe:*:* { latency, poison }'; do
		"$refit" --json probe -p "$server" -e "$probe" >"$folder/told" 2>"$folder/said" &
		probing=$!
		while ! grep -q watching "$folder/said"; do
			kill -0 "$probing" || { cat "$folder/said"; exit 1; }
			sleep 0.1
		done
		"$@" >"$folder/load" 2>&1 || { cat "$folder/load"; exit 1; }
		kill -INT "$probing"
		wait "$probing"
		"$refit" repair --verify -p "$server"
		echo "$1: $probe: $(grep watching "$folder/said"); $(grep -c '"count":[1-9]' "$folder/told") places passed"
	done
	kill "$server"
	wait "$server" 2>/dev/null || true
	server=
}

if command -v redis-server >/dev/null && command -v redis-benchmark >/dev/null; then
	redis-server --port 0 --unixsocket "$folder/redis" --save '' --daemonize no >/dev/null &
	server=$!
	until redis-cli -s "$folder/redis" ping >/dev/null 2>&1; do sleep 0.1; done
	under_load redis-benchmark -s "$folder/redis" -q -n 20000
fi
if command -v nginx >/dev/null && command -v wrk >/dev/null; then
	mkdir -p "$folder/www"
	echo hello >"$folder/www/index.html"
	cat >"$folder/nginx.conf" <<-END
		daemon off; master_process off; pid $folder/pid; error_log $folder/errors;
		events {}
		http { access_log off; server { listen 127.0.0.1:18080; root $folder/www; } }
	END
	nginx -c "$folder/nginx.conf" &
	server=$!
	until curl -sf http://127.0.0.1:18080/ >/dev/null; do sleep 0.1; done
	under_load wrk -c 16 -t 2 -d 5 http://127.0.0.1:18080/
fi
