"""What the paper claims, what we claim, and how the runs decide.

Each claim says how it is decided: by a comparison with a margin, from which scale on. Below that scale, without runs,
or where the comparison is within the margin, the verdict is that it is not decided. That something diverges can be seen
at any scale; that it does not, only at the paper's.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bipolar.lab.reproduce.comparison import Cell
from bipolar.lab.reproduce.item import DNC, Results
from bipolar.lab.reproduce.verdicts import (
    Claim,
    Evidence,
    Margin,
    MissingError,
    Order,
    Status,
    Verdict,
    all_converged,
    compare,
    diverged,
    show,
)

BPC = Margin(0.02, 0.05, "BPC")
#: For a mean over all steps of two runs with the same random numbers: there is less noise in it.
BPC_OF_A_CURVE = Margin(0.01, 0.02, "BPC")
ERROR = Margin(1.0, 5.0, "per cent points")
SMALLER = "these networks are smaller and their runs shorter than the paper's, so this does not refute it"


def _verdict(held: Iterable[Order], wanted: Order, reason: str) -> Verdict:
    """Reproduced if all comparisons came out as wanted, not decided if some are unclear."""
    orders = list(held)
    if all(order == wanted for order in orders):
        return Verdict("reproduced", reason)
    return Verdict("not decided" if "unclear" in orders or wanted in orders else "not reproduced", reason)


def _means(e: Evidence) -> Verdict:
    (results,) = e.seeds("figure1")
    worst = max(abs(float(values["mean"])) for values in results.values())
    plain = min(abs(float(values["mean of the plain one"])) for values in results.values())
    try:
        shifted = {name: float(values["mean for an input of mean 1"]) for name, values in results.items()}
    except KeyError:
        raise MissingError("figure1 was recorded without inputs of mean 1") from None
    reason = (
        f"for an input of mean 0 the mean of the output is at most {worst:.1g}, that of the plain activation at least "
        f"{plain:.2g}; for one of mean 1 it is "
        + ", ".join(f"{mean:.3f} ({name.removeprefix('Bipolar ')})" for name, mean in shifted.items())
    )
    theorem1 = abs(shifted["Bipolar ReLU"] - 0.5) < 1e-3
    theorem2 = abs(2 * shifted["Bipolar ELU"] - 1) <= 1
    held = worst < 1e-3 < plain and theorem1 and theorem2
    return Verdict("reproduced" if held else "not reproduced", reason)


def _dynamics(e: Evidence) -> Verdict:
    (results,) = e.seeds("figure2")
    ends = {name: float(curve["second_moment"][-1]) for name, curve in results["variance"].items()}
    plain = [name for name in ends if not name.startswith("b")]

    def far(name: str) -> float:
        return abs(math.log10(ends[name])) if 0 < ends[name] < math.inf else math.inf

    better = [name for name in plain if far(f"b{name}") < far(name) - 0.1]
    worse = [name for name in plain if far(f"b{name}") > far(name) + 0.1]
    reason = "second moment after the last iteration, plain and bipolar: " + "; ".join(
        f"{name} {ends[name]:.3g} and {ends[f'b{name}']:.3g}" for name in plain
    )
    held = not worse and len(better) > len(plain) / 2
    return Verdict("reproduced" if held else "not reproduced", reason)


def _lsuv_explains(e: Evidence) -> Verdict:
    (results,) = e.seeds("figure2")
    curves = results["second_moment"]
    apart = max(
        abs(math.log(float(curves[f"b{name}"]["second_moment"][-1]) / float(curve["second_moment"][-1])))
        for name, curve in curves.items()
        if not name.startswith("b")
    )
    reason = (
        f"with LSUV on the second moment the curves of plain and bipolar differ by a factor of at most "
        f"{math.exp(apart):.6f}"
    )
    return Verdict("reproduced" if apart < 0.01 else "not reproduced", reason)


def _lag(e: Evidence, kind: str) -> float:
    return e.cell("figure4", kind, "mean_lag_of_the_lowest_layer").mean or 0.0


def _smeared(e: Evidence) -> Verdict:
    lag = _lag(e, "without skips")
    reason = (
        f"without skips the gradient at the lowest of 36 layers is centred {lag:.1f} steps back; 45 degrees would be 35"
    )
    return Verdict("reproduced" if abs(lag - 35) < 9 else "not reproduced", reason)


def _straightened(e: Evidence) -> Verdict:
    without, with_ = _lag(e, "without skips"), _lag(e, "with skips")
    reason = f"centred {without:.1f} steps back without skips, {with_:.1f} with"
    return Verdict("reproduced" if with_ < without / 2 else "not reproduced", reason)


def _ended(e: Evidence, item: str, name: str, key: str) -> Cell:
    """What a run ended with, or that it did not converge."""

    def value(results: Results) -> float | str | None:
        run = results.get(name)
        found = None if run is None else run.get(key)
        if run is None or found is None:
            return None if run is None or run.get("status", "finished") == "finished" else DNC
        return DNC if run.get("status", "finished") != "finished" or isinstance(found, str) else float(found)

    return e.cell_of(item, f"{name} / {key}", value)


def _along(e: Evidence, item: str, name: str) -> Cell:
    """The mean of a training loss over all its steps: lower for what falls faster."""

    def value(results: Results) -> float | str | None:
        run: dict[str, Any] | None = results.get(name)
        if run is None or not run.get("train_bpc"):
            return None
        if run.get("status", "finished") != "finished":
            return DNC
        losses = [float(loss) for _, loss in run["train_bpc"]]
        return sum(losses) / len(losses)

    return e.cell_of(item, f"{name} / train_bpc", value)


def _skips_help_depth(e: Evidence) -> Verdict:
    without, with_, shallow = (
        _ended(e, "figure5", name, "last_train_bpc")
        for name in ("36 layers, no skips", "36 layers, skips", "4 layers, skips")
    )
    reason = (
        f"training BPC at the end: 36 layers {show(without)} without skips and {show(with_)} with, 4 layers with skips "
        f"{show(shallow)}"
    )
    deep, shallow_order = compare(with_, without, BPC), compare(with_, shallow, BPC)
    if deep == "below" and shallow_order in ("below", "equal"):
        return Verdict("reproduced", reason)
    return Verdict("not decided" if "unclear" in (deep, shallow_order) else "not reproduced", reason)


def _faster(name: str) -> Callable[[Evidence], Verdict]:
    def decide(e: Evidence) -> Verdict:
        plain, flipped = _along(e, "figure6", name), _along(e, "figure6", f"b{name}")
        ends = [_ended(e, "figure6", kind, "last_train_bpc") for kind in (name, f"b{name}")]
        reason = (
            f"training BPC, mean over all steps: {name} {show(plain)}, b{name} {show(flipped)}; of the last steps: "
            f"{show(ends[0])} and {show(ends[1])}"
        )
        return _verdict([compare(flipped, plain, BPC_OF_A_CURVE)], "below", reason)

    return decide


def _only_plain_diverges(
    item: str, where: Callable[[str], tuple[str, ...]], names: Sequence[str], see: str = ""
) -> Callable[[Evidence], Verdict]:
    def decide(e: Evidence) -> Verdict:
        plain = {name: e.cell(item, *where(name)) for name in names}
        flipped = {f"b{name}": e.cell(item, *where(f"b{name}")) for name in names}
        reason = "validation BPC: " + "; ".join(f"{name} {show(cell)}" for name, cell in (plain | flipped).items())
        if not all(all_converged(cell) for cell in flipped.values()):
            return Verdict("not reproduced", reason)
        if all(diverged(cell) for cell in plain.values()):
            return Verdict("reproduced", reason)
        if e.scale(item) != "paper":
            return Verdict("not decided", f"{reason}; all converge here, but {SMALLER}{see}")
        return Verdict("not reproduced", reason + see)

    return decide


def _depth(e: Evidence) -> Verdict:
    cells = {
        (name, depth): e.cell("table1", depth, name, "valid_bpc") for name in ("relu", "belu") for depth in ("4", "36")
    }
    reason = "validation BPC: " + "; ".join(
        f"{name}, {depth} layers {show(cell)}" for (name, depth), cell in cells.items()
    )
    relu = compare(cells["relu", "36"], cells["relu", "4"], BPC)
    belu = compare(cells["belu", "36"], cells["belu", "4"], BPC)
    if relu == "above" and belu in ("equal", "below"):
        return Verdict("reproduced", reason)
    return Verdict("not decided" if "unclear" in (relu, belu) else "not reproduced", reason)


def _dropout(e: Evidence) -> Verdict:
    good: dict[str, set[float]] = {}
    for depth in ("4 layers", "36 layers"):
        cells = {
            float(name.split(", ")[2].split()[1]): e.cell("dropout", name)
            for name in e.seeds("dropout")[0]
            if name.startswith(f"{depth}, relu, ") and name.endswith("recurrent_dropout 0.025, block_dropout 0.025")
        }
        means = {rate: cell.mean for rate, cell in cells.items() if cell.mean is not None}
        if not means:
            raise MissingError(f"no run of {depth} has converged")
        least = BPC.one if any(len(cell.ours) < 2 for cell in cells.values()) else BPC.several
        good[depth] = {rate for rate, mean in means.items() if mean <= min(means.values()) + least}
    reason = "rates within the margin of the best: " + ", ".join(
        f"{depth}: {', '.join(f'{rate:g}' for rate in sorted(rates))}" for depth, rates in good.items()
    )
    shallow, deep = good["4 layers"], good["36 layers"]
    if min(shallow) > max(deep):
        return Verdict("reproduced", reason)
    return Verdict("not reproduced" if max(shallow) < min(deep) else "not decided", reason)


def _beats(item: str, rival: float, name: str) -> Callable[[Evidence], Verdict]:
    def decide(e: Evidence) -> Verdict:
        cell = e.cell(item, "belu", "test_bpc")
        reason = f"test BPC {show(cell)}, against {rival} of {name}"
        return _verdict([compare(cell, Cell([rival]), Margin(0.005, 0.005, "BPC"))], "below", reason)

    return decide


def _pairs(e: Evidence, key: str) -> dict[str, tuple[Cell, Cell]]:
    """The plain and the bipolar values of Table 5, by network and activation, as far as both are there."""
    found = {}
    for network in ("wrn", "orn"):
        for name in ("relu", "elu"):
            try:
                found[f"{network}, {name}"] = (
                    e.cell("table5", network, name, key),
                    e.cell("table5", network, f"b{name}", key),
                )
            except MissingError:
                continue
    if not found:
        raise MissingError("no pair of runs")
    return found


def _rates(e: Evidence) -> Verdict:
    errors, ratios = _pairs(e, "test_error"), {}
    for name, (plain, flipped) in _pairs(e, "lr").items():
        if name not in errors or diverged(errors[name][1]):
            ratios[name] = 0.0  # no rate was found
        elif diverged(errors[name][0]):
            ratios[name] = math.inf
        else:
            ratios[name] = (flipped.mean or math.nan) / (plain.mean or math.nan)
    reason = "the rate that was found for the bipolar version is " + ", ".join(
        f"{ratio:g} times that of {name}" for name, ratio in ratios.items()
    )
    values = list(ratios.values())
    if min(values) >= 2 and max(values) >= 4:
        return Verdict("reproduced", reason)
    return Verdict("not reproduced" if max(values) < 2 else "not decided", reason)


def _errors(e: Evidence) -> Verdict:
    pairs = _pairs(e, "test_error")
    reason = "test error (%), plain and bipolar: " + "; ".join(
        f"{name} {show(plain, 1)} and {show(flipped, 1)}" for name, (plain, flipped) in pairs.items()
    )
    return _verdict([compare(flipped, plain, ERROR) for plain, flipped in pairs.values()], "below", reason)


def _symmetry(e: Evidence) -> Verdict:
    (results,) = e.seeds("symmetry")
    equal = {name: pair["largest_difference"] == 0 for name, pair in results.items()}
    held = all(same == ("between" not in name) for name, same in equal.items())
    reason = "; ".join(f"{name}: {'equal to the last bit' if same else 'apart'}" for name, same in equal.items())
    return Verdict("reproduced" if held else "not reproduced", reason)


def _second_moment(e: Evidence) -> Verdict:
    second, flipped, variance = (_along(e, "figure6", name) for name in ("relu, second moment", "brelu", "relu"))
    reason = (
        f"training BPC, mean over all steps: ReLU with LSUV on the second moment {show(second)}, BReLU {show(flipped)},"
        f" ReLU with LSUV on variance {show(variance)}"
    )
    if compare(variance, flipped, BPC_OF_A_CURVE) != "above":
        return Verdict("not decided", f"{reason}: there is no gap to close")
    return _verdict([compare(second, flipped, BPC_OF_A_CURVE)], "equal", reason)


def _aliasing(e: Evidence) -> Verdict:
    right, belu, wrong = (
        _ended(e, "aliasing", name, "best_valid_bpc") for name in ("elu, right", "belu, right", "elu, after skip")
    )
    reason = (
        f"validation BPC: ELU with right gradients {show(right)}, BELU {show(belu)}, ELU with its derivative taken "
        f"after the skip {show(wrong)}"
    )
    alike = compare(right, belu, Margin(0.05, 0.05, "BPC"))
    worse = compare(wrong, right, Margin(0.2, 0.2, "BPC"))
    if alike == "equal" and worse == "above":
        return Verdict("reproduced", reason)
    return Verdict("not decided" if "unclear" in (alike, worse) else "not reproduced", reason)


def _shortcut(e: Evidence) -> Verdict:
    names = ("relu, clean", "brelu, clean", "relu, rectified")
    cells = {name: e.cell("shortcut", name, "test_error") for name in names}
    reason = "test error (%): " + "; ".join(f"{name} {show(cell, 1)}" for name, cell in cells.items())
    tie = compare(cells["brelu, clean"], cells["relu, clean"], ERROR)
    worse = compare(cells["relu, rectified"], cells["relu, clean"], ERROR)
    if tie in ("equal", "unclear") and worse == "above":
        status: Status = "reproduced" if tie == "equal" else "not decided"
        return Verdict(status, reason)
    return Verdict("not decided" if "unclear" in (tie, worse) else "not reproduced", reason)


def _in_table1(depth: str) -> Callable[[str], tuple[str, ...]]:
    return lambda name: (depth, name, "valid_bpc")


CLAIMS = (
    Claim(
        "mean",
        "A bipolar activation shifts the mean: that of ReLU to half the input's, that of ELU to the average of the "
        "input's and a point near zero.",
        "Theorems 1 and 2, Figure 1",
        ("figure1",),
        "for a normal input of mean 0 the mean over both kinds of unit is below 0.001 and that of the plain activation "
        "above; for one of mean 1 it is 0.5 for ReLU to within 0.001, and between 0 and 1 for ELU",
        _means,
        "quick",
    ),
    Claim(
        "dynamics",
        "Iterated bipolar layers are less prone to an exploding mean and variance than plain ones.",
        "Figure 2",
        ("figure2",),
        "after the last iteration the second moment, which holds both, is nearer to 1 for most bipolar systems, by a "
        "factor of 1.25, and for none farther by as much",
        _dynamics,
        "quick",
    ),
    Claim(
        "smeared",
        "Without skip connections the gradient is smeared over layers and time at 45 degrees.",
        "Figure 4",
        ("figure4",),
        "the gradient at the lowest of 36 layers is centred 35 steps back, give or take 9",
        _smeared,
    ),
    Claim(
        "straightened",
        "Skip connections lead the gradient straight down.",
        "Figure 4",
        ("figure4",),
        "with skips the gradient at the lowest layer is centred less than half as many steps back as without",
        _straightened,
    ),
    Claim(
        "skips",
        "Skip connections let deep stacks train: without them depth slows training down.",
        "Figure 5",
        ("figure5",),
        f"at 36 layers the training loss is lower with skips than without, and not above that of 4 layers with skips; "
        f"margin: {BPC}",
        _skips_help_depth,
    ),
    Claim(
        "faster",
        "BReLU trains faster than ReLU at 36 layers.",
        "Figure 6",
        ("figure6",),
        f"the mean of its training loss over all steps is lower; margin: {BPC_OF_A_CURVE}",
        _faster("relu"),
    ),
    Claim(
        "faster elu",
        "BELU trains faster than ELU at 36 layers.",
        "Figure 6",
        ("figure6",),
        f"the mean of its training loss over all steps is lower, or ELU diverges; margin: {BPC_OF_A_CURVE}",
        _faster("elu"),
    ),
    Claim(
        "elu",
        "ELU networks diverge, BELU networks do not.",
        "Table 1",
        ("table1",),
        "no run of ELU at 36 layers converges, all of BELU do",
        _only_plain_diverges(
            "table1", _in_table1("36"), ("elu",), "; the study of a skip added in place shows how ELU can fail"
        ),
    ),
    Claim(
        "selu",
        "SELU networks diverge, BSELU networks do not.",
        "Section on Penn Treebank",
        ("table1",),
        "no run of SELU at 36 layers converges, all of BSELU do",
        _only_plain_diverges("table1", _in_table1("36"), ("selu",)),
    ),
    Claim(
        "depth",
        "ReLU networks get worse with depth, BELU networks do not, up to 36 layers.",
        "Table 1",
        ("table1",),
        f"the validation error of ReLU is higher at 36 layers than at 4, that of BELU is not; margin: {BPC}",
        _depth,
    ),
    Claim(
        "dropout",
        "The best dropout rate between layers falls with depth.",
        "Section on Penn Treebank",
        ("dropout",),
        f"all rates of 4 layers that are within the margin of the best are higher than those of 36; margin: {BPC}",
        _dropout,
        "paper",
    ),
    Claim(
        "text8",
        "On Text8 ReLU and ELU networks diverge, BReLU and BELU networks do not.",
        "Table 3",
        ("table3",),
        "no run of ReLU or ELU converges, all of BReLU and BELU do",
        _only_plain_diverges("table3", lambda name: (name, "valid_bpc"), ("relu", "elu")),
    ),
    Claim(
        "ptb",
        "On Penn Treebank the network is better than the best published one without gates.",
        "Table 2",
        ("table2",),
        "its test error is below 1.386 BPC, of DOT(S)-RNN, by 0.005",
        _beats("table2", 1.386, "DOT(S)-RNN"),
        "paper",
    ),
    Claim(
        "best text8",
        "On Text8 the network is better than the best published one without gates.",
        "Table 4",
        ("table4",),
        "its test error is below 1.48 BPC, of Skipping-RNN, by 0.005",
        _beats("table4", 1.48, "Skipping-RNN"),
        "paper",
    ),
    Claim(
        "rates",
        "On CIFAR-10 bipolar activations allow higher learning rates, up to 64 times.",
        "Table 5",
        ("table5",),
        "the search, which halves, finds at least twice the rate for every bipolar version, and four times for one",
        _rates,
    ),
    Claim(
        "errors",
        "On CIFAR-10 bipolar activations reach a lower error.",
        "Table 5",
        ("table5",),
        f"the test error is lower for every bipolar version; margin: {ERROR}",
        _errors,
    ),
    Claim(
        "symmetry",
        "A bipolar network is a plain one with some weights' signs flipped, and trains as that does, unless something "
        "between the activations does not commute with the signs.",
        "ours",
        ("symmetry",),
        "in double precision the losses of the two are equal to the last bit; with max pooling or LayerNorm between "
        "they are not",
        _symmetry,
        "quick",
    ),
    Claim(
        "lsuv",
        "What bipolarity changes is what LSUV measures: with LSUV on the second moment plain and bipolar systems do "
        "the same.",
        "ours",
        ("figure2",),
        "the second moments after the last iteration differ by less than one per cent",
        _lsuv_explains,
        "quick",
    ),
    Claim(
        "second moment",
        "ReLU with LSUV on the second moment trains as BReLU does, ReLU with LSUV on variance more slowly.",
        "ours",
        ("figure6",),
        f"the means of their training losses over all steps are equal, that of the third is higher; margin: "
        f"{BPC_OF_A_CURVE}",
        _second_moment,
    ),
    Claim(
        "aliasing",
        "ELU need not diverge: with right gradients it trains as BELU does, with its derivative taken after a skip "
        "that was added in place it does not.",
        "ours",
        ("aliasing",),
        "the validation errors of ELU and BELU are equal to within 0.05 BPC; with the mistake that of ELU is higher by "
        "0.2, or it does not converge",
        _aliasing,
    ),
    Claim(
        "shortcut",
        "The gap on CIFAR-10 is the shortcut's: with a clean one ReLU and BReLU tie, with a rectified one ReLU is "
        "worse.",
        "ours",
        ("shortcut",),
        f"the test errors of the two with clean shortcuts are equal, that of ReLU with a rectified one is higher; "
        f"margin: {ERROR}",
        _shortcut,
    ),
)
