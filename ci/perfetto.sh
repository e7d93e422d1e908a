#!/bin/sh
# Asks Perfetto's own trace_processor what is in a file that refit exported; says so where there is none.
set -eu
cd "$(dirname "$0")/.."
processor=$(command -v trace_processor_shell || command -v trace_processor || true)
if [ -z "$processor" ]; then
	echo "not run: there is no trace_processor; https://perfetto.dev/docs/analysis/trace-processor says how to get it"
	exit 0
fi
directory=$(mktemp -d)
trap 'rm -r "$directory"' EXIT
REFIT_PERFETTO_FILE="$directory/trace" cargo test --locked -q -p refit-instruments --test read perfetto::a_file_for_perfetto
ask() {
	echo "$1" >"$directory/query"
	"$processor" -q "$directory/query" "$directory/trace" | tail -n 1 | tr -d '"'
}
expect() {
	found=$(ask "$1")
	[ "$found" = "$2" ] || { echo "expected $2, found $found: $1"; exit 1; }
}
expect "select count(*) from slice where name = 'fcm::read'" 1
expect "select count(*) from slice join track on slice.track_id = track.id where track.name = 'change 3'" 3
expect "select count(*) from flow" 2
expect "select count(*) from counter join track on counter.track_id = track.id where track.name = 'frames'" 1
expect "select count(*) from thread where tid = 101 and name = 'worker'" 1
expect "select count(*) from clock_snapshot" 8
echo "trace_processor finds what was written"
