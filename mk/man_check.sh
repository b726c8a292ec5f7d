#!/bin/bash
# Checks the man pages: they have no mistakes, name every function of the headers and every option of the programs,
# and refer to pages that exist.
#   man_check.sh MAN-DIRECTORY INCLUDE-DIRECTORY BIN-DIRECTORY
set -euo pipefail

man=$1 include=$2 bin=$3
wrong=0

complain() {
    echo "man-check: $*" >&2
    wrong=$((wrong + 1))
}

# Warnings of the formatter, if there is one.
if command -v groff >/dev/null; then
    for page in "$man"/man?/*; do
        said=$(groff -mandoc -Tutf8 -ww -z "$page" 2>&1)
        [ -z "$said" ] || complain "$said"
    done
else
    echo "man-check: no groff, pages are not formatted"
fi

# The functions in the NAME sections of the pages.
documented=$(awk '/^\.Sh/ { names = $2 == "NAME" } names && $1 == ".Nm" { print $2 }' "$man"/man3/*)
functions=$(cat "$include"/myriexpress.h "$include"/mx_extensions.h "$include"/mx_io.h |
    grep -o '^[a-z][a-z_ *]*\bmx_[a-z_0-9]*(' | grep -v typedef | sed 's/.*\b\(mx_.*\)(/\1/' |
    grep -v '^mx__' | sort -u)
[ "$(wc -l <<< "$functions")" -gt 40 ] || complain "only found these functions: $functions"
for function in $functions; do
    grep -qx "$function" <<< "$documented" || complain "no page names $function"
done

# Every program has a page.
for program in "$bin"/*; do
    [ -f "$man/man1/$(basename "$program").1" ] || complain "no page for $(basename "$program")"
done

# The options in --help, each as `.It Fl x` or within such a line.
for page in "$man"/man1/*; do
    program=$(basename "$page" .1)
    for option in $("$bin/$program" --help | sed -n 's/^ \{2,6\}\(-[-a-zA-Z]*\),* *\(--[-a-z]*\)\{0,1\}.*/\1 \2/p'); do
        case $option in
        --*) flag="Fl Fl ${option#--}" ;;
        *) flag="Fl ${option#-}" ;;
        esac
        grep -q "^\.It.*$flag\b" "$page" || complain "$page does not say what $option does"
    done
done

# Pages of ours to which others refer.
while read -r name section; do
    [ -f "$man/man$section/$name.$section" ] || grep -qx "$name" <<< "$documented" ||
        complain "there is no $name($section)"
done < <(sed -n 's/^\.Xr \(\(bmi\|mx\|my\)[a-z_0-9]*\) \([137]\).*/\1 \3/p' "$man"/man?/* | sort -u)

[ "$wrong" = 0 ] || exit 1
echo "man-check: $(ls "$man"/man?/* | wc -l) pages, $(wc -w <<< "$functions") functions"
