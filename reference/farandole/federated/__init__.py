"""Federated learning (联邦学习): the data stay where they are, with many clients, of which a few take part at a time.

Document 002's outlook. Reading order: ``clients`` (whose data are whose, and who takes part), ``averaging`` (FedAvg),
``key_agreement`` and ``secret_sharing`` (two tools of cryptography), ``secure_sum`` (a sum whose parts nobody
sees), ``aggregation`` (how the contributions come to the server, plain or secure), ``training`` (the rounds).
"""
