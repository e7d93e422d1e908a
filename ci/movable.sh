#!/bin/sh
# Programs of Debian, of Go and Rust, and of OpenMP that can be moved, against the same alone: what they write and their exit codes are compared.
#   ci/movable.sh                  each program REFIT_MOVABLE_ROUNDS times (20) in each of the ways in REFIT_MOVABLE_WAYS (never)
#   ci/movable.sh sort perl …      only these
# A way is how often a program is moved: `never`, though it could be, or a time, such as `50ms`, after which each of its threads goes to the
# other of two instances.
# At the end it counts as `cargo test` does, so that ./test can add it up.
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
need_packages go:golang-go
. ci/debian/stage.sh
rounds=${REFIT_MOVABLE_ROUNDS:-20} ways=${REFIT_MOVABLE_WAYS:-never}
case $ways in
never) ;;
*)
	trap '"$refit" shutdown --kill >/dev/null || true; finish' EXIT
	"$refit" boot --instances 2 >/dev/null
	;;
esac

# moved WAY COMMAND…: runs it so.
moved() {
	way=$1
	shift
	case $way in
	never) set -- run --movable -- "$@" ;;
	*) set -- run --on 0 --movable --roam "$way" -- "$@" ;;
	esac
	exec timeout 300 "$refit" "$@"
}

try() {
	alone sh -c "$2"
	for way in $ways; do
		round=0
		while [ "$round" -lt "$rounds" ]; do
			round=$((round + 1)) code=0
			moved "$way" sh -c "$2" >said 2>errors &
			others=$!
			wait "$others" || code=$?
			others=''
			same "$1" "round $round, moved: $way" "$code"
		done
	done
	echo "$1: $rounds rounds, moved: $ways"
}

. "$repository/ci/debian/programs.sh"

# Where they are built, the toolchain is that of the repository.
build() {
	(cd "$repository" && "$@") || die "cannot build: $*"
}
answer=crates/refit/tests/programs/answer
build go build -o "$folder/in-go" "$answer.go"
build rustc --edition=2024 -O -o "$folder/in-rust" "$answer.rs"
build gcc -O2 -pthread -o "$folder/in-c" "$answer.c"
for language in go rust c; do
	program "$language" "seq 300 | ./in-$language"
done
for workload in 'is A' 'ft W' 'cg A' 'bfs 1000000' 'lu 1024'; do
	name=${workload%% *}
	build gcc -O3 -fopenmp -o "$folder/$name" "bench/workloads/$name.c" -lm
	program "$name" "./$workload --threads 2 | grep -v ^time"
done
summary
