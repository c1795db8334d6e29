"""``bipolar.StackedRNN`` against the matrix products alone, ``nn.RNN`` and its own reference: time and memory.

All methods take turns at a training step (forward and backward) on the paper's shapes, batch 128, 50 time steps. The
limit is the matrix products alone, in memory allocated beforehand: for each layer one for all U x, T for W h, T for the
gradient through time, one for the gradient on x and two for the weights. "share" is that time over a method's.
Our stack is the paper's, bipolar ELU with skips every four layers; ``nn.RNN`` has no skips and a simpler activation.

Packed batches have sequences of 1 to 50 steps, in a uniform draw.

Memory is the growth of the peak resident memory in one training step, in a process of its own.
"""

import argparse
import multiprocessing
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import bipolar
from benchmarks.common import best_of, in_fresh_process, machine, markdown_table, peak, record, timed

BATCH, STEPS = 128, 50
SHAPES = {(4, 760): 0.85, (36, 256): 0.85, (144, 128): 0.80, (36, 64): 0.65}  # with the aim for "share"
PACKED = ((4, 760), (12, 128))
NOISE = {"dropout": 0.05, "recurrent_dropout": 0.025, "block_dropout": 0.025}
#: Aims: the memory of the reference, and what dropout may cost in time and in memory.
THIRD, MORE, LARGER = 0.33, 1.10, 1.15
COMPILE_SECONDS = 60
#: A model that holds a stack, at which its graph breaks; compiled, it is to take the time of eager at most.
HOLDER, OF_EAGER = "a language model of ours", 1.0


def products(layers: int, units: int) -> Callable[[], None]:
    """The matrix products of a training step, and nothing else."""
    x, h = torch.randn(STEPS, BATCH, units), torch.empty(STEPS, BATCH, units)
    weight, gradient = torch.randn(units, units) / units**0.5, torch.empty(units, units)
    flat, out, xs, hs = x.view(-1, units), torch.empty(STEPS * BATCH, units), x.unbind(0), h.unbind(0)

    def run() -> None:
        for _ in range(layers):
            torch.mm(flat, weight.mT, out=out)
            for a, b in zip(xs, hs, strict=True):
                torch.mm(a, weight.mT, out=b)
            for a, b in zip(xs, hs, strict=True):
                torch.mm(a, weight, out=b)
            torch.mm(flat, weight, out=out)
            torch.mm(flat.mT, out, out=gradient)
            torch.mm(flat.mT, out, out=gradient)

    return run


def training_step(model: Any, x: Tensor | PackedSequence) -> Callable[[], None]:
    def run() -> None:
        model.zero_grad()
        output, _ = model(x)
        data = output.data if isinstance(output, PackedSequence) else output
        data.backward(torch.ones_like(data))

    return run


def build(method: str, layers: int, units: int) -> nn.Module:
    if method.startswith("nn.RNN"):
        return nn.RNN(units, units, layers, nonlinearity=method.split()[1])
    backend: Any = "reference" if "reference" in method else "auto"
    noise: dict[str, Any] = NOISE if "dropout" in method else {}
    return bipolar.StackedRNN(units, units, layers, backend=backend, **noise)


METHODS = ("nn.RNN relu", "nn.RNN tanh", "reference", "ours", "reference, dropout", "ours, dropout")


def _peak_memory(method: str, layers: int, units: int) -> float:
    model, x = build(method, layers, units), torch.randn(STEPS, BATCH, units)
    training_step(model, x[:1])()  # loads libraries and allocates gradients
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = peak()
    output, _ = model(x)
    output.backward(torch.ones_like(output))
    return peak() - before


def compare(layers: int, units: int, rounds: int, at_least: float) -> list[list[str]]:
    x = torch.randn(STEPS, BATCH, units)
    runs = [products(layers, units), *(training_step(build(method, layers, units), x) for method in METHODS)]
    times = [seconds for (seconds,) in best_of([timed(run) for run in runs], rounds, at_least)]
    names, limit = ["matrix products alone", *METHODS], times[0]
    memory = [0.0, *(in_fresh_process(_peak_memory, method, layers, units) for method in METHODS)]
    rows = []
    for name, seconds, mib in zip(names, times, memory, strict=True):
        remarks = ""
        if name == "ours":
            share, relu = SHAPES[layers, units], times[names.index("nn.RNN relu")]
            verdict = f"aim {share:.2f} {'met' if limit / seconds >= share else 'missed'}"
            third = mib / memory[names.index("reference")]
            remarks = (
                f"{verdict}; nn.RNN relu takes {relu / seconds:.2f}x; memory {third:.2f} of the reference, aim "
                f"{THIRD:.2f} {'met' if third <= THIRD else 'missed'}"
            )
        elif name == "ours, dropout":
            more, larger = (values[names.index(name)] / values[names.index("ours")] for values in (times, memory))
            remarks = (
                f"{100 * (more - 1):+.0f} % for dropout, aim {100 * (MORE - 1):.0f} "
                f"{'met' if more <= MORE else 'missed'}; memory {larger:.2f} of none, aim {LARGER:.2f} "
                f"{'met' if larger <= LARGER else 'missed'}"
            )
        rows.append(
            [
                f"{layers} x {units}",
                name,
                f"{1000 * seconds:.0f}",
                f"{limit / seconds:.2f}",
                f"{mib:.0f}" if mib else "",
                remarks,
            ]
        )
    return rows


def compiled(what: str, layers: int, units: int) -> str:
    """A sentence on the reference, or a model that holds our stack, under ``torch.compile``; in a process that may take
    two minutes."""
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=_compile, args=(what, layers, units, queue))
    process.start()
    process.join(COMPILE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        return f"{layers} x {units}: {what} under torch.compile was still compiling after {COMPILE_SECONDS} s."
    if queue.empty():
        return f"{layers} x {units}: {what} under torch.compile failed (exit code {process.exitcode})."
    eager, ours = queue.get()
    times = f"{layers} x {units}: {what} takes {eager:.0f} ms, and {ours:.0f} ms under torch.compile"
    if what != HOLDER:
        return f"{times}."
    verdict = "met" if ours <= OF_EAGER * eager else "missed"
    return f"{times}: {ours / eager:.2f} of eager, aim {OF_EAGER:g} {verdict}."


def _compile(
    what: str, layers: int, units: int, queue: "multiprocessing.queues.SimpleQueue[tuple[float, float]]"
) -> None:
    model, x = build(what, layers, units), torch.randn(STEPS, BATCH, units)
    if what == HOLDER:
        model, x = bipolar.models.CharRNN(50, units, layers), torch.randint(50, (STEPS, BATCH))
    eager, ours = best_of([timed(training_step(m, x)) for m in (model, torch.compile(model))], 8, 5)
    queue.put((1000 * eager[0], 1000 * ours[0]))


def packed(layers: int, units: int, rounds: int, at_least: float) -> list[list[str]]:
    """Rows for a batch of sequences of different length."""
    lengths = torch.randint(1, STEPS + 1, (BATCH,))
    x = pack_padded_sequence(torch.randn(STEPS, BATCH, units), lengths, enforce_sorted=False)
    methods = ("nn.RNN relu", "ours")
    runs = [timed(training_step(build(method, layers, units), x)) for method in methods]
    times = [seconds for (seconds,) in best_of(runs, rounds, at_least)]
    remarks = ["", f"nn.RNN relu takes {times[0] / times[1]:.2f}x"]
    return [
        [f"{layers} x {units}", f"{method}, packed", f"{1000 * seconds:.0f}", "", "", remark]
        for method, seconds, remark in zip(methods, times, remarks, strict=True)
    ]


#: The parts of what dropout adds to a step, by the operations that a profile counts.
PARTS = {
    "our own code between the operations": ("_Wavefront", "_WavefrontBackward"),
    "copies of fronts": ("aten::copy_",),
    "values zeroed, set aside and put back": ("aten::index_fill_", "aten::index_select", "aten::index_copy_"),
    "drawing": ("aten::uniform_", "aten::neg_", "aten::log1p_", "aten::cumsum", "aten::searchsorted", "aten::random_"),
}


def profile_of_dropout(layers: int, units: int) -> str:
    """A sentence on what dropout adds, by a profile with one thread, whose own cost makes small operations larger."""
    threads, totals = torch.get_num_threads(), []
    torch.set_num_threads(1)
    for method in ("ours", "ours, dropout"):
        run = training_step(build(method, layers, units), torch.randn(STEPS, BATCH, units))
        run()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
            for _ in range(5):
                run()
        totals.append({event.key: event.self_cpu_time_total for event in found.key_averages()})
    torch.set_num_threads(threads)
    before, after = totals
    added = {key: time - before.get(key, 0.0) for key, time in after.items()}
    whole = sum(added.values())
    shares = {part: sum(added.get(key, 0.0) for key in keys) / whole for part, keys in PARTS.items()}
    listed = ", ".join(f"{part} {share:.0%}" for part, share in shares.items())
    return (
        f"{layers} x {units}: a profile finds the time that dropout adds in {listed}; the rest is in "
        "other operations, the matrix products among them."
    )


def growth(rounds: int) -> str:
    """Time per layer against depth, at width 64."""
    depths = (4, 12, 36, 100, 400)
    x = torch.randn(STEPS, BATCH, 64)
    runs = [timed(training_step(build("ours", layers, 64), x)) for layers in depths]
    times = [seconds for (seconds,) in best_of(runs, rounds, 20)]
    per_layer = [1000 * seconds / layers for seconds, layers in zip(times, depths, strict=True)]
    listed = ", ".join(f"{layers} layers {ms:.2f}" for layers, ms in zip(depths, per_layer, strict=True))
    spread = max(per_layer) / min(per_layer) - 1
    return f"Milliseconds per layer at width 64: {listed}. Largest over smallest: {100 * spread:+.0f} % (aim: 10 %)."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="rounds at least, of which the best counts (default: 4)")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which takes minutes")
    parser.add_argument("--record", action="store_true", help="write the tables into benchmarks/README.md too")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for layers, units in SHAPES:
        print(f"measuring {layers} x {units} ...", flush=True)
        rows += compare(layers, units, arguments.rounds, at_least=10)
    for layers, units in PACKED:
        rows += packed(layers, units, arguments.rounds, at_least=10)
    notes = [growth(arguments.rounds), profile_of_dropout(36, 64), profile_of_dropout(144, 128)]
    if not arguments.no_compile:
        notes += [compiled("the reference", layers, units) for layers, units in ((4, 760), (36, 64))]
        notes += [compiled(HOLDER, layers, units) for layers, units in ((4, 760), (36, 256), (36, 64))]
    head = f"{machine()}; float32, batch {BATCH}, {STEPS} steps; best of {arguments.rounds} rounds or more."
    table = markdown_table(["layers x units", "method", "ms", "share", "MiB", "remarks"], rows)
    text = "\n\n".join([head, table, *notes])
    print(text)
    if arguments.record:
        record("rnn", text)


if __name__ == "__main__":
    main()
