"""Known wrong answers of lab 17, as changes of `reference.py`."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

MUTANTS = [
    Mutant(
        name="adds_in_place",
        says="Adds what arrives to the caller's vector.",
        fails={"reduce-scatter": "changes the vector that it was given"},
        changes={"np.split(vector.copy(), comm.size)": "np.split(vector, comm.size)"},
    ),
    Mutant(
        name="averages_over_its_own_samples",
        says="Divides the error by the samples of this rank, so that the sum of all gradients is P times the mean.",
        fails={"step": "P times as far"},
        changes={"len(inputs) * comm.size": "len(inputs)"},
    ),
    Mutant(
        name="averages_the_gradients",
        says="Divides the sum of the gradients by the number of ranks.",
        fails={"optimizer": "are averaged", "step": "a P-th of the way", "reduce-scatter": "is right"},
        changes={"return parts[comm.rank].copy()": "return parts[comm.rank] / comm.size"},
    ),
    Mutant(
        name="begins_with_its_own_part",
        says="Begins the ring with its own part, so that the sum of this part ends on the left neighbour.",
        fails={
            "reduce-scatter": "nothing has been added to it. If you add, is the sum of this part on another rank?",
            "optimizer": "every rank steps along its own gradient",
            "step": "is right",
        },
        changes={
            """
                comm.exchange(parts[(comm.rank - step) % comm.size], right, arriving, left)
                parts[(comm.rank - step - 1) % comm.size] += arriving
            """: """
                comm.exchange(parts[(comm.rank - step + 1) % comm.size], right, arriving, left)
                parts[(comm.rank - step) % comm.size] += arriving
            """,
        },
    ),
    Mutant(
        name="divides_its_own_gradient",
        says="Takes its part of its own gradient in the optimizer, and adds up nothing.",
        fails={"optimizer": "the step is along the sum of all ranks' gradients"},
        changes={
            "own = reduce_scatter(gradient, self.comm)": "own = np.split(gradient, self.comm.size)[self.comm.rank]",
        },
    ),
    Mutant(
        name="passes_on_in_its_own_part",
        says="Receives into the part that it was given, which then belongs to another rank.",
        fails={
            "all-gather": "all_gather changes the part that it was given",
            "optimizer": "after step 1, the vector of all parameters on rank 0",
            "step": "is each layer's gradient added up over the ranks?",
        },
        changes={
            "comm.exchange(parts[(comm.rank - step) % comm.size], right, parts[": """
            arriving = np.empty_like(part)
            comm.exchange(part, right, arriving, left)
            part[:] = arriving
            parts[
            """,
            "(comm.rank - step - 1) % comm.size], left)": "(comm.rank - step - 1) % comm.size] = arriving",
        },
    ),
    Mutant(
        name="reads_by_columns",
        says="Reads the weights of a layer column by column.",
        fails={"step": "Is it flattened row by row, as its weights are?"},
        changes={
            ".reshape(shape), outputs[-1]": '.reshape(shape, order="F"), outputs[-1]',
            ".reshape(shapes[number])": '.reshape(shapes[number], order="F")',
        },
    ),
    Mutant(
        name="reduces_and_gathers",
        says="Forms the sum by an all-reduce, and takes its part.",
        fails={"bytes": "an all-reduce sends twice as much"},
        changes={
            "return parts[comm.rank].copy()": """
            own = parts[comm.rank].copy()
            del parts
            whole = all_gather(own, comm)
            return np.split(whole, comm.size)[comm.rank].copy()
            """,
        },
    ),
    Mutant(
        name="returns_its_part",
        says="Returns this rank's part of the parameters, and gathers nothing.",
        fails={"optimizer": "has the shape (5,) where (20,) is right"},
        changes={"return all_gather(self.part, self.comm)": "return self.part.copy()"},
    ),
    Mutant(
        name="returns_the_whole_sum",
        says="Returns the whole sum, as an all-reduce does.",
        fails={
            "reduce-scatter": "is the whole sum: return this rank's part of it",
            **dict.fromkeys(("optimizer", "state", "step", "memory"), "ValueError: operands could not be broadcast"),
            "bytes": "an all-reduce sends twice as much",
        },
        changes={"return parts[comm.rank].copy()": "return all_gather(parts[comm.rank], comm)"},
    ),
    Mutant(
        name="trains_by_its_own_samples",
        says="Moves its part of a layer along its own gradient, and adds up nothing.",
        fails={"step": "is each layer's gradient added up over the ranks?", "bytes": "reduced once"},
        changes={
            "parts[number] -= lr * reduce_scatter(gradient.reshape(-1), comm)": """
            parts[number] -= lr * np.split(gradient.reshape(-1), comm.size)[comm.rank]
            """,
        },
    ),
    Mutant(
        name="forgets_the_velocity",
        says="Steps along the gradient of this step alone.",
        fails={"optimizer": "has v been kept"},
        changes={"self.velocity = self.momentum * self.velocity + own": "self.velocity = own"},
    ),
    Mutant(
        name="keeps_all_layers",
        says="Gathers each layer once, and keeps it whole until its backward pass.",
        fails={"bytes": "gathered twice and reduced once", "memory": "gather it again"},
        changes={
            """
            outputs = [inputs]
            for part, shape in zip(parts, shapes, strict=True):
                outputs.append(layer_forward(all_gather(part, comm).reshape(shape), outputs[-1]))
            """: """
            outputs, kept = [inputs], []
            for part, shape in zip(parts, shapes, strict=True):
                kept.append(all_gather(part, comm).reshape(shape))
                outputs.append(layer_forward(kept[-1], outputs[-1]))
            """,
            "weights = all_gather(parts[number], comm).reshape(shapes[number])": "weights = kept[number]",
        },
    ),
    Mutant(
        name="keeps_a_view",
        says="Keeps a part of the parameters that is a view, and with it all parameters.",
        fails={"state": "a view keeps all of it"},
        changes={
            "self.part = np.split(parameters, comm.size)[comm.rank].copy()": """
            self.part = np.split(parameters, comm.size)[comm.rank]
            """,
            "self.part = self.part - self.lr * self.velocity": "self.part -= self.lr * self.velocity",
        },
    ),
    Mutant(
        name="keeps_every_velocity",
        says="Keeps the velocity of all parameters, of which it uses a part.",
        fails={"state": "the largest is .velocity"},
        changes={
            "self.velocity = np.zeros_like(self.part)": "self.velocity = np.zeros_like(parameters)",
            """
                self.velocity = self.momentum * self.velocity + own
                self.part = self.part - self.lr * self.velocity
            """: """
                mine = np.split(self.velocity, self.comm.size)[self.comm.rank]
                mine[:] = self.momentum * mine + own
                self.part = self.part - self.lr * mine
            """,
        },
    ),
    Mutant(
        name="keeps_what_it_gathers",
        says="Keeps all parameters after the last gather.",
        fails={"state": "the largest is .whole with 160"},
        changes={
            "return all_gather(self.part, self.comm)": """
            self.whole = all_gather(self.part, self.comm)
            return self.whole
            """,
        },
    ),
    Mutant(
        name="leaves_the_parts_alone",
        says="Binds the name to a new array instead of changing the one in the list.",
        fails={
            "step": "in place",
        },
        changes={"parts[number] -= lr * reduce_scatter": "moved = parts[number] - lr * reduce_scatter"},
    ),
    Mutant(
        name="moves_along_its_own_gradient",
        says="Uses its part of this rank's gradient, without the other ranks'.",
        fails={
            "reduce-scatter": "nothing has been added",
            "optimizer": "every rank steps along its own gradient",
            "step": "is right",
        },
        changes={"parts[(comm.rank - step - 1) % comm.size] += arriving": "pass"},
    ),
    Mutant(
        name="passes_the_error_back_by_new_weights",
        says="Updates the weights first, and passes the error back with the new ones.",
        fails={"step": "by the weights after their update", "bytes": "gathered twice", "memory": "the limit is 4.9"},
        changes={
            """
                gradient, error = layer_backward(weights, outputs[number], outputs[number + 1], error)
                parts[number] -= lr * reduce_scatter(gradient.reshape(-1), comm)
            """: """
                gradient, _ = layer_backward(weights, outputs[number], outputs[number + 1], error)
                parts[number] -= lr * reduce_scatter(gradient.reshape(-1), comm)
                moved = all_gather(parts[number], comm).reshape(shapes[number])
                _, error = layer_backward(moved, outputs[number], outputs[number + 1], error)
            """,
        },
    ),
    Mutant(
        name="rotated",
        says="Begins the ring with its own part, and ends with its right neighbour's.",
        fails={"reduce-scatter": "is the sum of part", "optimizer": "is right", "step": "is right"},
        changes={
            """
                comm.exchange(parts[(comm.rank - step) % comm.size], right, arriving, left)
                parts[(comm.rank - step - 1) % comm.size] += arriving
            return parts[comm.rank].copy()
            """: """
                comm.exchange(parts[(comm.rank - step + 1) % comm.size], right, arriving, left)
                parts[(comm.rank - step) % comm.size] += arriving
            return parts[(comm.rank + 1) % comm.size].copy()
            """,
        },
    ),
    Mutant(
        name="starts_one_further",
        says="Puts each part one place further on.",
        fails={
            "all-gather": "rank r's part is the r-th",
            "optimizer": "is right",
            "step": "is right",
        },
        changes={
            "    parts[comm.rank] = part": "    parts[(comm.rank + 1) % comm.size] = part",
            "- step) % comm.size], right, parts[(comm.rank - step - 1) %": (
                "- step + 1) % comm.size], right, parts[(comm.rank - step) %"
            ),
        },
    ),
    Mutant(
        name="weighs_the_new_gradient",
        says="Uses a moving mean of the gradients as the velocity, so the new one counts less.",
        fails={"optimizer": "after step 0, the vector of all parameters on rank 0"},
        changes={
            "self.velocity = self.momentum * self.velocity + own": """
            self.velocity = self.momentum * self.velocity + (1 - self.momentum) * own
            """,
        },
    ),
]

SENTENCES: Sentences = {
    "reduce_scatter": {
        "Return this rank's part": ["returns_the_whole_sum", "begins_with_its_own_part"],
        "of the sum of all ranks' vectors": ["moves_along_its_own_gradient"],
        "Every rank calls it at the same time": "says what the caller keeps to",
        "it is not changed": ["adds_in_place"],
        "rank r's part is the r-th of P equal parts": ["rotated"],
        "comm: this rank's communicator": "describes an argument",
        "comm.exchange(send, to, receive, source)": "describes an argument",
        "The arrays are contiguous": "says what the caller of comm keeps to",
        "(n / P,).": ["returns_the_whole_sum"],
    },
    "all_gather": {
        "Return the whole vector": ["starts_one_further"],
        "part: this rank's part": "describes an argument",
        "It is not changed": ["passes_on_in_its_own_part"],
    },
    "ShardedMomentum": {
        "each rank updates a part of the parameters": ["keeps_what_it_gathers"],
        "and no other array": ["keeps_a_view", "keeps_every_velocity"],
        "v ← momentum · v + g": ["forgets_the_velocity", "weighs_the_new_gradient"],
        "g: the sum of all ranks' gradients": ["averages_the_gradients"],
        "parameters: all parameters": "describes an argument",
    },
    "ShardedMomentum.step": {
        "with the sum of all ranks' gradients": ["divides_its_own_gradient"],
        "return all parameters": ["returns_its_part"],
    },
    "train_step": {
        "on all ranks' samples": ["trains_by_its_own_samples", "averages_over_its_own_samples"],
        "each rank keeps only a part of every layer": ["keeps_all_layers"],
        "it gathers the layer before its forward pass, and again": ["passes_the_error_back_by_new_weights"],
        "flattened row by row": ["reads_by_columns"],
        "They are updated in place": ["leaves_the_parts_alone"],
        "shapes: the shape of each layer's weights": "describes an argument",
        "inputs, targets: this rank's samples": "describes the arguments",
    },
}
