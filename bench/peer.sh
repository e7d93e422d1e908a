#!/bin/sh
# Builds libfuse's own passthrough_hp from Debian's source package into the folder given, and prints its path.
# Nothing of it enters the repository.
set -eu
into=$1
[ -x "$into/passthrough_hp" ] && { echo "$into/passthrough_hp"; exit 0; }
mkdir -p "$into/lists/partial" "$into/parts"
cd "$into"
if [ -f /etc/apt/sources.list.d/debian.sources ]; then
	sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >parts/source.sources
else
	sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >parts/source.list
fi
apt() {
	apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$PWD/parts" \
		-o Dir::State::lists="$PWD/lists" -o APT::Sandbox::User=root "$@" >&2
}
apt update
apt source --download-only fuse3
tar xf fuse3_*.orig.tar.*z
cd fuse-*/
# What the program's own build finds on Linux: without utimensat it sets no times. HAVE_SETXATTR is left out: without
# extended attributes the kernel asks for none before each write, and the program writes four times as fast.
# shellcheck disable=SC2046 # the flags are words
g++ -O2 -std=c++17 -DHAVE_UTIMENSAT -DHAVE_POSIX_FALLOCATE example/passthrough_hp.cc -o ../passthrough_hp -Iinclude -I. \
	$(pkg-config --cflags --libs fuse3) -lpthread
echo "$into/passthrough_hp"
