"""The pieces of torture, those that find the most in a minute first."""

from torture.calls import a_call
from torture.cluster import a_cluster
from torture.crashes import a_killed_reproduction, a_killed_run
from torture.damage import some_damage
from torture.folding import a_model_folded
from torture.hostile import a_hostile_file
from torture.trials import Piece

PIECES: dict[str, Piece] = {
    piece.name: piece
    for piece in (
        Piece(
            "calls",
            "Random calls of the public API, with random models, shapes, dtypes, layouts and values: the answer of a "
            "slow twin, or a clear error; the input and everything global stays as it was.",
            a_call,
            count=10_000,
            share=3,
            limit=120,
        ),
        Piece(
            "folding",
            "Random models, folded or unfolded: outputs equal to 1e-12 in double precision, on the example and on "
            "others, in evaluation and in training, or the activations stay for a reason.",
            a_model_folded,
            count=2_000,
            share=3,
            limit=120,
        ),
        Piece(
            "hostile",
            "Files of somebody who means harm, as models, runs, records, archives, images and texts: nothing is "
            "executed, nothing outside is written, pages escape them, and a command ends in words.",
            a_hostile_file,
            count=1_000,
            share=2,
            limit=120,
        ),
        Piece(
            "crashes",
            "`bipolar train text` and `train images`, killed by -9 up to three times at random file operations, and "
            "resumed: metrics, result and weights equal to those of an undisturbed run, bit for bit.",
            a_killed_run,
            count=50,
            share=3,
            limit=900,
        ),
        Piece(
            "damage",
            "A full disk, a directory that becomes read-only, broken checkpoints, two processes in one directory, a "
            "clock that jumps back, SIGTERM while saving: said in words, and then the same, bit for bit.",
            some_damage,
            count=60,
            share=3,
            limit=900,
        ),
        Piece(
            "reproductions",
            "`bipolar reproduce --workers 2`, itself or a worker killed by -9 up to three times, and called again: "
            "results and metrics equal to those of an undisturbed one, bit for bit.",
            a_killed_reproduction,
            count=20,
            share=3,
            limit=2400,
        ),
        Piece(
            "cluster",
            "A Ray cluster of two nodes, one of which dies: the other does the rest. A wrong address: said so within "
            "ten seconds of the start.",
            a_cluster,
            count=6,
            share=2,
            limit=1200,
        ),
    )
}
