"""``StackedRNN.step`` at batch 1 against the time it takes to read the weights from memory once.

A generated symbol needs every weight once, so that no implementation can be faster than reading them. The sum of a
tensor of the same size and the matrix-vector products alone measure that limit.
"""

import argparse
from collections.abc import Callable

import torch

import bipolar
from benchmarks.common import best_of, machine, markdown_table, record, timed

LAYERS, UNITS = 36, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rnn = bipolar.StackedRNN(UNITS, UNITS, LAYERS).eval()
    rival = torch.nn.RNN(UNITS, UNITS, LAYERS, nonlinearity="relu").eval()
    weights = torch.cat([p.detach().flatten() for p in rnn.parameters()])
    x, state, vector = torch.randn(1, UNITS), torch.zeros(LAYERS, 1, UNITS), torch.randn(UNITS)
    matrices = [p.detach() for p in rnn.parameters() if p.ndim == 2]

    def sequence() -> None:
        with torch.no_grad():
            rnn(x.unsqueeze(0), state)

    def rivals() -> None:
        with torch.no_grad():
            rival(x.unsqueeze(0), state)

    methods: dict[str, Callable[[], object]] = {
        "read the weights once (sum)": weights.sum,
        "the products alone (mv)": lambda: [torch.mv(matrix, vector) for matrix in matrices],
        "StackedRNN.step": lambda: rnn.step(x, state),
        "StackedRNN, a sequence of one": sequence,
        "nn.RNN relu, a sequence of one": rivals,
    }
    times = [seconds for (seconds,) in best_of([timed(run, repeats=50) for run in methods.values()], 5, 10)]
    rows = [
        [f"{LAYERS} x {UNITS}", name, f"{1000 * seconds:.2f}", f"{times[0] / seconds:.2f}", f"{1 / seconds:.0f}"]
        for name, seconds in zip(methods, times, strict=True)
    ]
    table = markdown_table(["layers x units", "method", "ms", "share of reading", "steps/s"], rows)
    text = f"{machine()}; float32, batch 1; {weights.nbytes / 1e6:.1f} MB of weights.\n\n{table}"
    print(text)
    if arguments.record:
        record("generate", text)


if __name__ == "__main__":
    main()
