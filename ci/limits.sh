#!/bin/sh
# Programs of Debian under `refit run`, without a limit and with half of the memory that they take, against the same alone: what they
# write and their exit codes are compared. Within the limit, the caches of their regions and the budget are swapped every 10 ms; and once more
# without swaps, while the store is slow at times and refuses pages.
#   ci/limits.sh                  each program REFIT_LIMITS_ROUNDS times (100)
#   ci/limits.sh sort perl …      only these
# At the end it counts as `cargo test` does, so that ./test can add it up.
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
need_packages /usr/bin/time:time
. ci/debian/stage.sh
rounds=${REFIT_LIMITS_ROUNDS:-100}

# swap GLOB IMPLEMENTATION…: swaps objects every 10 ms while the program runs. That there are none yet, or that one ends meanwhile, is no
# fault; that a swap goes wrong is, and shows in the program.
swap() {
	swapper=
	trap '[ -z "$swapper" ] || kill "$swapper" 2>/dev/null; exit 0' TERM
	while kill -0 "$program" 2>/dev/null; do
		"$refit" --json swap "$@" --every 10ms >>swapped 2>/dev/null &
		swapper=$!
		wait "$swapper" || sleep 0.02
	done
}

# Lets what is behind caches be slow, and refuse pages, while the program runs: objects that there are by then, again and again.
harm() {
	while kill -0 "$program" 2>/dev/null; do
		"$refit" wrap 'fr:*' fault method=read delay=2ms every=20 >/dev/null 2>&1 || true
		"$refit" wrap 'fr:*' fault method=write error=28 every=10 >/dev/null 2>&1 || true
		# Until there are others, or the store is asked again.
		sleep 0.3
		"$refit" unwrap 'fr:*' fault >/dev/null 2>&1 || true
	done
}

# under NAME BESIDE OPTION… -- COMMAND: whether it says and ends as it does alone, while something is done beside it: nothing, swap, harm.
under() {
	name=$1 beside=$2 code=0
	shift 2
	timeout 300 "$refit" run "$@" >said 2>errors &
	program=$!
	others=$program swaps=''
	case $beside in
	swap)
		swap 'anonymous:*' shared partitioned sequential &
		swaps=$!
		swap 'budget:*' global local &
		swaps="$swaps $!"
		;;
	harm)
		harm &
		swaps=$!
		;;
	esac
	others="$program $swaps"
	wait "$program" || code=$?
	for one in $swaps; do
		kill "$one" 2>/dev/null || true
		wait "$one" 2>/dev/null || true
	done
	others=''
	same "$name" "round $round under refit run $1 $2, beside it $beside" "$code"
}

# try NAME COMMAND: its peak in kilobytes is what the kernel has seen of the largest process of it.
try() {
	name=$1
	alone /usr/bin/time -q -f %M -o peak sh -c "$2"
	peak=$(tail -n 1 peak)
	half=$((peak / 2))
	[ "$half" -ge 2048 ] || half=2048
	round=0
	while [ "$round" -lt "$rounds" ]; do
		round=$((round + 1))
		under "$name" nothing -- sh -c "$2"
		under "$name" swap --memory "${half}K" -- sh -c "$2"
		under "$name" harm --memory "${half}K" -- sh -c "$2"
	done
	echo "$name: $rounds rounds without a limit and with $half K of $peak K"
}

. "$repository/ci/debian/programs.sh"
summary
