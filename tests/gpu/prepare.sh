# Sourced by scripts/gpu-test, scripts/bench and all.sh, from the repository's root: sets PYTHON, ends with status 0
# where there is no GPU, and builds Grape where it is not built.
export PYTHON="${PYTHON:-python3}"
export GRAPE_BUILD_DIR="${GRAPE_BUILD_DIR:-$PWD/build/release}"

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
  if [[ " $* " != *" --help "* && " $* " != *" -h "* ]]; then
    echo "skipped: nvidia-smi finds no GPU on this machine"
    exit 0
  fi
fi

grape_build() { # options of cmake
  cmake -S . -B "$GRAPE_BUILD_DIR" -DCMAKE_BUILD_TYPE=Release -DGRAPE_TESTS=OFF -DGRAPE_BENCHMARKS=OFF "$@" &&
    cmake --build "$GRAPE_BUILD_DIR" --parallel
}

if [[ ! -e "$GRAPE_BUILD_DIR/lib/libgrape.so" && " $* " != *" --help "* && " $* " != *" -h "* ]]; then
  log="$(mktemp)"
  echo "building Grape in $GRAPE_BUILD_DIR"
  if ! grape_build >"$log" 2>&1; then
    # The tool's header libraries may be missing; the library and its traces can be tested without it.
    echo "with the tool it does not build (the last lines below); trying without"
    tail -n 15 "$log"
    if ! grape_build -DGRAPE_TOOLS=OFF >"$log" 2>&1; then
      tail -n 40 "$log"
      exit 2
    fi
  fi
  rm -f "$log"
fi
