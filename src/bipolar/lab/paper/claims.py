"""What the paper claims, what we claim, and how the runs decide.

Each claim says how it is decided: by a comparison with a margin, from which scale on. Below that scale, without runs,
or where the comparison falls within the margin, the verdict is that it is not decided.
"""

import math
from collections.abc import Callable, Sequence

from bipolar.lab.paper.comparison import Cell, over
from bipolar.lab.paper.verdicts import Claim, Evidence, MissingError, Verdict, all_converged, diverged, lower, show

#: By how many BPC two runs have to differ.
BPC_MARGIN = 0.02
#: By how many per cent points.
ERROR_MARGIN = 1.0


def _means(e: Evidence) -> Verdict:
    (results,) = e.seeds("figure1")
    worst = max(abs(float(values["mean"])) for values in results.values())
    plain = min(abs(float(values["mean of the plain one"])) for values in results.values())
    reason = (
        f"the mean over both kinds of unit is at most {worst:.1g}, that of the plain activation at least {plain:.2g}"
    )
    return Verdict("reproduced" if worst < 1e-3 < plain else "not reproduced", reason)


def _dynamics(e: Evidence) -> Verdict:
    (results,) = e.seeds("figure2")
    curves = results["variance"]
    ends = {name: abs(math.log(curve["second_moment"][-1])) for name, curve in curves.items()}
    better = [name for name in ends if not name.startswith("b") and ends[f"b{name}"] < ends[name]]
    plain = [name for name in ends if not name.startswith("b")]
    reason = (
        f"after the last iteration the second moment is nearer to 1 with the bipolar version of "
        f"{len(better)} of {len(plain)}"
    )
    return Verdict("reproduced" if len(better) == len(plain) else "not reproduced", reason)


def _lsuv_explains(e: Evidence) -> Verdict:
    (results,) = e.seeds("figure2")
    curves = results["second_moment"]
    apart = max(
        abs(math.log(curves[f"b{name}"]["second_moment"][-1] / curve["second_moment"][-1]))
        for name, curve in curves.items()
        if not name.startswith("b")
    )
    reason = (
        f"with LSUV on the second moment the curves of plain and bipolar differ by a factor of at most "
        f"{math.exp(apart):.6f}"
    )
    return Verdict("reproduced" if apart < 0.01 else "not reproduced", reason)


def _smeared(e: Evidence) -> Verdict:
    lag = e.cell("figure4", "without skips", "mean_lag_of_the_lowest_layer")
    value = lag.mean or 0.0
    reason = (
        f"without skips the gradient at the lowest of 36 layers is centred {value:.1f} steps back; 45 "
        "degrees would be 35"
    )
    return Verdict("reproduced" if abs(value - 35) < 9 else "not reproduced", reason)


def _straightened(e: Evidence) -> Verdict:
    without, with_ = (
        e.cell("figure4", kind, "mean_lag_of_the_lowest_layer").mean for kind in ("without skips", "with skips")
    )
    without, with_ = without or 0.0, with_ or 0.0
    reason = f"centred {without:.1f} steps back without skips, {with_:.1f} with"
    return Verdict("reproduced" if with_ < without / 2 else "not reproduced", reason)


def _skips_help_depth(e: Evidence) -> Verdict:
    without, with_ = (e.cell("figure5", f"36 layers, {kind}", "last_train_bpc") for kind in ("no skips", "skips"))
    shallow = e.cell("figure5", "4 layers, skips", "last_train_bpc")
    reason = (
        f"36 layers end at {show(without)} BPC without skips and {show(with_)} with; 4 layers with skips "
        f"at {show(shallow)}"
    )
    if lower(with_, without, BPC_MARGIN) and lower(shallow, with_, BPC_MARGIN) is not True:
        return Verdict("reproduced", reason)
    return Verdict("not decided" if lower(with_, without, BPC_MARGIN) is None else "not reproduced", reason)


def _bipolar_is_lower(
    item: str, where: Callable[[str], tuple[str, ...]], pairs: Sequence[str], margin: float, what: str
) -> Callable[[Evidence], Verdict]:
    """That the bipolar version is lower for all of some activations."""

    def decide(e: Evidence) -> Verdict:
        found, parts = [], []
        for name in pairs:
            plain, flipped = e.cell(item, *where(name)), e.cell(item, *where(f"b{name}"))
            found.append(lower(flipped, plain, margin))
            parts.append(f"{what} of {name} {show(plain)}, of b{name} {show(flipped)}")
        reason = "; ".join(parts)
        if all(found):
            return Verdict("reproduced", reason)
        if any(result is False for result in found) or all(result is None for result in found):
            return Verdict("not reproduced", f"{reason} (margin {margin})")
        return Verdict("not decided", f"{reason} (margin {margin})")

    return decide


def _only_plain_diverges(
    item: str, where: Callable[[str], tuple[str, ...]], names: Sequence[str]
) -> Callable[[Evidence], Verdict]:
    def decide(e: Evidence) -> Verdict:
        plain = {name: e.cell(item, *where(name)) for name in names}
        flipped = {f"b{name}": e.cell(item, *where(f"b{name}")) for name in names}
        reason = "; ".join(f"{name}: {show(cell)}" for name, cell in (plain | flipped).items())
        held = all(diverged(cell) for cell in plain.values()) and all(all_converged(cell) for cell in flipped.values())
        return Verdict("reproduced" if held else "not reproduced", reason)

    return decide


def _depth(e: Evidence) -> Verdict:
    cells = {
        (name, depth): e.cell("table1", depth, name, "valid_bpc") for name in ("relu", "belu") for depth in ("4", "36")
    }
    reason = "; ".join(f"{name}, {depth} layers: {show(cell)}" for (name, depth), cell in cells.items())
    relu_worse = lower(cells["relu", "4"], cells["relu", "36"], BPC_MARGIN)
    belu_worse = lower(cells["belu", "4"], cells["belu", "36"], BPC_MARGIN)
    if relu_worse and belu_worse is not True:
        return Verdict("reproduced", reason)
    return Verdict("not reproduced", reason)


def _dropout(e: Evidence) -> Verdict:
    best = {}
    for depth in ("4 layers", "36 layers"):
        names = [
            name
            for name in e.seeds("dropout")[0]
            if name.startswith(f"{depth}, relu, ") and name.endswith("recurrent_dropout 0.025, block_dropout 0.025")
        ]
        means = {name: e.cell("dropout", name).mean for name in names}
        finite = {name: mean for name, mean in means.items() if mean is not None}
        if not finite:
            raise MissingError(f"no run of {depth} has converged")
        best[depth] = float(min(finite, key=lambda name: finite[name]).split(", ")[2].split()[1])
    reason = ", ".join(f"{depth}: {rate:g}" for depth, rate in best.items())
    return Verdict("reproduced" if best["4 layers"] > best["36 layers"] else "not reproduced", f"best rate: {reason}")


def _beats(item: str, rival: float, name: str) -> Callable[[Evidence], Verdict]:
    def decide(e: Evidence) -> Verdict:
        cell = e.cell(item, "belu", "test_bpc")
        if cell.mean is None:
            return Verdict("not reproduced", "the run did not converge")
        return Verdict(
            "reproduced" if cell.mean < rival else "not reproduced", f"{show(cell)} against {rival} of {name}"
        )

    return decide


def _rates(e: Evidence) -> Verdict:
    ratios = {}
    for network in ("wrn", "orn"):
        for name in ("relu", "elu"):
            try:
                plain, flipped = (e.cell("table5", network, kind, "lr").mean for kind in (name, f"b{name}"))
            except MissingError:
                continue
            ratios[f"{network}, {name}"] = (flipped or math.nan) / (plain or math.nan)
    if not ratios:
        raise MissingError("no pair of runs")
    reason = "the bipolar rate is " + ", ".join(f"{ratio:g} times that of {name}" for name, ratio in ratios.items())
    return Verdict("reproduced" if min(ratios.values()) >= 2 else "not reproduced", reason)


def _errors(e: Evidence) -> Verdict:
    found, parts = [], []
    for network in ("wrn", "orn"):
        for name in ("relu", "elu"):
            try:
                plain, flipped = (e.cell("table5", network, kind, "test_error") for kind in (name, f"b{name}"))
            except MissingError:
                continue
            found.append(lower(flipped, plain, ERROR_MARGIN))
            parts.append(f"{network}, {name}: {show(plain, 1)} %, bipolar {show(flipped, 1)} %")
    if not found:
        raise MissingError("no pair of runs")
    reason = "; ".join(parts)
    if all(found):
        return Verdict("reproduced", reason)
    return Verdict(
        "not decided" if False not in found and any(found) else "not reproduced",
        f"{reason} (margin {ERROR_MARGIN} points)",
    )


def _symmetry(e: Evidence) -> Verdict:
    (results,) = e.seeds("symmetry")
    equal = {name: pair["largest_difference"] == 0 for name, pair in results.items()}
    held = all(same == ("between" not in name) for name, same in equal.items())
    reason = "; ".join(f"{name}: {'equal to the last bit' if same else 'apart'}" for name, same in equal.items())
    return Verdict("reproduced" if held else "not reproduced", reason)


def _second_moment(e: Evidence) -> Verdict:
    cells = [e.cell("figure6", name, "last_train_bpc") for name in ("relu, second moment", "brelu", "relu")]
    reason = "training BPC: ReLU with LSUV on the second moment {}, BReLU {}, ReLU with LSUV on variance {}".format(
        *(show(cell) for cell in cells)
    )
    return Verdict("reproduced" if lower(cells[0], cells[1], BPC_MARGIN) is None else "not reproduced", reason)


def _aliasing(e: Evidence) -> Verdict:
    right, belu = (e.cell("aliasing", f"{name}, right", "best_valid_bpc") for name in ("elu", "belu"))
    wrong = Cell(over(e.seeds("aliasing"), "elu, after skip", "best_valid_bpc"))  # none, where it has not converged
    reason = (
        f"validation BPC: ELU with right gradients {show(right)}, BELU {show(belu)}, ELU with its "
        f"derivative taken after the skip {show(wrong) or 'did not converge'}"
    )
    held = lower(right, belu, 2 * BPC_MARGIN) is None and (wrong.mean is None or bool(lower(right, wrong, 0.2)))
    return Verdict("reproduced" if held else "not reproduced", reason)


def _shortcut(e: Evidence) -> Verdict:
    cells = {
        name: e.cell("shortcut", name, "test_error") for name in ("relu, clean", "brelu, clean", "relu, rectified")
    }
    reason = "; ".join(f"{name}: {show(cell, 1)} %" for name, cell in cells.items())
    tie = lower(cells["brelu, clean"], cells["relu, clean"], ERROR_MARGIN) is None
    worse = lower(cells["relu, clean"], cells["relu, rectified"], ERROR_MARGIN)
    if tie and worse:
        return Verdict("reproduced", reason)
    return Verdict("not decided" if tie and worse is None else "not reproduced", reason)


def _in_table1(depth: str) -> Callable[[str], tuple[str, ...]]:
    return lambda name: (depth, name, "valid_bpc")


CLAIMS = (
    Claim(
        "mean",
        "A bipolar activation shifts the mean activation towards zero.",
        "Theorems 1 and 2, Figure 1",
        ("figure1",),
        "for a standard normal input the mean over both kinds of unit is below 0.001, that of the "
        "plain activation above",
        _means,
        "quick",
    ),
    Claim(
        "dynamics",
        "Iterated bipolar layers are more stable than plain ones.",
        "Figure 2",
        ("figure2",),
        "after the last iteration the second moment of every bipolar system is nearer to 1 than that of its plain one",
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
        f"at 36 layers the training loss is lower with skips than without, by {BPC_MARGIN} BPC, and "
        "with skips not above "
        "that of 4 layers",
        _skips_help_depth,
    ),
    Claim(
        "faster",
        "Bipolar activations train faster at 36 layers.",
        "Figure 6",
        ("figure6",),
        "the training loss of the last steps is lower for BReLU than for ReLU and for BELU than for "
        f"ELU, by {BPC_MARGIN} BPC",
        _bipolar_is_lower(
            "figure6", lambda name: (name, "last_train_bpc"), ("relu", "elu"), BPC_MARGIN, "training BPC"
        ),
    ),
    Claim(
        "elu",
        "ELU networks diverge, BELU networks do not.",
        "Table 1",
        ("table1",),
        "no run of ELU at 36 layers converges, all of BELU do",
        _only_plain_diverges("table1", _in_table1("36"), ("elu",)),
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
        f"the validation error of ReLU is higher at 36 layers than at 4, by {BPC_MARGIN} BPC; that of BELU is not",
        _depth,
    ),
    Claim(
        "dropout",
        "The best dropout rate between layers falls with depth.",
        "Section on Penn Treebank",
        ("dropout",),
        "the best rate of 4 layers is higher than that of 36",
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
        "its test error is below 1.386 BPC, of DOT(S)-RNN",
        _beats("table2", 1.386, "DOT(S)-RNN"),
        "paper",
    ),
    Claim(
        "best text8",
        "On Text8 the network is better than the best published one without gates.",
        "Table 4",
        ("table4",),
        "its test error is below 1.48 BPC, of Skipping-RNN",
        _beats("table4", 1.48, "Skipping-RNN"),
        "paper",
    ),
    Claim(
        "rates",
        "On CIFAR-10 bipolar activations allow higher learning rates, up to 64 times.",
        "Table 5",
        ("table5",),
        "the search finds at least twice the rate for the bipolar version, of ReLU and of ELU, in either network",
        _rates,
    ),
    Claim(
        "errors",
        "On CIFAR-10 bipolar activations reach a lower error.",
        "Table 5",
        ("table5",),
        f"the test error is lower by {ERROR_MARGIN} points for the bipolar version, of ReLU and of "
        "ELU, in either network",
        _errors,
    ),
    Claim(
        "symmetry",
        "A bipolar network is a plain one with some weights' signs flipped, and trains as that does, unless something "
        "between the activations does not commute with the signs.",
        "ours",
        ("symmetry",),
        "in double precision the losses of the two are equal to the last bit; with max pooling or "
        "LayerNorm between they "
        "are not",
        _symmetry,
        "quick",
    ),
    Claim(
        "lsuv",
        "What bipolarity changes is what LSUV measures: with LSUV on the second moment plain and "
        "bipolar systems do the "
        "same.",
        "ours",
        ("figure2",),
        "the second moments after the last iteration differ by less than one per cent",
        _lsuv_explains,
        "quick",
    ),
    Claim(
        "second moment",
        "ReLU with LSUV on the second moment trains as BReLU does.",
        "ours",
        ("figure6",),
        f"their training losses at 36 layers differ by at most {BPC_MARGIN} BPC",
        _second_moment,
    ),
    Claim(
        "aliasing",
        "ELU need not diverge: with right gradients it trains as BELU does, with its derivative taken "
        "after a skip that "
        "was added in place it does not.",
        "ours",
        ("aliasing",),
        f"the validation errors of ELU and BELU differ by at most {2 * BPC_MARGIN} BPC; with the "
        "mistake ELU is worse by "
        "0.2, or does not converge",
        _aliasing,
    ),
    Claim(
        "shortcut",
        "The gap on CIFAR-10 is the shortcut's: with a clean one ReLU and BReLU tie, with a rectified "
        "one ReLU is worse.",
        "ours",
        ("shortcut",),
        f"the test errors of the two with clean shortcuts are within {ERROR_MARGIN} points or two "
        "standard errors; that of "
        "ReLU with a rectified one is higher by more",
        _shortcut,
    ),
)
