#!/usr/bin/env bash
# Fails unless cases.md and the tests agree: each code has a line, each place in that line has a test whose
# name begins with the code, and each such test is in a place that its line names. (Codes from A to I: S are the README's
# rules of security.)
set -euo pipefail
cd "$(dirname "$0")"

codes='A02 A04 A06 A08 A11 A12 A15 A16  B01 B03 B05 B06 B08 B12 B13 B16  C01 C03 C06 C07 C09  D01 D03 D05 D07 D08 D11 D13
       E01 E03 E05 E06  F01 F03 F04  G01 G04 G06 G10 G11 G13 G14 G16 G20  H01 H02 H06 H08  I01 I03 I05 I06 I07'

# "A04 server `claims`" for each place that a line of the table names.
named() {
    awk -F ' *[|] *' '$2 ~ /^[A-Z][0-9][0-9]$/ { n = split($4, place, /, */); for (i = 1; i <= n; i++) print $2, place[i] }' cases.md
}
# The same for each test that there is. A file needs its expected result.
found() {
    local kind file
    for kind in regress isolation; do
        for file in "$kind"/{sql,specs}/[a-z][0-9][0-9]_*; do
            [[ -e $file ]] || continue
            file=${file##*/}
            [[ -e $kind/expected/${file%.*}.out ]] || continue
            echo "$(tr a-z A-Z <<< "${file:0:3}") $kind"
        done
    done
    for file in server/tests/*.rs; do
        awk -v program="$(basename "$file" .rs)" '
            was_test && match($0, /^fn [a-i][0-9][0-9]_/) { print toupper(substr($0, 4, 3)), "server `" program "`" }
            { was_test = /^#\[test\]$/ }' "$file"
    done
    for file in clients/*.py; do   # these are one test each, and name the code in their first lines
        [[ -e $file ]] || continue
        sed -n '1,/^$/s/.*\<\([A-Z][0-9][0-9]\):.*/\1 clients `'"$(basename "$file" .py)"'`/p' "$file"
    done
}

status=0
fault() { echo "tests/cases.md: $*" >&2; status=1; }
named=$(named | sort) found=$(found | sort -u)
for code in $codes; do
    grep -q "^$code " <<< "$named" || fault "$code is missing"
done
while read -r line; do fault "$line is named, but has no test"; done < <(comm -23 <(echo "$named") <(echo "$found"))
while read -r line; do fault "$line has a test, but is not named"; done < <(comm -13 <(echo "$named") <(echo "$found"))
while read -r code; do fault "$code is no code"; done < <(cut -d' ' -f1 <<< "$named" | sort -u | grep -vxFf <(tr -s ' ' '\n' <<< "$codes") || true)
while read -r line; do fault "$line is named twice"; done < <(uniq -d <<< "$named")
exit "$status"
