"""The environment of programs that use the simulated PyTorch on the simulated driver, and the catalogue's bed."""
import argparse
import os

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.join(HERE, "packages")  # torch
PROGRAMS = os.path.join(HERE, "..", "programs")


def environment(options, *paths, **variables):
    """This process's, without what would reach into theirs. `options`: simcuda and sim_torch, folders; `paths`: where they
    import from before the simulated PyTorch and the catalogue's programs."""
    taken = {k: v for k, v in os.environ.items() if not k.startswith(("GRAPE_", "PYTHON", "SIMCUDA_", "LD_"))}
    taken.update(
        PYTHONPATH=os.pathsep.join((*paths, PACKAGES, PROGRAMS, os.path.join(PROGRAMS, "simulated"))),
        PYTHONDONTWRITEBYTECODE="1",
        LD_LIBRARY_PATH=options.simcuda,
        SIM_TORCH_LIBRARIES=options.sim_torch,
        GRAPE_LOOK_BUDGET="unlimited",  # how long looks take differs from machine to machine
        SIMCUDA_LATENCY="20000",  # one launch takes less time than several: replaying pays
    )
    taken.update(variables)
    return taken


def options_of(description):
    """What a test program was called with: --grape and the options that environment() takes; and what else there was."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("grape", "simcuda", "sim-torch"):
        parser.add_argument("--" + name, required=True)
    return parser.parse_known_args()
