"""In one process, the training that `recovery.minimal` does on several: the parameters' digest at each change.

minimal_oracle.py STEPS '[[0, 4], [30, 3]]'     from step 0 on with four ranks, from step 30 on with three
"""

import hashlib
import json
import sys

import numpy as np
import torch

from farandole.recovery.minimal import BATCH, LEARNING_RATE, batch, data, gradient


def digest(parameters):
    return hashlib.sha256(parameters.tobytes()).hexdigest()[:16]


def autograd(parameters, inputs, targets):
    weights = torch.from_numpy(parameters.copy()).requires_grad_()
    scores = torch.from_numpy(inputs) @ weights
    (torch.nn.functional.cross_entropy(scores, torch.from_numpy(targets), reduction="sum") / BATCH).backward()
    return weights.grad.numpy()


inputs, targets = data()
steps, changes = int(sys.argv[1]), dict(json.loads(sys.argv[2]))
parameters, digests, ranks = np.zeros((65, 10)), [], 0
for step in range(steps):
    if step in changes:
        ranks = changes[step]
        digests.append(digest(parameters))
    samples = batch(step, len(inputs))
    assert len(samples) == len(set(samples.tolist())) == BATCH
    size, larger = divmod(BATCH, ranks)
    mean, begin = np.zeros((ranks, 65, 10)), 0
    for rank in range(ranks):
        share = samples[begin : begin + size + (rank < larger)]
        begin += len(share)
        mean[rank] = gradient(parameters, inputs[share], targets[share])
    assert begin == BATCH, "every sample of the batch in one share"
    whole = autograd(parameters, inputs[samples], targets[samples])
    np.testing.assert_allclose(mean.sum(axis=0), whole, atol=1e-12)
    parameters = parameters - LEARNING_RATE * mean.sum(axis=0)
digests.append(digest(parameters))
correct = ((inputs @ parameters).argmax(axis=1) == targets.argmax(axis=1)).mean()
print(json.dumps({"digests": digests, "accuracy": float(correct)}))
