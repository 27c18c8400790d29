#!/usr/bin/env bash
# Instructions of one lookup, of one prompt of 100k token ids hashed and looked up, and of one event of 128 blocks: what two
# runs of different length differ by. The counts hardly depend on what else the machine does. Needs valgrind.
# Usage: icount.sh PATH-TO-THE-BENCH-FIGURES
set -euo pipefail
figures=${1:?usage: icount.sh PATH-TO-THE-BENCH-FIGURES}
command -v valgrind > /dev/null || { echo "missing: valgrind (Debian: valgrind)"; exit 1; }

instructions() {
  valgrind --tool=lackey --basic-counts=yes --log-fd=1 "$figures" --repeat "$1" "$2" 2> /dev/null |
    sed -n 's/.*guest instrs: *//p' | tr -d ,
}

for case in "lookup 200000" "hash-and-lookup 400" "event 200"; do
  read -r name times <<< "$case"
  few=$(instructions "$name" "$times")
  many=$(instructions "$name" "$((2 * times))")
  printf '%-16s %9d instructions\n' "$name" "$(((many - few) / times))"
done
