"""Document 000's parameter server round as written, which aggregates twice (erratum 000.17).

    nodes     pull w, push g_i = ∇f_i(w)                    server   G = Σ share·g_i
    nodes     pull G, push x_i = w − ηG                     server   w ← Σ share·x_i − ηG

The centre aggregates the nodes' gradients and has each node descend along the result. It receives their new parameters,
aggregates these, and "starts the descent once more". All x_i are equal, so their mean is x_i again, and the same
gradient is applied twice. The result is that of SGD with the rate 2η: a training that converges at η may diverge here.
If "once more" means the next iteration only (`Twice(…, again=False)`), the result is that of document 004's one round:
pull, push, update, as `training` builds it. Either way each iteration has a second round.

The server's part is `core.update_rules.Twice`, whose table holds w and G alternately; the nodes' part is here.

Cost: 2 pulls and 2 pushes of n bytes per worker and iteration, and 2 waits for the slowest worker, instead of 1.
"""

from __future__ import annotations

import numpy as np

from farandole.parameter_server.classification import Trainee
from farandole.parameter_server.kv_worker import KVWorker
from farandole.parameter_server.training import pull


class TwiceTrainee(Trainee):
    """A node: it applies the aggregated gradient itself, and sends its new parameters."""

    def work(self, kv: KVWorker) -> None:
        """Iterations of two rounds, until there is no work left."""
        batches, reader = self._material()
        aggregated = np.empty_like(self.flat.values_np)
        while start := pull(self.world, kv, self.flat.values_np):
            self.world.begin_step(start.clock // 2)
            rows, share = next(batches)
            with self.world.compute("forward and backward"):
                self.flat.values_from_host()
                batch_loss = self._gradient(reader[rows])
                self.flat.to_host()
            kv.push(self.flat.gradients_np, start.clock, share)
            if not (second := pull(self.world, kv, aggregated)):
                break
            with self.world.compute("descend"):
                updated = self.flat.values_np - self.options.lr * aggregated
            kv.push(updated, second.clock, share)
            kv.report(start.clock // 2, batch_loss, len(rows))
