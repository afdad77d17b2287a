"""Expert parallel (专家并行): the experts of a mixture are divided over the ranks, and all else is replicated.

A *mixture of experts* (混合专家) replaces a transformer's feed-forward network by several of them, the *experts*. A
*router* sends each token to few of these, so parameters grow with the number of experts, and the computation does not.

Reading order: ``minimal`` (one layer from top to bottom in one file), ``routing`` (which experts a token chooses, and
the loss that balances them), ``plan`` (what each expert accepts and each rank sends, from counts alone), ``mixture``
(the layer), ``auxiliary_loss`` (its balancing loss, in a pipeline), ``exchange`` (its messages, forward and backward),
``model`` (the language model with mixtures, in parts and whole), ``traffic`` (bytes and memory by formula),
``training``.

A *token* is one position of one sample; a *choice* is one of the k experts that a token is to have.
"""
