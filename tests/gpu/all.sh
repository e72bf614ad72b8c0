#!/usr/bin/env bash
# Tests and benchmarks in one go of at most SECONDS (default 540), the tables last; all detail goes to OUT.
#
#   tests/gpu/all.sh [OUT] [SECONDS] [SHARE_FOR_TESTS]
#
# OUT gets gpu-tests.json, gpu-tests.txt, bench.json, bench.txt and console.log. The tests get SHARE_FOR_TESTS seconds at
# most (default half), the benchmarks what is left. Exit status: 0 all passed, else the first failure's.
set -uo pipefail
cd "$(dirname "$0")/../.."
out="${1:-build/gpu-all}"
total="${2:-540}"
tests="${3:-$((total / 2))}"
# The arguments are not options for the commands below.
set --
source tests/gpu/prepare.sh
mkdir -p "$out"
status=0
"$PYTHON" tests/gpu/run_gpu_tests.py --out "$out" --budget "$tests" >"$out/console.log" 2>&1 || status=$?
left=$((total - SECONDS - 15))
if ((left >= 30)); then
  "$PYTHON" tests/gpu/bench/bench.py --out "$out" --budget "$left" >>"$out/console.log" 2>&1 || status=$((status ? status : $?))
else
  echo "no time left for the benchmarks" >>"$out/console.log"
fi
if [[ ! -e "$out/gpu-tests.txt" ]]; then
  tail -n 40 "$out/console.log"
fi
for part in gpu-tests bench; do
  if [[ -e "$out/$part.txt" ]]; then
    echo
    cat "$out/$part.txt"
  fi
done
echo "status $status, $SECONDS s"
exit "$status"
