"""Known wrong answers of lab 9, as changes of reference.py."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

MUTANTS = [
    Mutant(
        name="adds_the_bias_on_every_rank",
        says="Adds the bias to every rank's part, before they are added up.",
        fails={
            "row forward": "has the bias 4 times: add it once",
            "uneven sizes": "has the bias 4 times",
            "training": "by the dense layer",
        },
        changes={
            "return all_reduce(x @ self.weight, self.comm) + self.bias": """
            return all_reduce(x @ self.weight + self.bias, self.comm)
            """,
        },
    ),
    Mutant(
        name="adds_to_the_last_gradient",
        says="Adds every backward pass's gradients to those of the one before.",
        fails={"training": "contains that of the step before"},
        changes={
            "self.weight, self.bias, self.comm = weight[:, own].copy(), bias[own].copy(), comm": """
            self.weight, self.bias, self.comm = weight[:, own].copy(), bias[own].copy(), comm
            self.weight_gradient, self.bias_gradient = np.zeros_like(self.weight), np.zeros_like(self.bias)
            """,
            """
            self.weight_gradient = self.x.T @ gradient
            self.bias_gradient = gradient.sum(axis=0)
            return all_reduce(gradient @ self.weight.T, self.comm)
            """: """
            self.weight_gradient += self.x.T @ gradient
            self.bias_gradient += gradient.sum(axis=0)
            return all_reduce(gradient @ self.weight.T, self.comm)
            """,
            "self.weight, self.bias, self.comm = weight[own].copy(), bias.copy(), comm": """
            self.weight, self.bias, self.comm = weight[own].copy(), bias.copy(), comm
            self.weight_gradient, self.bias_gradient = np.zeros_like(self.weight), np.zeros_like(self.bias)
            """,
            """
            self.weight_gradient = self.x.T @ gradient
            self.bias_gradient = gradient.sum(axis=0)
            return gradient @ self.weight.T
            """: """
            self.weight_gradient += self.x.T @ gradient
            self.bias_gradient += gradient.sum(axis=0)
            return gradient @ self.weight.T
            """,
        },
    ),
    Mutant(
        name="adds_up_on_both_ways",
        says="Adds up in the row layer on the way back as well: gradients of different columns of x.",
        fails={
            "row backward": "is a sum over the ranks: each has other columns of x",
            "uneven sizes": "the same length and type on both sides?",
            "bytes": "RowLinear.backward on rank 0 sent 216 bytes; it should send nothing",
            "messages": "RowLinear.backward on rank 0 sent 6 messages; it should send none",
            "training": "by the dense layer",
        },
        changes={"return gradient @ self.weight.T": "return all_reduce(gradient @ self.weight.T, self.comm)"},
    ),
    Mutant(
        name="adds_up_the_columns",
        says="Adds up the ranks' columns of y, as after rows.",
        fails={
            "column forward": "is a sum over the ranks: their columns are different columns of y",
            "uneven sizes": "the same length and type on both sides?",
            "bytes": "ColumnLinear.forward on rank 0 sent 432 bytes; it should send nothing",
            "messages": "ColumnLinear.forward on rank 0 sent 6 messages; it should send none",
            "training": "by the dense layer",
        },
        changes={"return x @ self.weight + self.bias": "return all_reduce(x @ self.weight + self.bias, self.comm)"},
    ),
    Mutant(
        name="adds_up_the_gradient_of_the_bias",
        says=(
            "Adds up the row layer's bias gradient over the ranks, as in "
            "data parallel training, though each has all of it."
        ),
        fails={
            "row backward": "bias_gradient on rank 0 is 4 times too large",
            "uneven sizes": "bias_gradient on rank 0 is 4 times too large",
            "bytes": "RowLinear.backward on rank 0 sent 288 bytes",
            "messages": "RowLinear.backward on rank 0 sent 6 messages",
            "training": "RowLinear's bias_gradient",
        },
        changes={
            "return gradient @ self.weight.T": """
            self.bias_gradient = all_reduce(self.bias_gradient, self.comm)
            return gradient @ self.weight.T
            """,
        },
    ),
    Mutant(
        name="adds_up_the_gradients_of_the_weight",
        says="Adds up the weights' gradients over the ranks, as in data parallel training: they differ.",
        fails={
            "column backward": "ColumnLinear's weight_gradient on rank 0 is a sum over the ranks: they are of",
            "row backward": "RowLinear's weight_gradient on rank 0 is a sum over the ranks: they are of",
            "uneven sizes": "called from line",
            "bytes": "ColumnLinear.backward on rank 0 sent",
            "messages": "ColumnLinear.backward on rank 0 sent 12 messages",
            "training": "by the dense layer",
        },
        changes={
            "return all_reduce(gradient @ self.weight.T, self.comm)": """
            self.weight_gradient = all_reduce(self.weight_gradient, self.comm)
            return all_reduce(gradient @ self.weight.T, self.comm)
            """,
            "return gradient @ self.weight.T": """
            self.weight_gradient = all_reduce(self.weight_gradient, self.comm)
            return gradient @ self.weight.T
            """,
        },
    ),
    Mutant(
        name="cuts_the_bias_of_rows",
        says="Gives each rank of the row layer a piece of the bias, like the column layer's.",
        fails=dict.fromkeys(
            ("parts", "row forward", "row backward", "uneven sizes", "bytes", "messages", "training"),
            "so it keeps the whole bias",
        ),
        changes={
            "weight[own].copy(), bias.copy(), comm": """
            weight[own].copy(), np.array_split(bias, comm.size)[comm.rank].copy(), comm
            """,
        },
    ),
    Mutant(
        name="cuts_the_other_way",
        says="Gives the column layer rows, and the row layer columns.",
        fails={
            "parts": "has rows of A",
            "column forward": "has rows of A",
            "row forward": "has columns of A",
            "column backward": "has rows of A",
            "row backward": "has columns of A",
            "uneven sizes": "has rows of A",
            "bytes": "has rows of A",
            "messages": "has rows of A",
            "training": "has rows of A",
        },
        changes={
            """
            own = slices(equal_shares(len(bias), comm.size))[comm.rank]
            self.weight, self.bias, self.comm = weight[:, own].copy(), bias[own].copy(), comm
            """: """
            self.weight = np.array_split(weight, comm.size, axis=0)[comm.rank].copy()
            self.bias, self.comm = np.array_split(bias, comm.size)[comm.rank].copy(), comm
            """,
            """
            own = slices(equal_shares(len(weight), comm.size))[comm.rank]
            self.weight, self.bias, self.comm = weight[own].copy(), bias.copy(), comm
            """: """
            self.weight = np.array_split(weight, comm.size, axis=1)[comm.rank].copy()
            self.bias, self.comm = bias.copy(), comm
            """,
        },
    ),
    Mutant(
        name="drops_the_remainder",
        says="Gives every rank equally many columns or rows, and leaves out the remainder.",
        fails={
            "uneven sizes": (
                "rank 0 has the shape (7, 2) where (7, 3) is right: np.array_split cuts 10 columns into 3, 3, 2"
            )
        },
        changes={
            "own = slices(equal_shares(len(bias), comm.size))[comm.rank]": """
            share = len(bias) // comm.size
            own = slice(comm.rank * share, (comm.rank + 1) * share)
            """,
            "own = slices(equal_shares(len(weight), comm.size))[comm.rank]": """
            share = len(weight) // comm.size
            own = slice(comm.rank * share, (comm.rank + 1) * share)
            """,
        },
    ),
    Mutant(
        name="forgets_the_sum",
        says="Returns its own part of y as the whole.",
        fails={
            "row forward": "is this rank's part alone",
            "uneven sizes": "is this rank's part alone",
            "bytes": "RowLinear.forward on rank 0 sent 0 bytes; an all-reduce of its result sends 1,728",
            "messages": "RowLinear.forward on rank 0 sent 0 messages",
            "training": "by the dense layer",
        },
        changes={"return all_reduce(x @ self.weight, self.comm) + self.bias": "return x @ self.weight + self.bias"},
    ),
    Mutant(
        name="forgets_the_sum_on_the_way_back",
        says="Returns its own columns' part of the gradient of x, as if x had been used nowhere else.",
        fails={
            "column backward": "add up what all contribute",
            "uneven sizes": "add up what all contribute",
            "bytes": "ColumnLinear.backward on rank 0 sent 0 bytes; an all-reduce of its result sends 864",
            "messages": "ColumnLinear.backward on rank 0 sent 0 messages",
            "training": "by the dense layer",
        },
        changes={"return all_reduce(gradient @ self.weight.T, self.comm)": "return gradient @ self.weight.T"},
    ),
    Mutant(
        name="gathers_and_adds_up",
        says="Sends every rank's part to every rank, which adds them up: the right sum, and P/2 times the bytes.",
        fails={
            "bytes": "is every rank's part sent to every rank",
            "messages": "RowLinear.forward on rank 0 sent 3 messages",
        },
        changes={
            """
            total = part.flatten()
            chunks = [total[chunk] for chunk in chunk_slices(len(total), comm.size)]
            for step in RING.steps(comm.rank, comm.size):
                own, arriving = chunks[step.recv], np.empty_like(chunks[step.recv])
                comm.exchange(chunks[step.send], step.to, arriving, step.source)
                own[:] = own + arriving if step.reduce else arriving
            return total.reshape(part.shape)
            """: """
            leaving, total = part, part.copy()
            for _ in range(comm.size - 1):
                arriving = np.empty_like(part)
                comm.exchange(leaving, (comm.rank + 1) % comm.size, arriving, (comm.rank - 1) % comm.size)
                total += arriving
                leaving = arriving
            return total
            """,
        },
    ),
    Mutant(
        name="gathers_the_columns",
        says="Gathers the columns of y on every rank, and returns all of them.",
        fails={
            "column forward": "has all columns of y",
            "uneven sizes": "the same length and type on both sides?",
            "bytes": "ColumnLinear.forward on rank 0 sent 864 bytes; it should send nothing",
            "messages": "ColumnLinear.forward on rank 0 sent 3 messages",
            "training": "ValueError",
        },
        changes={
            "return x @ self.weight + self.bias": """
            own = x @ self.weight + self.bias
            blocks = [own] * self.comm.size
            for step in range(self.comm.size - 1):
                arriving = np.empty_like(own)
                leaving = np.ascontiguousarray(blocks[(self.comm.rank - step) % self.comm.size])
                self.comm.exchange(
                    leaving, (self.comm.rank + 1) % self.comm.size, arriving, (self.comm.rank - 1) % self.comm.size
                )
                blocks[(self.comm.rank - step - 1) % self.comm.size] = arriving
            return np.concatenate(blocks, axis=1)
            """,
        },
    ),
    Mutant(
        name="goes_back_with_the_first_batch",
        says="Keeps the first batch, and uses it in every backward pass.",
        fails={"training": "step 1, layer 2: ColumnLinear's weight_gradient"},
        changes={
            """
            self.x = x
            return x @ self.weight + self.bias
            """: """
            self.x = getattr(self, "x", x)
            return x @ self.weight + self.bias
            """,
        },
    ),
    Mutant(
        name="keeps_a_view",
        says="Keeps a view of its columns or rows, and with it the whole matrix in memory.",
        fails={"parts": "ColumnLinear's weight is a view of A"},
        changes={
            "weight[:, own].copy(), bias[own].copy()": "weight[:, own], bias[own]",
            "weight[own].copy(), bias.copy()": "weight[own], bias",
        },
    ),
    Mutant(
        name="keeps_the_bias_it_was_given",
        says="Does not copy the row layer's bias: training changes the caller's array.",
        fails={"parts": "RowLinear's bias is the array that it was given"},
        changes={"bias.copy(), comm": "bias, comm"},
    ),
    Mutant(
        name="keeps_the_whole_bias",
        says="Keeps all of b in the column layer, as in the row layer.",
        fails=dict.fromkeys(
            ("parts", "column forward", "column backward", "uneven sizes", "bytes", "messages", "training"),
            "is all of b: its columns are enough",
        ),
        changes={"weight[:, own].copy(), bias[own].copy(), comm": "weight[:, own].copy(), bias.copy(), comm"},
    ),
    Mutant(
        name="keeps_the_whole_matrix",
        says="Keeps the whole matrix beside its own columns.",
        fails={"parts": "ColumnLinear keeps all of A, as .whole"},
        changes={
            "own = slices(equal_shares(len(bias), comm.size))[comm.rank]": """
            self.whole = weight
            own = slices(equal_shares(len(bias), comm.size))[comm.rank]
            """,
        },
    ),
    Mutant(
        name="last_rank_has_the_first_columns",
        says="Numbers the parts of A from the last one.",
        fails=dict.fromkeys(
            ("parts", "column forward", "column backward", "uneven sizes", "bytes", "messages", "training"),
            "ColumnLinear's weight on rank 0 is the part of rank 3",
        ),
        changes={
            "own = slices(equal_shares(len(bias), comm.size))[comm.rank]": """
            own = slices(equal_shares(len(bias), comm.size))[comm.size - 1 - comm.rank]
            """,
        },
    ),
    Mutant(
        name="mean_over_the_batch",
        says="Divides the parameters' gradients by the batch, which the loss has done already.",
        fails={
            "column backward": "is a mean over the batch",
            "row backward": "is a mean over the batch",
            "uneven sizes": "is a mean over the batch",
            "training": "by the dense layer",
        },
        changes={
            """
            self.weight_gradient = self.x.T @ gradient
            self.bias_gradient = gradient.sum(axis=0)
            return all_reduce(gradient @ self.weight.T, self.comm)
            """: """
            self.weight_gradient = self.x.T @ gradient / len(gradient)
            self.bias_gradient = gradient.mean(axis=0)
            return all_reduce(gradient @ self.weight.T, self.comm)
            """,
            """
            self.weight_gradient = self.x.T @ gradient
            self.bias_gradient = gradient.sum(axis=0)
            return gradient @ self.weight.T
            """: """
            self.weight_gradient = self.x.T @ gradient / len(gradient)
            self.bias_gradient = gradient.mean(axis=0)
            return gradient @ self.weight.T
            """,
        },
    ),
    Mutant(
        name="sample_by_sample",
        says="Sums each sample in a separate message: the right bytes, in many more messages.",
        fails={"messages": "sent 36 messages; one all-reduce, of the whole batch together, sends 6"},
        changes={
            "total = part.flatten()": """
            if part.ndim > 1:
                return np.array([all_reduce(row, comm) for row in part])
            total = part.flatten()
            """,
        },
    ),
    Mutant(
        name="takes_the_mean",
        says="Divides by the number of ranks, as the all-reduce of lab 2 does.",
        fails={
            "row forward": "is a mean over the ranks",
            "column backward": "is a mean over the ranks",
            "uneven sizes": "is a mean over the ranks",
            "training": "by the dense layer",
        },
        changes={"return total.reshape(part.shape)": "return total.reshape(part.shape) / comm.size"},
    ),
    Mutant(
        name="turns_its_gradient",
        says="Sets the gradient of the transposed matrix.",
        fails={
            "column backward": "ColumnLinear's weight_gradient on rank 0 has the shape (6, 12) where (12, 6) is right",
            "uneven sizes": "has the shape",
            "training": "has the shape",
        },
        changes={
            """
            self.weight_gradient = self.x.T @ gradient
            self.bias_gradient = gradient.sum(axis=0)
            return all_reduce(gradient @ self.weight.T, self.comm)
            """: """
            self.weight_gradient = gradient.T @ self.x
            self.bias_gradient = gradient.sum(axis=0)
            return all_reduce(gradient @ self.weight.T, self.comm)
            """,
        },
    ),
    Mutant(
        name="turns_the_matrix_once",
        says="Transposes its matrix once, when the layer is made, and uses that in every backward pass.",
        fails={"training": "does each pass use weight and bias as they are now"},
        changes={
            "self.weight, self.bias, self.comm = weight[:, own].copy(), bias[own].copy(), comm": """
            self.weight, self.bias, self.comm = weight[:, own].copy(), bias[own].copy(), comm
            self.turned = self.weight.T.copy()
            """,
            "return all_reduce(gradient @ self.weight.T, self.comm)": """
            return all_reduce(gradient @ self.turned, self.comm)
            """,
            "self.weight, self.bias, self.comm = weight[own].copy(), bias.copy(), comm": """
            self.weight, self.bias, self.comm = weight[own].copy(), bias.copy(), comm
            self.turned = self.weight.T.copy()
            """,
            "return gradient @ self.weight.T": "return gradient @ self.turned",
        },
    ),
]

SENTENCES: Sentences = {
    "ColumnLinear": {
        "each rank holds the whole x and computes some columns of y": ["cuts_the_other_way", "gathers_the_columns"],
        "Every rank makes the layer": "says what the caller keeps to",
        "weight: the whole A": "describes an argument",
        "The layer copies its part": ["keeps_a_view"],
        "and does not keep A": ["keeps_the_whole_matrix"],
        "bias: the whole b": "describes an argument",
        "comm: as in": "describes an argument",
        "part number comm.rank": ["last_rank_has_the_first_columns"],
        "that `np.array_split` makes": ["drops_the_remainder"],
        "The training loop updates it": ["turns_the_matrix_once"],
        "bias: the same columns of b": ["keeps_the_whole_bias"],
        "of the last backward pass": ["adds_to_the_last_gradient"],
        "shaped like `weight` and `bias`": ["turns_its_gradient"],
    },
    "ColumnLinear.forward": {
        "Return this rank's columns of y": ["adds_up_the_columns", "gathers_the_columns"],
    },
    "ColumnLinear.backward": {
        "Set the parameters' gradients": ["mean_over_the_batch", "adds_up_the_gradients_of_the_weight"],
        "return that of the whole x": ["forgets_the_sum_on_the_way_back"],
        "in the last forward pass": ["goes_back_with_the_first_batch"],
    },
    "RowLinear": {
        "each rank holds some columns of x and the same rows of A": ["cuts_the_other_way"],
        "and all get the whole y": ["forgets_the_sum"],
        "Every rank makes the layer": "says what the caller keeps to",
        "as in `ColumnLinear`": "describes the arguments",
        "weight: this rank's rows of A": ["cuts_the_other_way", "drops_the_remainder"],
        "bias: the whole b": ["cuts_the_bias_of_rows", "keeps_the_bias_it_was_given"],
        "of the last backward pass": ["adds_to_the_last_gradient"],
    },
    "RowLinear.forward": {
        "Return the whole y": ["adds_the_bias_on_every_rank", "takes_the_mean", "forgets_the_sum"],
    },
    "RowLinear.backward": {
        "Set the parameters' gradients": ["adds_up_the_gradient_of_the_bias"],
        "return that of this rank's columns of x": ["adds_up_on_both_ways"],
        "in the last forward pass": ["goes_back_with_the_first_batch"],
    },
}
