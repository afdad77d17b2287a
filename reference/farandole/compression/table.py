"""Every compressor, one row each.

The options of compressed_sgd, choco_sgd and parameter_server, their help and their refusals, and the tests read this
table. A new compressor is a file with its class and a function `make`, and a row here. Nothing is imported to read it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One compressor.

    Attributes:
        make: "module:function" that makes one rank's, of a `compressor.Use`.
        options: its own fields among the options.
        has_feedback: error feedback is the default, because it is wrong on average.
        is_plain: a function of the vector and of random numbers alone, so that single vectors can be encoded.
        is_for_neighbours: choco_sgd offers it, for differences between neighbours.
        is_pushed: parameter_server offers it, for the gradients that workers push.
    """

    make: str
    options: tuple[str, ...] = ()
    has_feedback: bool = False
    is_plain: bool = True
    is_for_neighbours: bool = False
    is_pushed: bool = False


COMPRESSORS: dict[str, Row] = {
    "none": Row("farandole.compression.compressor:make", is_for_neighbours=True, is_pushed=True),
    "float16": Row("farandole.compression.half_precision:make_float16", is_for_neighbours=True, is_pushed=True),
    "bfloat16": Row("farandole.compression.half_precision:make_bfloat16", is_for_neighbours=True, is_pushed=True),
    "qsgd": Row("farandole.compression.qsgd:make", ("levels", "bucket"), is_for_neighbours=True, is_pushed=True),
    "terngrad": Row("farandole.compression.terngrad:make", ("bucket", "terngrad_clip", "share_scales"), is_pushed=True),
    "sign": Row("farandole.compression.sign:make", has_feedback=True, is_for_neighbours=True, is_pushed=True),
    "majority-vote": Row("farandole.compression.majority_vote:make", is_plain=False),
    "top-k": Row("farandole.compression.top_k:make", ("fraction",), has_feedback=True, is_for_neighbours=True),
    "random-k": Row(
        "farandole.compression.random_k:make", ("fraction",), has_feedback=True, is_for_neighbours=True, is_pushed=True
    ),
    "dgc": Row(
        "farandole.compression.dgc:make",
        ("fraction", "dgc_momentum", "sparsity_warm_up", "clip"),
        is_plain=False,
    ),
    "powersgd": Row("farandole.compression.powersgd:make", ("matrix_rank",), has_feedback=True, is_plain=False),
}

FEEDBACK = {name for name, row in COMPRESSORS.items() if row.has_feedback}
# Of each option, the compressors that it is for; to all others it says nothing.
MEANT_FOR = {
    option: tuple(name for name, row in COMPRESSORS.items() if option in row.options)
    for option in dict.fromkeys(option for row in COMPRESSORS.values() for option in row.options)
}
FOR_NEIGHBOURS = tuple(name for name, row in COMPRESSORS.items() if row.is_for_neighbours)
PUSHED = tuple(name for name, row in COMPRESSORS.items() if row.is_pushed)
