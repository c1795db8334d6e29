"""One time step of ``StackedRNN``, as in sampling, against the time it takes to read the weights from memory once.

A generated symbol needs every weight once, so that no implementation can be faster than reading them. The sum of a
tensor of the same size and the matrix-vector products alone measure that limit, for all threads and for one alone,
which waits for no other. A character is a step, the embedding, the decoder and a draw: by ``StackedRNN.step``, as
before there was a stepper, and by the stepper, for one text and for 32 at a time; and, for one text, all that ``bipolar
sample`` runs, which is ``CharRNN.generate``.
"""

import argparse
from collections.abc import Callable

import torch
from torch import nn

import bipolar
from benchmarks.common import best_of, machine, markdown_table, record, timed

LAYERS, UNITS = 36, 256
#: The characters of each text.
LENGTH = 500
#: The longest step at batch 1, in times of reading the weights, and the aim beside ``nn.RNN``.
READINGS, OF_RIVAL = 3.0, 2.0
STEPPER, RIVAL = "StackedRNN.stepper, onnxruntime", "nn.RNN relu, a sequence of one"


def methods(batch: int) -> dict[str, Callable[[], object]]:
    """The ways to a step."""
    rnn = bipolar.StackedRNN(UNITS, UNITS, LAYERS).eval()
    rival = nn.RNN(UNITS, UNITS, LAYERS, nonlinearity="relu").eval()
    weights = torch.cat([p.detach().flatten() for p in rnn.parameters()])
    x, state = torch.randn(batch, UNITS), torch.zeros(LAYERS, batch, UNITS)
    matrices, column = [p.detach() for p in rnn.parameters() if p.ndim == 2], x.mT.contiguous()

    def of(model: nn.Module) -> Callable[[], None]:
        @torch.no_grad()
        def run() -> None:
            model(x.unsqueeze(0), state)

        return run

    stepper, by_torch = rnn.stepper("onnxruntime"), rnn.stepper("torch")
    return {
        "read the weights once (sum)": weights.sum,
        "the products alone (mm)": lambda: [torch.mm(matrix, column) for matrix in matrices],
        STEPPER: lambda: stepper(x),
        "StackedRNN.stepper, torch": lambda: by_torch(x),
        "StackedRNN.step": lambda: rnn.step(x, state),
        "StackedRNN, a sequence of one": of(rnn),
        RIVAL: of(rival),
    }


def characters(batch: int) -> dict[str, Callable[[], object]]:
    """The ways to some characters of each of so many texts."""
    model = bipolar.models.CharRNN("abcdefghijklmnopqrstuvwxyz ", UNITS, LAYERS).eval()

    def by_step() -> None:
        token, state = torch.zeros(batch, dtype=torch.int64), None
        for _ in range(LENGTH):
            logits, state = model.step(token, state)
            token = torch.multinomial(logits.softmax(-1), 1).squeeze(1)

    def by_stepper() -> None:
        token, read = torch.zeros(batch, dtype=torch.int64), model.reader()
        for _ in range(LENGTH):
            token = torch.multinomial(read(token).softmax(-1), 1).squeeze(1)

    ways: dict[str, Callable[[], object]] = {
        "characters by StackedRNN.step": by_step,
        "characters by the stepper": by_stepper,
    }
    if batch == 1:
        ways["CharRNN.generate"] = lambda: model.generate("a", LENGTH)
    return ways


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows, threads = [], torch.get_num_threads()
    for batch, number in ((1, threads), (1, 1), (32, threads)):
        torch.set_num_threads(number)
        ways = methods(batch)
        times = [seconds for (seconds,) in best_of([timed(run, repeats=50) for run in ways.values()], 5, 10)]
        of = dict(zip(ways, times, strict=True))
        for name, seconds in of.items():
            remark = ""
            if name == STEPPER:
                faster, readings = of[RIVAL] / seconds, seconds / times[0]
                remark = f"{readings:.1f} readings, {faster:.1f} times nn.RNN's speed"
                if batch == 1:
                    remark += f": {'met' if faster >= OF_RIVAL and readings <= READINGS else 'missed'}"
            rows.append([str(batch), str(number), name, f"{1000 * seconds:.2f}", f"{times[0] / seconds:.2f}", remark])
    torch.set_num_threads(threads)
    for batch in (1, 32):
        made = characters(batch)
        for name, (seconds,) in zip(made, best_of([timed(run) for run in made.values()], 3, 3), strict=True):
            pace = f"{batch * LENGTH / seconds:,.0f} characters/s"
            rows.append([str(batch), str(threads), name, f"{1000 * seconds / LENGTH:.2f}", "", pace])
    table = markdown_table(["batch", "threads", "method", "ms", "share of reading", "remark"], rows)
    text = (
        f"{machine()}; float32, {LAYERS} x {UNITS}. Aims at batch 1: {READINGS:g} readings at most, and {OF_RIVAL:g} "
        f"times the speed of nn.RNN.\n\n{table}"
    )
    print(text)
    if arguments.record:
        record("generate", text)


if __name__ == "__main__":
    main()
