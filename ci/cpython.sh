#!/bin/sh
# CPython's own tests (Debian's libpython3.11-testsuite) as they are, under `refit run`, and under
# `refit run --memory`: a test that passes alone has to pass under refit.
#   ci/cpython.sh                      the modules below, about what a kernel does for a program
#   ci/cpython.sh test_os test_io …    only these
#   ci/cpython.sh --all                all modules that there are; this takes hours
# REFIT_CPYTHON_MEMORY is the limit (32M). Each module is run alone before and after: a test that
# does not pass both times says nothing. What is known to differ is in `known`, each with its reason.
# At the end it counts as `cargo test` does, so that ./test can add it up: a pass is a test that
# passed alone and in one way under refit.
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
need_packages /usr/bin/python3.11:python3.11 \
	/usr/lib/python3.11/test/test_os.py:libpython3.11-testsuite
need_refit
memory=${REFIT_CPYTHON_MEMORY:-32M}
python=/usr/bin/python3.11

modules='test_array test_bytes test_dict test_eintr test_epoll test_faulthandler test_fcntl
	test_file test_fileio test_fork1 test_gc test_interpreters test_io test_ioctl
	test_largefile test_list test_memoryview test_mmap test_openpty test_os test_pipes test_poll
	test_popen test_posix test_pty test_queue test_resource test_select test_selectors test_shutil
	test_signal test_socket test_struct test_subprocess test_support
	test_tempfile test_thread test_threadedtempfile test_threading test_threading_local
	test_threadsignals test_time test_wait3 test_wait4 test_zlib'

# WAY CLASS.TEST: what differs, and why that is so and documented.
known() {
	cat <<-'END'
	END
}

case ${1:-} in
--all) modules=$(cd /usr/lib/python3.11/test && ls -d test_* | sed 's/\.py$//' | sort -u) ;;
?*) modules=$* ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
cd "$folder"
# Other instances of this user are nobody's business here.
export REFIT_RUNTIME_DIR="$folder/sockets"
known >known

# tests FILE: the tests of a report that passed, a line each.
cat >tests.py <<'END'
import sys
import xml.etree.ElementTree as tree

try:
    cases = tree.parse(sys.argv[1]).iter("testcase")
except (OSError, tree.ParseError):
    cases = []
bad = ("failure", "error", "skipped")
passed = {c.get("name") for c in cases if c.get("status") == "run" and not any(map(c.findall, bad))}
print("".join(sorted(f"{name}\n" for name in passed)), end="")
END

# run WAY MODULE COMMAND…: runs a module; the tests that passed are in the file WAY then.
run() {
	way=$1 module=$2
	shift 2
	rm -rf report scratch
	mkdir scratch
	# How it ends does not matter: what passed is in the report, and what is not there has not.
	timeout 900 "$@" $python -m test --timeout 300 --tempdir "$PWD/scratch" \
		--junit-xml "$PWD/report" "$module" >"said.$way" 2>&1 </dev/null || true
	$python tests.py report >"$way"
}

passed=0 failed=0 same=0
for module in $modules; do
	run before "$module" env
	run plain "$module" "$refit" run --
	run limited "$module" "$refit" run --memory "$memory" --
	run after "$module" env
	LC_ALL=C comm -12 before after >alone
	for way in plain limited; do
		LC_ALL=C comm -23 alone "$way" >missing
		sed "s/^/$way /" missing | grep -vxFf known >differs || true
		count=$(wc -l <alone) new=$(wc -l <differs)
		passed=$((passed + count - new)) failed=$((failed + new))
		[ "$new" = 0 ] || { sed "s/^/$module: differs: /" differs; tail -n 30 "said.$way"; }
	done
	echo "$module: $(wc -l <alone) tests pass alone"
	same=$((same + $(wc -l <alone)))
done
[ "$same" != 0 ] || die "no test passes alone: $modules"
[ "$failed" = 0 ] && how=ok || how=FAILED
echo "test result: $how. $passed passed; $failed failed; 0 ignored"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] || die "$failed tests differ"
