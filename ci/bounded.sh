#!/bin/sh
# Runs a test binary for cargo, and ends it with all that it started if it takes too long: a test that hangs is a failure that says
# where, not a run without an end.
#
#   CARGO_TARGET_<TRIPLE>_RUNNER=$PWD/ci/bounded.sh cargo test …
#
# REFIT_TEST_LIMIT: how many seconds it may take, 900 unless told.
set -u
limit=${REFIT_TEST_LIMIT:-900}

# libtest names a thread after the test that it runs.
threads() {
	for task in "/proc/$1/task"/*; do
		printf '; %s in %s, call %s' "$(cat "$task/comm")" "$(cat "$task/wchan")" "$(cut -d' ' -f1 "$task/syscall")"
	done
}
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
report() {
	# `$!` is set as soon as there is a process to end. It does not inherit the output: a reader would wait for its end.
	trap '[ -z "${!-}" ] || kill "$!"; exit 0' TERM
	sleep "$limit" >/dev/null 2>&1 &
	wait "$!"
	# One line: what is printed last tells of failures line by line.
	printf 'failed: %s: not done within %s s' "$1" "$limit"
	for child in $(children "$parent"); do
		for process in $(children "$child"); do
			[ "$(readlink "/proc/$process/exe")" != "$(readlink -f "$1")" ] || threads "$process"
		done
	done
	echo
}

parent=$$
report "$1" &
reporter=$!
# In the foreground: what a shell runs in the background ignores SIGINT, and so would what tests start.
timeout --kill-after=10 $((limit + 2)) "$@"
status=$?
kill "$reporter" 2>/dev/null
exit "$status"
