#!/bin/sh
# Makes the directory trees on which `bench/run metadata` works. Nothing of them enters the repository.
#   bench/trees.sh kernel INTO        the core of Linux from Debian's source package (11,300 files), as INTO/linux.tar
#   bench/trees.sh repository INTO    a git repository of FILES files, a multiple of 100 (50000)
#   bench/trees.sh packages INTO      a project of npm with 120 packages of 50 files, which need no network
set -eu
what=$1 into=$2
mkdir -p "$into"
cd "$into"

kernel() {
	[ ! -f linux.tar ] || return 0
	package=$(apt-cache depends linux-source | sed -n 's/.*Depends: *\(linux-source-[0-9.]*\)$/\1/p' | head -n 1)
	apt-get -qq -o APT::Sandbox::User=root download "$package" >&2
	dpkg-deb -x "$package"_*.deb package
	mkdir tree
	tar -xf package/usr/src/linux-source-*.tar.xz -C tree --strip-components=1
	(cd tree && find . -mindepth 1 -maxdepth 1 ! -name include ! -name kernel ! -name mm ! -name lib ! -name fs \
		! -name net ! -name block -exec rm -rf {} +)
	tar -cf linux.tar.new -C tree .
	rm -rf package tree "$package"_*.deb
	mv linux.tar.new linux.tar
}

repository() {
	git init -q
	directory=0
	while [ "$directory" -lt $((${FILES:-50000} / 100)) ]; do
		mkdir -p "part$((directory / 50))/of$directory"
		file=0
		while [ "$file" -lt 100 ]; do
			echo "file $file of directory $directory" >"part$((directory / 50))/of$directory/file$file"
			file=$((file + 1))
		done
		directory=$((directory + 1))
	done
	git add -A
	git -c gc.auto=0 -c user.name=bench -c user.email=bench@localhost commit -q -m "All files"
	# The index then knows every file by its status.
	git status --porcelain
}

packages() {
	mkdir -p tarballs package
	printf '{ "name": "project", "version": "1.0.0", "dependencies": {' >package.json
	n=0 comma=
	while [ "$n" -lt 120 ]; do
		printf '{ "name": "p%d", "version": "1.0.0" }\n' "$n" >package/package.json
		file=0
		while [ "$file" -lt 50 ]; do
			printf 'module.exports = "package %d, file %d";\n' "$n" "$file" >"package/file$file.js"
			file=$((file + 1))
		done
		tar -czf "tarballs/p$n.tgz" package
		printf '%s "p%d": "file:tarballs/p%d.tgz"' "$comma" "$n" "$n" >>package.json
		comma=, n=$((n + 1))
	done
	printf ' } }\n' >>package.json
	rm -r package
	npm install --package-lock-only --offline --no-audit --no-fund --silent
}

case $what in
kernel | repository | packages) "$what" >&2 ;;
*) echo "bench/trees.sh: there is no tree $what" >&2 && exit 2 ;;
esac
