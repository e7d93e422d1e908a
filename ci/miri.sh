#!/bin/sh
# Miri over the unit tests of refit-objects and refit-memory, with a nightly toolchain; says so where there is none.
set -eu
cd "$(dirname "$0")/.."
if ! rustup run nightly cargo miri --version >/dev/null 2>&1; then
	echo "not run: there is no Miri; \`rustup toolchain install nightly --component miri\` gets it"
	exit 0
fi
REFIT_MEMBARRIER=off MIRIFLAGS="-Zmiri-disable-isolation" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri" \
	cargo +nightly miri test -p refit-objects --lib "$@"
