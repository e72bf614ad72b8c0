"""Functions that are regions and find what they kept by the argument itself: weakly, by its address, by identity. See
cases_functions.py."""

from typing import Any, Optional

from torch.utils.weak import WeakTensorKeyDictionary

from cases_functions import work
from small import CALLS, Run, case, data, torch

LAST: Any = None
REFERENCES: Any = WeakTensorKeyDictionary()


def region_with_weak_cache(x: torch.Tensor) -> torch.Tensor:
    if x not in REFERENCES:
        REFERENCES[x] = work(x)
    return REFERENCES[x] * 2


@case("a weak dictionary of results by argument; the argument is met again or gone")
def weak_cache(run: Run) -> None:
    kept = data(0)
    for i in range(2 * CALLS):
        run.see(region_with_weak_cache(kept if i % 2 else data(i)), len(REFERENCES))
    del kept


BY_ID: dict = {}


def region_by_id(x: torch.Tensor) -> torch.Tensor:
    key = id(x)
    if key in BY_ID:
        return BY_ID[key] + 1
    BY_ID.clear()
    BY_ID[key] = work(x)
    return BY_ID[key]


@case("results are found again by id() and by data_ptr() of the argument")
def caches_by_address(run: Run) -> None:
    kept = [data(0), data(1)]
    for i in range(2 * CALLS):
        run.see(region_by_id(kept[i // 3 % 2]), region_by_pointer(kept[i // 3 % 2]))


def region_by_pointer(x: torch.Tensor) -> torch.Tensor:
    return work(x) * (2.0 if LAST == x.data_ptr() else 1.0)


def forget() -> None:
    global LAST
    LAST = None


def region_of_optional(x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> Any:
    global LAST
    same = LAST is mask
    LAST = mask
    return work(x) if mask is None else work(x).masked_fill(mask, 0.0), same


@case("compares its argument with the one of the call before, which it keeps")
def argument_is_the_last_one(run: Run) -> None:
    forget()
    masks = [data(7) > 0, data(7) > 0, None]
    for i in range(3 * CALLS):
        run.see(region_of_optional(data(i), masks[i // 3 % 3] if i < 30 else masks[0]))
    forget()
