"""Pictures of single values: a row for each run, a point for each seed, and a line at their mean."""

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

from bipolar.lab.reproduce.outcomes import DNC, Results


def draw_points(seeds: Sequence[Results], key: str, look: Callable[[str], tuple[str, str]], *, xlabel: str) -> Figure:
    """Draws ``key`` of every run; ``look`` gives the colour of a run, and the words for it beside its name."""
    figure = Figure(figsize=(9, 0.6 * len(seeds[0]) + 1), layout="constrained")
    axes = figure.subplots()
    labels = []
    for place, name in enumerate(seeds[0]):
        found = [seed[name][key] for seed in seeds if name in seed]
        numbers = [value for value in found if isinstance(value, float)]
        color, words = look(name)
        axes.plot(numbers, [place] * len(numbers), "o", color=color, alpha=0.6)
        if numbers:
            axes.plot([sum(numbers) / len(numbers)], [place], "|", color="black", markersize=18)
        failed = f"; {len(found) - len(numbers)} of {len(found)} {DNC}" if len(numbers) < len(found) else ""
        labels.append(f"{name}\n({words}{failed})")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set(xlabel=xlabel, title="A point for each seed, and a line at their mean")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
