"""The parameter server: servers store and update the parameters, workers pull them and push gradients.

Start with ``minimal``: a whole stale synchronous training in one file, with blocking messages. The other files have the
same parts, each as a separate object, divided as in ps-lite (Li et al., OSDI 2014).

1. The decisions, without messages: ``keys`` (which server has which parameters), and in ``core`` the policies (when a
   gradient counts and which worker may start), the update rules and corrections (what a gradient does), and the ledger
   (the bookkeeping of pulls and pushes).
2. The path of a push: ``kv_worker``, ``rpc_channel`` (its second thread), ``message_queue``, ``kv_server``, ``shard``,
   and from there ``core``. ``header``, ``request`` and ``layout`` define the messages.
3. The other roles: ``manager``, ``cleaning``, ``tree`` (aggregators), ``serving`` (readers), ``tasks`` (a coordinator).
   ``placement`` assigns roles to ranks, ``deployment`` makes them, ``service`` is the event loop of those that serve,
   and ``cluster`` runs all of them.
4. Failures: ``chain_replication``, ``replicated_server`` (a wrapper around a server), ``sessions``, ``survivors`` and
   ``failure_log``. Planned changes of the servers: ``server_change``, ``server_manager`` and ``resharding``.
5. Training: ``training``, ``contributions``, ``classification`` (a worker's iterations on real data), ``reports``,
   ``double_aggregation`` (document 000's two rounds) and ``early_stopping`` (a thread that ends the training).
6. Methods that use it: ``downpour``, ``replicas`` and ``labels`` (replicas that exchange with the servers every few
   steps), ``task_replica`` (mini-batches assigned during the training), ``sparse`` (only the rows that a batch
   touches), ``frequency``, ``hybrid`` and ``cold_rows`` (rows that are stored at workers) and ``online`` (learning from
   a stream).
"""
