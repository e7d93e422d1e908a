#!/bin/sh
# Tests of count.awk and quiet.awk, what they make of what `cargo test` prints, and of bounded.sh. Prints what `cargo test` prints.
set -eu
cd "$(dirname "$0")"
list=$(mktemp)
trap 'rm -f "$list"' EXIT
printf '# comment\n\nno such kernel | nobody has it yet\n' >"$list"
passed=0 failed=0
# expect CI COUNTS TEXT
expect() {
	found=$(printf '%b' "$3" | awk -v ci="$1" -v allowed="$list" -f count.awk 2>/dev/null)
	if [ "$found" = "$2" ]; then passed=$((passed + 1))
	else failed=$((failed + 1)); echo "CI=$1: expected $2, found $found, in:"; printf '%b' "$3"; fi
}
two='test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n'
skip='---- a::b stdout ----\nskipped: no /dev/fuse\nskipped: again\n\n'
expect "" "2 0 1" "$two"
expect "" "4 0 2" "$two$two"
expect "" "1 0 2" "$skip$two"
expect true "1 1 1" "$skip$two"
expect true "1 0 2" "---- c stdout ----\nskipped: no such kernel here\n$two"
expect "" "0 2 0" 'test result: FAILED. 0 passed; 2 failed; 0 ignored\nfailed: cargo test\n'
expect "" "0 1 0" 'error: it does not compile\nfailed: cargo test\n'
# shows SHOWN FAILURES TEXT
shows() {
	: >"$list"
	found=$(printf '%b' "$3" | awk -v failures="$list" -f quiet.awk; echo "|"; cat "$list")
	if [ "$found" = "$(printf '%b|\n%b' "$1" "$2")" ]; then passed=$((passed + 1))
	else failed=$((failed + 1)); echo "expected $1| $2, found $found"; fi
}
good='successes:\n\n---- a stdout ----\npanicked as asked\n\nsuccesses:\n    a\n\n'
bad='failures:\n\n---- b stdout ----\npanicked\n\nfailures:\n    b\n\n'
shows "$two" "" "$good$two"
shows "skipped: no fuse\n$two" "" "successes:\n---- c stdout ----\nskipped: no fuse\n$two"
shows "$bad$two" "failures:\n---- b stdout ----\npanicked\nfailures:\n    b" "$good$bad$two"
shows "error: said\nerror: could not compile\nfailed: x\n" "error: could not compile\nfailed: x" \
	'error: said\nerror: could not compile\nfailed: x\n'
# ends STATUS SAID COMMAND …
ends() {
	status=$1 said=$2
	shift 2
	found=$(REFIT_TEST_LIMIT=1 ./bounded.sh "$@" 2>&1) && code=0 || code=$?
	case $code:$found in
	"$status:$said"*) passed=$((passed + 1)) ;;
	*) failed=$((failed + 1)); echo "expected $status: $said, found $code: $found" ;;
	esac
}
ends 0 "done" echo "done"
ends 3 "" sh -c 'exit 3'
ends 124 "failed: $(command -v sleep): not done within 1 s; sleep in " "$(command -v sleep)" 60
echo "test result: $([ "$failed" = 0 ] && echo ok || echo FAILED). $passed passed; $failed failed; 0 ignored"
[ "$failed" = 0 ]
