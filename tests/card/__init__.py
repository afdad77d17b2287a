"""A card for tests: a device of torch whose memory the host cannot read, where there is no GPU.

`streams.h` is the card itself, its memory, streams and events. `device.h` and `card.cpp` make it a device of torch that
runs the kernels of the CPU, so results can be compared bit by bit. `card_for_tests` is the module `torch.card`, and
`build` compiles it all, once.

It detects errors that a real card would turn into wrong numbers: memory of the card that numpy or MPI is given, tensors
on two devices, a copy that no code waits for, a buffer that is overwritten before it has been copied, a copy beside
kernels that does not wait for them, memory that a library reads on the card before it is complete. It cannot show real
kernels and their rounding, CUDA contexts, cuDNN, speed, Horovod, DDP or NCCL.
"""
