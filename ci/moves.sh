#!/bin/sh
# The matrix of moves: small programs that are moved between instances while they run, against the same alone.
#   ci/moves.sh                              what is part of the tests
#   ci/moves.sh never once signal_ tcp …     modes (alone, never, once, 10ms, pingpong, syscall, faults=STEP), where (one-host, tcp), and
#                                            programs, by how their names begin (crates/refit/tests/moves/programs)
# Each program REFIT_MOVES_ROUNDS times (1), for MOVES_MS each (150); instances are booted with what REFIT_MOVES_BOOT says, e.g. `--lock lamport`.
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
need_packages musl-gcc:musl-tools ip:iproute2
REFIT_MOVES="$*" cargo test --locked -p refit --test moves moved_programs -- --nocapture
