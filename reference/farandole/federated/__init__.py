"""Federated learning (联邦学习): the data stay with many clients, of which a few take part in each round.

Document 002's outlook. Reading order: ``clients`` (each client's data, and the participants of a round), ``averaging``
(FedAvg), ``key_agreement`` and ``secret_sharing`` (two tools of cryptography), ``secure_sum`` (a sum that hides its
terms), ``aggregation`` (the contributions on their way to the server, plain or secure), ``training`` (the rounds).
"""
