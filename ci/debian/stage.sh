# Sourced by ci/limits.sh and ci/movable.sh, behind ci/setup.sh: a folder where programs run, first as they are, then by refit.
#
#   program NAME COMMAND   has the caller's `try` do what it does with a program, unless the command line leaves it out
#   alone COMMAND…         runs it as it is: what it writes, and how it ends, is what it should be; that it fails so is no test
#   same NAME HOW CODE     compares what it has written to `said` otherwise, and its exit code; counts in `failed`, and says in `wrong`
#   summary                counts as `cargo test` does, so that ./test can add it up
#
# What the caller has started and not waited for is in `others`, and is killed at the end.
need_packages pigz:pigz xz:xz-utils zstd:zstd python3:python3 sqlite3:sqlite3 perl:perl git:git gcc:gcc make:make node:nodejs stress-ng:stress-ng \
	redis-server:redis-server redis-benchmark:redis-tools nginx:nginx-light
need_refit
repository=$PWD wanted=" $* " passed=0 failed=0 wrong=0 others=''
folder=$(mktemp -d)
# Servers that give root up work below it.
chmod 755 "$folder"
finish() {
	for one in $others; do
		kill -KILL "$one" 2>/dev/null || continue
		wait "$one" 2>/dev/null || true
	done
	rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM
cd "$folder"
# Other instances of this user are nobody's business here.
export REFIT_RUNTIME_DIR="$folder/sockets"

program() {
	case $wanted in '  ' | *" $1 "*) ;; *) return 0 ;; esac
	wrong=0
	try "$1" "$2"
	[ "$wrong" = 1 ] || passed=$((passed + 1))
}

alone() {
	code=0
	"$@" >alone 2>errors || code=$?
	echo "$code" >code
	[ "$code" = 0 ] || { tail -n 3 errors >&2; die "alone, it ends with $code: $*"; }
}

same() {
	[ "$3" != "$(cat code)" ] || ! cmp -s alone said || return 0
	failed=$((failed + 1)) wrong=1
	# Marked line by line, so that ./test repeats all of it at its end.
	{
		echo "$1: $2, differs, exit code $3 instead of $(cat code)"
		diff alone said | head -n 5 || true
		tail -n 3 errors
	} | sed 's/^/failed: /' >&2
}

summary() {
	[ "$failed" = 0 ] && how=ok || how=FAILED
	echo "test result: $how. $passed passed; $failed failed; 0 ignored"
	[ "$failed" = 0 ] || die "$failed rounds differ"
}
