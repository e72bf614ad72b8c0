# shellcheck shell=bash disable=SC2154
# Sourced by scripts/test, whose functions it uses: the programs of PyTorch that run plain and under Grape, compared, on
# the simulated driver (tests/host_torch/README.md). What takes too long for each run is cut into parts, and the date
# says which part runs.
simulated_python=build/release/lib/host_torch/python
day="$(($(date -u -d "$test_date" +%s) / 86400))"

# Which of N parts runs today: 1 to N.
part_of() { printf '%d' "$((day % $1 + 1))"; }

# The check SCRIPT is there, or a line says that it did not run: has NAME SCRIPT
has() {
  [[ -e "$2" ]] && return
  skip "$1" "no $2 yet"
  return 1
}

torch_programs() {
  local name part
  printf '\nParts and seeds of %s; GRAPE_TEST_DATE=%s repeats them.\n' "$test_date" "$test_date"

  part="$(part_of 4)"
  check "corner programs with PyTorch, part $part of 4" python3 tests/gpu/corners/check.py --python "$simulated_python" \
    --budget 900 --part "$part/4"

  check "random programs with PyTorch" python3 tests/gpu/random_programs.py --python "$simulated_python" --jobs 1 \
    --budget 600 --seeds "$((day * 100)):$((day * 100 + 100))" --out "$logs/random-programs"

  name="sweep of training" part="$(part_of 8)"
  has "$name" tests/sweep/sweep.py && check "$name, part $part of 8" python3 tests/sweep/sweep.py \
    --python "$simulated_python" --grape build/release/lib/libgrape.so --jobs "$jobs" --runs 1 --part "$part/8"

  name="random programs of autograd"
  has "$name" tests/autograd_fuzzer/random_autograd.py && check "$name" python3 tests/autograd_fuzzer/random_autograd.py \
    --python "$simulated_python" --grape build/release/lib/libgrape.so --jobs "$jobs" --seconds 180 \
    --seeds "$((day * 10000)):$((day * 10000 + 10000))"
}
