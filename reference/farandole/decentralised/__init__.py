"""Decentralised training, without a coordinator or a collective: every rank averages with its neighbours in a graph.

Reading order: ``topologies`` (which ranks are neighbours), ``graph_file`` (your own graph), ``steps`` (what one rank
sends, keeps and adds, and the matrix of all ranks' steps), ``mixing`` (the weights; the spectral gap; the consensus
error), ``exchange`` (the same steps over MPI). Then the methods: ``dpsgd`` (neighbours' parameters, in common steps),
``choco`` (the same with compressed differences), ``push_sum`` (edges that lead one way). AD-PSGD, in pairs and without
common steps: the rule is pure (``pairing``, ``iterations``), and ``ad_psgd``, ``responder_thread``,
``iteration_server`` and ``asynchronous`` carry it out. Last, ``central_directions``, which document 001 calls
decentralised although it has a coordinator.
"""
