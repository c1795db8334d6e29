"""Characters a second of each cell in training, at one million parameters, beside the stack and torch's fused LSTM.

A step is forward, loss, backward and Adam, as in ``bipolar train text``, without its loop.
"""

import argparse
from collections.abc import Callable

import torch

from benchmarks.common import best_of, machine, markdown_table, record, timed
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.lab.training.text.rival_options import RivalOptions

PARAMS, BATCH, WINDOW = 1e6, 128, 50
VOCABULARY = "".join(map(chr, range(ord("A"), ord("A") + 50)))
STACK, FUSED = "stack", "lstm, torch's"
#: The layers of each are those of its paper, or common ones.
MODELS = {
    STACK: TextModel(36),
    FUSED: TextModel(1, cell="lstm"),
    "gru, torch's": TextModel(1, cell="gru"),
    "rnn, torch's": TextModel(1, cell="rnn"),
    "relu": TextModel(1, cell="relu"),
    "irnn": TextModel(1, cell="irnn"),
    "rnn, zoneout": TextModel(1, cell="rnn", rival=RivalOptions(zoneout=0.05)),
    "gru, zoneout": TextModel(1, cell="gru", rival=RivalOptions(zoneout=0.05)),
    "lstm, zoneout": TextModel(1, cell="lstm", rival=RivalOptions(zoneout=0.05, zoneout_cell=0.5)),
    "lstm, stochastic depth": TextModel(1, cell="lstm", rival=RivalOptions(stochastic_depth=0.05)),
    "lstm, dropout": TextModel(1, cell="lstm", dropout=0.1),
    "lstm, candidate dropout": TextModel(1, cell="lstm", rival=RivalOptions(candidate_dropout=0.1)),
    "lstm, rnnDrop": TextModel(1, cell="lstm", recurrent_dropout=0.1),
    "lstm, batch norm": TextModel(1, cell="lstm", rival=RivalOptions(batch_norm=True)),
    "lstm, layer norm": TextModel(1, cell="lstm", rival=RivalOptions(layer_norm=True)),
    "lstm, weight norm": TextModel(1, cell="lstm", rival=RivalOptions(weight_norm=True)),
    "mi_rnn": TextModel(1, cell="mi_rnn"),
    "mi_lstm": TextModel(1, cell="mi_lstm"),
    "mlstm": TextModel(1, cell="mlstm"),
    "delta_rnn": TextModel(1, cell="delta_rnn"),
    "dots": TextModel(1, cell="dots"),
    "skipping": TextModel(1, cell="skipping"),
    "highway": TextModel(1, cell="highway"),
    "hyper_lstm, layer norm": TextModel(1, cell="hyper_lstm", rival=RivalOptions(layer_norm=True)),
    "hm_lstm, layer norm": TextModel(3, cell="hm_lstm", rival=RivalOptions(layer_norm=True)),
    "indrnn, batch norm": TextModel(6, cell="indrnn", rival=RivalOptions(batch_norm=True)),
    "mingru": TextModel(3, cell="mingru"),
    "transformer": TextModel(4, cell="transformer"),
}


def step_of(model: TextModel, params: float, batch: int, window: int) -> tuple[Callable[[], None], int, int]:
    """A training step of a model with so many parameters, its width, and its parameters."""
    config = TextConfig("ptb", TextModel(**vars(model) | {"params": params}))
    network = config.build(VOCABULARY)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
    x, y = torch.randint(len(VOCABULARY), (2, window, batch))
    _, state = network(x)

    def step() -> None:
        logits, _ = network(x, state.detach())
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, config.model.width(len(VOCABULARY)), network.num_parameters


def measure(params: float, batch: int, window: int, rounds: int, at_least: float) -> str:
    """The table."""
    torch.manual_seed(0)
    steps = {name: step_of(model, params, batch, window) for name, model in MODELS.items()}
    best = best_of([timed(step) for step, _, _ in steps.values()], rounds, at_least)
    speeds = {name: batch * window / seconds for name, (seconds,) in zip(steps, best, strict=True)}
    rows = [
        [
            name,
            f"{MODELS[name].num_layers} x {width}",
            f"{parameters / 1e6:.3f}",
            f"{speeds[name]:,.0f}",
            f"{speeds[name] / speeds[STACK]:.2f}",
            f"{speeds[name] / speeds[FUSED]:.2f}",
        ]
        for name, (_, width, parameters) in steps.items()
    ]
    header = ["cell", "layers x units", "million parameters", "characters/s", "of the stack's", "of the fused LSTM's"]
    return markdown_table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds at least, of all cells in turn")
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    arguments = parser.parse_args()
    table = measure(PARAMS, BATCH, WINDOW, arguments.rounds, at_least=10)
    text = (
        f"{machine()}; float32, batch {BATCH}, {WINDOW} steps; best of {arguments.rounds} rounds or more, all cells "
        f"taking turns.\n\n{table}"
    )
    print(text)
    if arguments.record:
        record("cells", text)


if __name__ == "__main__":
    main()
