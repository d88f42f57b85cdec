"""The checker of registers against all orders of few accesses.

Random histories of up to five accesses, each held against a search through all permutations.

Source: the definition of linearizability (Herlihy and Wing, 1990).
"""

import itertools
import random

import pytest

from registers import NEVER, Register, Wrong


def has_order(accesses):
    """Whether some order of (is_write, value, start, end) explains them; failed writes may be left out."""
    failed = [access for access in accesses if access[3] == NEVER]
    for left_out in itertools.chain.from_iterable(
        itertools.combinations(failed, count) for count in range(len(failed) + 1)
    ):
        kept = [access for access in accesses if access not in left_out]
        for order in itertools.permutations(kept):
            now, latest_start, good = 0, -NEVER, True
            for is_write, value, start, end in order:
                good = good and end >= latest_start and (is_write or value == now)
                latest_start, now = max(latest_start, start), value if is_write else now
            if good:
                return True
    return False


def verdict(accesses):
    """Whether the checker finds nothing wrong."""
    register = Register()
    for is_write, value, start, end in accesses:
        (register.wrote if is_write else register.read)(value, start, end)
    try:
        register.check()
    except Wrong:
        return False
    return True


def test_it_agrees_with_a_search_through_all_orders():
    rng, found = random.Random(1997), [0, 0]
    for _ in range(4_000):
        writes, accesses = rng.randrange(4), []
        times = rng.sample(range(100), 20)
        for number in range(writes + rng.randrange(4)):
            start, end = sorted(times[2 * number : 2 * number + 2])
            if number < writes:
                accesses.append((True, number + 1, start, NEVER if rng.random() < 0.2 else end))
            else:
                accesses.append((False, rng.randrange(writes + 1), start, end))
        want = has_order(accesses)
        assert verdict(accesses) == want, accesses
        found[want] += 1
    assert min(found) > 500, found


@pytest.mark.parametrize(
    ("name", "accesses", "want"),
    [
        ("the last value", [(True, 1, 0, 1), (False, 1, 2, 3)], True),
        ("an old value", [(True, 1, 0, 1), (False, 0, 2, 3)], False),
        ("either while it is written", [(True, 1, 0, 9), (False, 0, 2, 3), (False, 1, 4, 5)], True),
        ("the new one, then the old one", [(True, 1, 0, 9), (False, 1, 2, 3), (False, 0, 4, 5)], False),
        ("a failed write, late", [(True, 1, 0, NEVER), (False, 0, 2, 3), (False, 1, 8, 9)], True),
        ("a store that is lost", [(True, 1, 0, 1), (True, 2, 2, 3), (False, 1, 4, 5)], False),
        ("what was never written", [(False, 7, 0, 1)], False),
    ],
)
def test_each_kind_of_fault(name, accesses, want):
    assert verdict(accesses) == want, name
