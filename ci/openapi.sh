#!/bin/sh
# Checks the control API from outside: the document that describes it is valid OpenAPI, a client can be generated from it, and an instance answers
# requests that are generated from it, good and bad ones, as it says. Prints a line in the manner of a test runner.
#
#   ci/openapi.sh                   REFIT_OPENAPI_EXAMPLES=N: so many requests for each route (10)
#                                   REFIT=PATH: of this command, else of one that is built now
set -eu
top=$(cd "$(dirname "$0")/.." && pwd) && . "$top/ci/setup.sh"

need_packages python3:python3 socat:socat /usr/share/doc/python3-venv:python3-venv
venv=$tools/openapi
if [ ! -x "$venv/bin/schemathesis" ] || [ ! -x "$venv/bin/openapi-python-client" ]; then
	say "installing the validator of OpenAPI documents (once)"
	/usr/bin/python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check \
		openapi-spec-validator==0.9.0 openapi-python-client==0.29.1 schemathesis==4.32.5 ||
		die "could not install the validators from PyPI"
fi
PATH=$venv/bin:$PATH

work=$(mktemp -d)
instance='' proxy=''
finish() {
	status=$?
	[ -z "$proxy" ] || kill "$proxy" 2>/dev/null || :
	[ -z "$instance" ] || { kill -INT "$instance" 2>/dev/null && wait "$instance"; } || :
	rm -rf "$work"
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

need_refit
mkdir "$work/source" "$work/mnt"
echo hello >"$work/source/file"
export REFIT_RUNTIME_DIR="$work/sockets"
"$refit" mount "$work/source" "$work/mnt" >"$work/said" 2>&1 &
instance=$!
# The line that it serves comes when it does; the limit is for a machine that hangs.
for _ in $(seq 600); do
	grep -q ' serves ' "$work/said" 2>/dev/null && break
	kill -0 "$instance" 2>/dev/null || { cat "$work/said" >&2; exit 1; }
	sleep 0.1
done
read -r first <"$work/mnt/file"
[ "$first" = hello ]
socket=$(find "$work/sockets" -name '*.sock')
curl --silent --fail --unix-socket "$socket" http://refit/openapi.json >"$work/openapi.json"

passed=0 failed=0
check() {
	name=$1
	shift
	if "$@" >"$work/out" 2>&1; then
		printf 'test openapi::%s ... ok\n' "$name"
		passed=$((passed + 1))
	else
		# Marked line by line, so that ./test repeats all of it at its end.
		{ printf 'test openapi::%s ... FAILED\n' "$name"; cat "$work/out"; } | sed 's/^/failed: /'
		failed=$((failed + 1))
	fi
}

check the_document_is_valid openapi-spec-validator "$work/openapi.json"
cat >"$work/generator.yaml" <<-END
	content_type_overrides:
	  application/x-ndjson: text/plain
	  application/openmetrics-text: text/plain
END
check a_client_can_be_generated openapi-python-client generate --path "$work/openapi.json" \
	--config "$work/generator.yaml" --output-path "$work/client" --fail-on-warning
check the_client_can_be_imported sh -c 'cd "$1"/client/* 2>/dev/null || cd "$1/client"; python3 -c "import pkgutil, importlib, os
for found in pkgutil.walk_packages([\".\"]): importlib.import_module(found.name)"' sh "$work"

# Followers never end, recordings and swaps need more than a request; what mounts and unmounts would take away what is tested.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
socat "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork" "UNIX-CONNECT:$socket" &
proxy=$!
# It keeps what it has found in the directory that it runs in.
cd "$work"
check it_answers_as_it_says timeout -k 10 300 schemathesis run "$work/openapi.json" --url "http://127.0.0.1:$port" \
	--max-examples "${REFIT_OPENAPI_EXAMPLES:-10}" --seed 1 --request-timeout 20 --no-color \
	--exclude-path /activity --exclude-path /changes --exclude-path /adapt --exclude-path /mounts --exclude-path '/mounts/{id}' \
	--exclude-checks positive_data_acceptance,unsupported_method
check it_lives curl --silent --fail --unix-socket "$socket" http://refit/health

printf 'test result: %s. %d passed; %d failed; 0 ignored\n' "$([ "$failed" = 0 ] && echo ok || echo FAILED)" "$passed" "$failed"
[ "$failed" = 0 ]
