#!/bin/sh
# Runs a hundred thousand functions of programs and libraries of this machine, each from the same state as it is and with code
# spliced in (tests/differential of refit-probe), and compares how they end; then with their blocks in copies, in any order
# (tests/differential of refit-optimize); then a fifth of them with versions for a value of an argument (tests/differential of
# refit-specialize). REFIT_DIFFERENTIAL_FUNCTIONS says how many, REFIT_DIFFERENTIAL_SEED from
# which states; arguments are the files. Takes some minutes.
set -eu
cd "$(dirname "$0")/.."
if [ $# = 0 ]; then
	set -- $(find -L /usr/lib/x86_64-linux-gnu /usr/lib/gcc/x86_64-linux-gnu /usr/bin -maxdepth 2 -type f -size +100k \
		\( -name '*.so.*' -o -name 'cc1*' -o -path '/usr/bin/*' \) 2>/dev/null | sort -u)
fi
functions=${REFIT_DIFFERENTIAL_FUNCTIONS:-100000}
for crate in refit-probe refit-optimize; do
	REFIT_DIFFERENTIAL_FUNCTIONS=$functions REFIT_DIFFERENTIAL_FILES="$*" REFIT_DIFFERENTIAL_EACH=${REFIT_DIFFERENTIAL_EACH:-3000} \
		cargo test --locked --release -p "$crate" --test differential -- --nocapture
done
REFIT_DIFFERENTIAL_FUNCTIONS=$((functions / 5)) REFIT_DIFFERENTIAL_FILES="$*" REFIT_DIFFERENTIAL_EACH=${REFIT_DIFFERENTIAL_EACH:-600} \
	cargo test --locked --release -p refit-specialize --test differential -- --nocapture
