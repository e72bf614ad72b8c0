# shellcheck shell=bash disable=SC2154
# Sourced by scripts/test, whose functions it uses: the programs of PyTorch that run plain and under Grape, compared, on
# the simulated driver (tests/host_torch/README.md). What takes too long for each run is cut into parts, and the date
# says which part runs.
simulated_python="$PWD/build/release/lib/host_torch/python"

# Whether the file is there; else a line says that the check did not run: has NAME FILE
has() {
  [[ -e "$2" ]] && return
  skip "$1" "there is no $2"
  return 1
}

torch_programs() {
  local name part early grape="$PWD/build/release/lib/libgrape.so"
  if ! ctest --preset release -N -L '^host_torch$' | grep host-torch- >/dev/null; then
    lacking "programs with PyTorch" "the PyTorch of $torch_python is not built for CUDA 13"
    return
  fi
  printf '\nProgram parts and seeds are those of %s (repeat them with GRAPE_TEST_DATE=%s).\n' "$test_date" "$test_date"

  part="$(part_of 4)"
  check "corner programs with PyTorch, part $part of 4" python3 tests/programs/check.py --python "$simulated_python" \
    --budget 900 --part "$part/4"

  check "random programs with PyTorch" python3 tests/random_programs/check.py --python "$simulated_python" --jobs "$jobs" \
    --budget 600 --seeds "$((day * 300)):$((day * 300 + 300))" --out "$logs/random-programs"

  # Each part in turn with GRAPE_AUTOGRAD=1 alone, and with all functions found at once.
  name="sweep of training programs" part="$(part_of 4)" early="$((day / 4 % 2))"
  has "$name" tests/sweep/sweep.py && check "$name, part $part of 4, GRAPE_EARLY_REGIONS=$early" \
    env GRAPE_EARLY_REGIONS="$early" GRAPE_AUTOGRAD=1 SWEEP_GRAPH_DEPTH=0 python3 tests/sweep/sweep.py \
    --python "$simulated_python" --grape "$grape" --jobs "$jobs" --runs 1 --part "$part/4"

  name="training programs, GRAPE_AUTOGRAD=0"
  check "$name, part $part of 4" env GRAPE_AUTOGRAD=0 GRAPE_EARLY_REGIONS=1 \
    python3 tests/host_torch/training/training_programs_test.py --python "$simulated_python" --grape "$grape" \
    --jobs "$jobs" --part "$part/4"

  local fuzzer=(python3 tests/autograd_fuzzer/random_autograd.py --python "$simulated_python" --grape "$grape" --jobs "$jobs"
    --set GRAPE_EARLY_REGIONS=1 --out "$logs/random-autograd")
  name="random programs of autograd"
  local whole=(--set GRAPE_AUTOGRAD=0) passes=(--set GRAPE_AUTOGRAD=1)
  local seeds=(--seconds 90 --seeds "$((day * 10000)):$((day * 10000 + 10000))")
  if has "$name that once differed" tests/autograd_fuzzer/known_seeds.txt; then
    check "$name that once differed, whole graphs" "${fuzzer[@]}" "${whole[@]}" --known
    check "$name that once differed" env FUZZER_GRAPH=name "${fuzzer[@]}" "${passes[@]}" --known
    check "$name that once differed, checked" env FUZZER_GRAPH=name "${fuzzer[@]}" "${passes[@]}" --set GRAPE_VALIDATE=1 --known
  fi
  if has "$name" tests/autograd_fuzzer/random_autograd.py; then
    check "$name, whole graphs" "${fuzzer[@]}" "${whole[@]}" "${seeds[@]}"
    check "$name" env FUZZER_GRAPH=name "${fuzzer[@]}" "${passes[@]}" "${seeds[@]}"
  fi
}
