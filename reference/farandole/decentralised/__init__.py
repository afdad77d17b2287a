"""Decentralised: no centre, and no collective either. Every rank averages with its neighbours in a graph.

Reading order: ``topologies`` (who talks to whom), ``graph_file`` (a graph of one's own), ``steps`` (what one rank
sends, keeps and adds, and what that comes to), ``mixing`` (with which weights; the spectral gap; the consensus error),
``exchange`` (the same steps over MPI), ``simulation`` (for more ranks than there are cores); then the methods:
``dpsgd`` (neighbours' parameters, in step), ``choco`` (the same with compressed differences), ``push_sum`` (edges that
lead one way), ``pairing``, ``attendant``, ``bookkeeping``, ``asynchronous`` and ``ad_psgd`` (pairs, whenever one is
ready); and last what document 001 calls decentralised, though it has a centre: ``central_directions``.
"""
