#!/bin/sh
# ThreadSanitizer over the tests of refit-objects and refit-memory, with a nightly toolchain; says so where there is none.
# membarrier is switched off: the sanitizer knows fences in the program, not those that the kernel sends.
set -eu
cd "$(dirname "$0")/.."
# Without the sources of the standard library its locks are not seen, and all that they protect is reported.
if ! [ -e "$(rustup run nightly rustc --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library/Cargo.lock" ]; then
	echo "not run: there is no nightly toolchain with rust-src; \`rustup toolchain install nightly --component rust-src\` gets it"
	exit 0
fi
target=$(rustc -vV | sed -n 's/^host: //p')
REFIT_MEMBARRIER=off RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/tsan" \
	cargo +nightly test -Zbuild-std --target "$target" -p refit-objects -p refit-memory --tests "$@"
