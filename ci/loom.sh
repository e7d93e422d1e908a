#!/bin/sh
# Model-checks the concurrent algorithms of refit-objects, refit-instruments and refit-sys with loom. The bound is small enough for every
# test run; LOOM_MAX_PREEMPTIONS=4 and more explore further, in minutes.
set -eu
cd "$(dirname "$0")/.."
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" RUSTFLAGS="--cfg loom"
cargo test --quiet --release -p refit-objects -p refit-instruments --lib "$@"
# The rest of it is no algorithm. A module that was renamed would be left out without a word: each is to run something.
for module in waiting wakeup; do
	# Read to its end: a pipe that is closed before is an error of the lister's.
	[ "$(cargo test --quiet --release -p refit-sys --lib -- --list "$module::" | grep -c ': test$')" != 0 ] ||
		{ echo "refit-sys: the module $module has no model" >&2; exit 1; }
done
cargo test --quiet --release -p refit-sys --lib -- waiting:: wakeup::
