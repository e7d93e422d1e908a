#!/bin/sh
# Puts Frida, a peer of `refit probe`, into a folder and prints the Python that has it; nothing where it cannot be had.
#   bench/frida/build.sh FOLDER
set -eu
folder=$1/frida version=17.26.0
python=$folder/bin/python
has() { "$python" -c "import frida, sys; sys.exit(frida.__version__ != '$version')" 2>/dev/null; }
has || {
	mkdir -p "$1"
	/usr/bin/python3 -m venv "$folder" && "$folder/bin/pip" install -q "frida==$version"
} >&2 || true
if has; then echo "$python"; fi
