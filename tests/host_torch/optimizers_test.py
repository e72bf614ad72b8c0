"""optimizers_test.py --python INTERPRETER --grape LIBRARY: the functions that compute an optimizer's step are regions
where a program trains, and nobody named them.

Each program trains and prints its losses, its weights, its optimizer's state and their versions: the same with Grape.
REPLAYED has the functions whose calls must be replayed at least as often, per program, and REFUSED reasons that must be
told of others.
"""

import sys

import replayed
from optimizer_programs import PROGRAMS

ADAM, SGD, NORM = "torch.optim.adam:", "torch.optim.sgd:", "torch.nn.utils.clip_grad:_get_total_norm"
REPLAYED = {
    **{program: {SGD + "_single_tensor_sgd": 12} for program in (
        "sgd", "sgd_momentum", "sgd_maximize", "scheduled", "sgd_each_step", "sgd_momentum_each_step", "sgd_weights_rest",
        "two_models", "state_is_loaded", "ends_with_error", "hooks_and_closures")},
    **{program: {ADAM + "_single_tensor_adam": 12} for program in (
        "adam", "adam_amsgrad", "adam_capturable", "adamw", "adamw_maximize", "decay_is_int", "adam_each_step", "adamw_each_step",
        "capturable_each_step", "adam_weights_rest", "state_of_adam_is_loaded", "scaled_adam", "groups", "far_counts",
        "weights_at_zero", "counts_of_all_kinds")},
    **{program: {ADAM + "_fused_adam": 12} for program in ("adamw_fused", "fused_each_step", "scaled")},
    "rmsprop": {"torch.optim.rmsprop:_single_tensor_rmsprop": 20},
    "adadelta": {"torch.optim.adadelta:_single_tensor_adadelta": 20},
    "warmed_up": {ADAM + "_single_tensor_adam": 6},
    "adam_moves_late": {ADAM + "_single_tensor_adam": 20},
    "sgd_moves_late": {SGD + "_single_tensor_sgd": 20},
    "steps_change": {ADAM + "_single_tensor_adam": 8},
    "clipped": {ADAM + "_fused_adam": 12, NORM: 20},
}
CHECKED = ("adam", "fused_each_step", "groups")  # replays of which are checked without being asked for
REFUSED = {"adamax": "steps_on_cpu", "weights_are_added": "steps_on_cpu", "doubles": "steps_on_cpu", "warmed_up": "numbers_tell_nothing",
           "replaced_functions": "optimizer_runs_other_code"}
VALIDATED = ("adam", "sgd_momentum_each_step", "groups")
# Settings with which none of these functions is a region.
WITHOUT = ({"GRAPE_REGIONS": "modules"}, {"GRAPE_EXCLUDE": "torch.optim.*:*"})


def main():
    if sys.argv[1:2] == ["--program"]:
        return PROGRAMS[sys.argv[2]]()
    given = replayed.options(__doc__)

    def regions(program, **settings):
        found = replayed.compare(given, __file__, ["--program", program], **settings)[1]
        return {region["region"]: region for region in found if region["region"].startswith("torch.optim.")
                or region["region"] == NORM}

    for program in PROGRAMS:
        of = regions(program)
        print(program, {name: region["replayed"] for name, region in of.items()})
        for name, least in REPLAYED.get(program, {}).items():
            assert of[name]["replayed"] >= least, (program, name)
            assert program not in CHECKED or of[name]["validated"] >= 3, (program, name)
        reasons = {reason["id"] for region in of.values() for reason in region["reasons"]}
        assert program not in REFUSED or REFUSED[program] in reasons, (program, reasons)
        assert "replay_differed" not in reasons, program
    for program in VALIDATED:
        (region,) = regions(program, GRAPE_VALIDATE="2").values()
        assert region["validated"] >= 8 and region["replayed"] >= 6, (program, region)
    for settings in WITHOUT:
        left = {name for name, region in regions("sgd_momentum", **settings).items() if region["replayed"]}
        assert not left, (settings, left)


if __name__ == "__main__":
    main()
