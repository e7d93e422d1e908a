#!/bin/sh
# Runs the programs' own test suites while their hot code is replaced by copies in another order every two seconds
# (crates/refit-optimize/examples/rearrange.rs): Python's, with and without threads. Arguments are the names of tests of Python.
# Takes five minutes.
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
need_packages /usr/lib/python3.11/test/test_re.py:libpython3.11-testsuite python3:python3
cargo build --release --locked -q -p refit-optimize --example rearrange
if [ $# = 0 ]; then
	set -- test_re test_json test_dict test_list test_long test_unicode test_decimal test_exceptions \
		test_coroutines test_threading test_sort test_set test_deque test_collections test_itertools test_bytes test_struct \
		test_pickle test_ast test_compile test_dis test_random test_statistics test_zlib test_hashlib test_weakref
fi
# In one process, and again and again: a suite that ends in seconds is over before its code is hot.
# The shell has background commands ignore SIGINT, which some tests send.
env --default-signal=INT /usr/bin/python3 -m test --forever --timeout=300 --fail-env-changed "$@" >"${TMPDIR:-/tmp}/rearranged.$$" 2>&1 &
suite=$!
sleep 2 # Only what is hot depends on it.
ended=0
timeout "${REFIT_REARRANGED_SECONDS:-300}" "${CARGO_TARGET_DIR:-target}/release/examples/rearrange" "$suite" || ended=$?
# 0: the suite has ended; 124: the time was over.
[ $ended = 0 ] || [ $ended = 124 ] || die "its code could not be replaced"
if ! kill -TERM "$suite" 2>/dev/null; then
	echo "the suite has ended:"
	tail -n 40 "${TMPDIR:-/tmp}/rearranged.$$"
	exit 1
fi
wait "$suite" || true
tail -n 5 "${TMPDIR:-/tmp}/rearranged.$$"
rm -f "${TMPDIR:-/tmp}/rearranged.$$"
