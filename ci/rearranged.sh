#!/bin/sh
# Runs programs' own test suites while their hot code is replaced by copies in another order every two seconds
# (crates/refit-optimize/examples/rearrange.rs):
#
#   rearranged.sh [python [TEST …]]   Python's suite, with and without threads
#   rearranged.sh mariadb [TEST …]    the main suite of MariaDB, by clients of one server
#
# Each takes five minutes (REFIT_REARRANGED_SECONDS).
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
seconds=${REFIT_REARRANGED_SECONDS:-300}
own=$(mktemp -d)
server=
end() {
	if [ -n "$server" ]; then
		kill "$server" 2>/dev/null || true
		wait "$server" || true
	fi
	rm -rf "$own"
}
trap end EXIT
trap 'exit 1' INT TERM

# Replaces the code of a process again and again, until the time is over.
rearrange() {
	ended=0
	timeout "$seconds" "${CARGO_TARGET_DIR:-target}/release/examples/rearrange" "$1" || ended=$?
	# 0: the process has ended; 124: the time was over.
	[ $ended = 0 ] || [ $ended = 124 ] || die "its code could not be replaced"
}

python() {
	need_packages /usr/lib/python3.11/test/test_re.py:libpython3.11-testsuite python3:python3
	if [ $# = 0 ]; then
		set -- test_re test_json test_dict test_list test_long test_unicode test_decimal test_exceptions \
			test_coroutines test_threading test_sort test_set test_deque test_collections test_itertools test_bytes test_struct \
			test_pickle test_ast test_compile test_dis test_random test_statistics test_zlib test_hashlib test_weakref
	fi
	# In one process, and again and again: a suite that ends in seconds is over before its code is hot.
	# The shell has background commands ignore SIGINT, which some tests send.
	env --default-signal=INT /usr/bin/python3 -m test --forever --timeout=300 --fail-env-changed "$@" >"$own/told" 2>&1 &
	server=$!
	sleep 2 # Only what is hot depends on it.
	rearrange "$server"
	if ! kill -TERM "$server" 2>/dev/null; then
		echo "the suite has ended:"
		tail -n 40 "$own/told"
		exit 1
	fi
	wait "$server" || true
	server=
	tail -n 5 "$own/told"
}

# Runs tests of MariaDB by clients of the server; its output goes to a file.
mtr() {
	told=$1
	shift
	(cd "$mtr" && exec perl mysql-test-run.pl --extern "socket=$own/socket" --user=root --force --max-test-fail=0 \
		--vardir="$own/var" --suite=main "$@") >"$told" 2>&1
}

mariadb() {
	mtr=/usr/share/mysql/mysql-test
	need_packages $mtr/mtr:mariadb-test mariadbd:mariadb-server
	# Those that need no options or files of a server that the suite has started itself.
	[ $# -gt 0 ] || set -- select sp func_str func_group func_time func_in func_if func_like func_set func_compress func_concat \
		func_regexp type_date type_datetime type_float type_blob type_enum update having limit derived count_distinct analyze case \
		key rename truncate user_var
	sed "s|@ENV.MYSQLTEST_VARDIR||; s|@ENV.MYSQL_TEST_DIR|$mtr|" $mtr/include/default_mysqld.cnf >"$own/options"
	mariadb-install-db --no-defaults --user=root --auth-root-authentication-method=normal --datadir="$own/data" >"$own/log" 2>&1
	mariadbd --defaults-file="$own/options" --user=root --skip-networking --datadir="$own/data" --socket="$own/socket" \
		--pid-file="$own/pid" >>"$own/log" 2>&1 &
	server=$!
	for _ in $(seq 100); do
		[ ! -S "$own/socket" ] || break
		sleep 0.1 # Until it listens, ten seconds at most.
	done
	mtr "$own/told" "$@" || { tail -n 40 "$own/told"; die "tests of MariaDB fail without refit"; }
	rearrange "$server" &
	rearranging=$!
	rounds=0
	while kill -0 "$rearranging" 2>/dev/null; do
		mtr "$own/told" "$@" || { tail -n 40 "$own/told"; die "tests of MariaDB fail while its code is replaced"; }
		rounds=$((rounds + 1))
	done
	wait "$rearranging"
	grep '^Completed' "$own/told"
	echo "$rounds times"
}

cargo build --release --locked -q -p refit-optimize --example rearrange
suite=${1:-python}
[ $# = 0 ] || shift
case $suite in
python | mariadb) "$suite" "$@" ;;
*) die "there are the suites python and mariadb" ;;
esac
