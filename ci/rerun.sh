#!/bin/sh
# Runs the tests of packages once more, as `cargo test --workspace` has built them. (`cargo test -p` would first build them and what they
# depend on again, with fewer features.) Prints what `cargo test` prints.
#
#   REFIT_PROCESSORS=130 ci/rerun.sh refit-objects refit-memory
set -eu
cd "$(dirname "$0")/.."
top=$PWD
list=$(mktemp)
trap 'rm -f "$list"' EXIT
cargo test --locked --quiet --workspace --no-run --message-format=json | python3 -c '
import json, os, sys
for line in sys.stdin:
    made = json.loads(line)
    if made["reason"] == "compiler-artifact" and made["profile"]["test"] and made["executable"]:
        directory = os.path.dirname(made["manifest_path"])
        if os.path.basename(directory) in sys.argv[1:]:
            print(directory, made["executable"])
' "$@" >"$list"
for package in "$@"; do
	grep -q "/$package " "$list" || { echo "error: no tests of $package were built" >&2; exit 1; }
done
# As cargo does for tests that load plugins.
LD_LIBRARY_PATH=${CARGO_TARGET_DIR:-$top/target}/debug/deps:$(rustc --print target-libdir)
export LD_LIBRARY_PATH
failed=0
while read -r directory binary; do
	printf '     Running %s\n' "$binary"
	(cd "$directory" && "$top/ci/bounded.sh" "$binary" --show-output </dev/null) || {
		echo "error: test failed: $binary"
		failed=1
	}
done <"$list"
exit "$failed"
