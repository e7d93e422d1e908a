#!/bin/sh
# A software development workload in the manner of SDET (Soules 2003, §6): scripts of user commands.
#   bench/sdet.sh tree TREE                   makes the tree that all scripts share
#   bench/sdet.sh script TREE OWN SEED COUNT  runs COUNT commands; OWN is a new directory of the script's own
set -eu

tree() {
	for part in 0 1 2 3 4 5 6 7; do
		mkdir -p "$1/part$part"
		for file in 0 1 2 3 4 5 6 7 8 9; do
			name=part${part}_$file
			{
				printf '#include "../all.h"\nint %s(int n)\n{\n\tint sum = 0;\n' "$name"
				awk -v n=$((40 + 40 * file)) 'BEGIN { for (i = 0; i < n; i++) printf "\tsum += n * %d ^ sum;\n", i }'
				printf '\treturn sum;\n}\n'
			} >"$1/part$part/$name.c"
			printf 'int %s(int n);\n' "$name" >>"$1/all.h"
		done
	done
	cat >"$1/Makefile" <<-'END'
		OBJECTS = $(patsubst $(TREE)/%.c,%.o,$(wildcard $(TREE)/part0/*.c))
		all: $(OBJECTS)
		$(OBJECTS): %.o: $(TREE)/%.c
		@TAB@mkdir -p $(dir $@) && cp $< $(basename $@).c && wc -l $(basename $@).c >$@
	END
	sed -i "s/@TAB@/$(printf '\t')/" "$1/Makefile"
}

# One command of the mix, by its number.
step() {
	part=$tree/part$(($2 % 8))
	file=$part/part$(($2 % 8))_$(($2 / 8 % 10)).c
	case $1 in
	0 | 1) # edit
		sed "s/sum += n/sum -= n/" "$file" >edited.c
		diff "$file" edited.c >changes || true
		patch -s -R edited.c changes
		cmp -s "$file" edited.c
		;;
	2) cc -c -I "$part" -o compiled.o "$file" ;;
	3) make -s -f "$tree/Makefile" TREE="$tree" && rm -rf part0 ;;
	4) find "$tree" -name '*_7.c' -size +1 >found ;;
	5) grep -r 'n \* 39 ' "$tree" >found ;;
	6) tar cf archive.tar -C "$tree" "part$(($2 % 8))" && tar xf archive.tar ;;
	7) cp -r "$part" copy && diff -r "$part" copy && rm -r copy ;;
	8) ls -lR "$tree" >listed && sort -k5n listed >sorted ;;
	9) cat "$part"/*.c | wc >counted ;;
	esac
}

case $1 in
tree) tree "$2" ;;
script)
	tree=$2 count=$5
	mkdir "$3" && cd "$3"
	# The same commands in the same order for the same seed.
	awk -v seed="$4" -v n="$count" 'BEGIN { srand(seed); for (i = 0; i < n; i++) print int(rand() * 10), int(rand() * 80) }' >commands
	while read -r which where; do step "$which" "$where"; done <commands
	;;
esac
