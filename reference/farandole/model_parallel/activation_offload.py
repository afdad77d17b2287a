"""Activation offload: what autograd keeps leaves the device in the forward pass, and is back a layer ahead of its use.

    forward     computes    layer 0     layer 1     layer 2     loss
                copies                  0 out       1 out       2 out
    backward    computes    layer 2     layer 1     layer 0
                copies      1 in        0 in

A thread copies while the next layer computes, so a device holds two layers' activations at a time: the one that
computes, and the one that leaves or arrives. A stage's inputs stay where they are, and so do parameters. They go to the
host's memory (pinned, if the device is a GPU) or to unnamed files in the folder for temporary files. On a CPU the
host's memory is that of the device: there `host` only counts the copies, and `disk` saves memory.

Cost: what a micro-batch leaves in its layers (`footprint`) goes out and comes in once. Sources: Rhu et al., "vDNN:
virtualized deep neural networks for scalable, memory-efficient neural network design", 2016; Rajbhandari et al.,
"ZeRO-Infinity: breaking the GPU memory wall for extreme scale deep learning", 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from farandole.model_parallel.memory import ActivationMeter, Held
from farandole.model_parallel.offload_places import PLACES, Place
from farandole.models.recomputation_options import Offload


class ActivationOffload:
    """Moves what autograd keeps of some layers.

    Args:
        place: a name in `PLACES`.
        layers: in the order in which they are called.
        meter: counts what is on the device.

    Attributes:
        bytes_out, bytes_in: copied so far.
    """

    def __init__(self, place: Offload, layers: Iterable[nn.Module], meter: ActivationMeter) -> None:
        self.place, self.meter = PLACES[place], meter
        self.bytes_out = self.bytes_in = 0
        self._thread = ThreadPoolExecutor(1, "activations")
        self._stream: torch.Stream | None = None
        self._layer: _Layer | None = None  # that is being computed; None outside a forward pass
        self._handles = [layer.register_forward_pre_hook(lambda *_: self._next_layer()) for layer in layers]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The body is a forward pass, of which the activations leave the device."""
        self._layer = _Layer(self.place(), None)
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._keep, self._kept):
                yield
            for layer in (self._layer.before, self._layer):
                if layer:
                    self._leave(layer)
                    layer.let_go()
        finally:
            self._layer = None

    def account(self) -> dict[str, int | None]:
        """Return the bytes that were copied, by direction, for the record's `memory`."""
        return {"out": self.bytes_out, "in": self.bytes_in}

    def close(self) -> None:
        """End the thread, and remove the hooks from the layers."""
        for handle in self._handles:
            handle.remove()
        self._thread.shutdown()

    def _next_layer(self) -> None:
        if self._layer and self._layer.stored:
            if self._layer.before:
                self._layer.before.let_go()
            self._leave(self._layer)
            self._layer = _Layer(self.place(), self._layer)

    def _leave(self, layer: _Layer) -> None:
        """Begin to copy what a layer has left."""
        if layer.leaving is None:
            self.bytes_out += sum(each.nbytes for each in layer.stored)
            layer.leaving = self._begin(layer.place.put, [each.on_device() for each in layer.stored])

    def _fetch(self, layer: _Layer) -> None:
        """Begin to copy back what a layer has left."""
        if layer.arriving is None:
            assert layer.leaving is not None
            layer.leaving.result()
            found = [each.expect(self.meter) for each in layer.stored]
            self.bytes_in += sum(each.nbytes for each in layer.stored)
            layer.stored.clear()  # a view holds what it needs
            layer.arriving = self._begin(layer.place.get, found)

    def _begin(self, copy: Callable[[Sequence[Tensor]], None], values: Sequence[Tensor]) -> Future[None]:
        """Copy in the thread; on a GPU beside what it computes, but after what it has been given so far."""
        if not values or values[0].device.type == "cpu":
            return self._thread.submit(copy, values)
        device = values[0].device
        given = torch.accelerator.current_stream(device).record_event()

        def beside() -> None:
            self._stream = self._stream or torch.Stream(device)
            self._stream.wait_event(given)
            with self._stream:
                copy(values)
            self._stream.synchronize()

        return self._thread.submit(beside)

    def _keep(self, tensor: Tensor) -> object:
        assert self._layer
        address = tensor.untyped_storage().data_ptr()
        stored = self._layer.at(address)
        if stored is None:
            stays = self.meter.is_kept_anyway(tensor)
            instead = self.meter.keep(tensor)
            if stays or not isinstance(instead, Held):
                return instead
            stored = self._layer.add(instead)
        return _View(stored, tensor)

    def _kept(self, instead: Any) -> Tensor:
        if not isinstance(instead, _View):
            return self.meter.kept(instead)
        layer = instead.stored.layer
        self._fetch(layer)
        if layer.before:
            self._fetch(layer.before)
        assert layer.arriving
        layer.arriving.result()
        return instead.tensor()


class _Layer:
    """The tensors that autograd keeps of one layer in one forward pass."""

    def __init__(self, place: Place, before: _Layer | None) -> None:
        self.place, self.before = place, before
        self.stored: list[_Stored] = []
        self.leaving: Future[None] | None = None
        self.arriving: Future[None] | None = None
        self._by_address: dict[int, _Stored] = {}

    def at(self, address: int) -> _Stored | None:
        """Return what lies at this address, of this layer or the one before, if it is still on the device."""
        return self._by_address.get(address) or (self.before._by_address.get(address) if self.before else None)

    def add(self, held: Held) -> _Stored:
        stored = _Stored(self, held)
        self._by_address[held.tensor.untyped_storage().data_ptr()] = stored
        self.stored.append(stored)
        return stored

    def let_go(self) -> None:
        """Free its memory on the device, once it has been copied."""
        assert self.leaving
        self.leaving.result()
        self._by_address.clear()
        for each in self.stored:
            each.let_go()


class _Stored:
    """The memory of one or more tensors, on the device or not."""

    def __init__(self, layer: _Layer, held: Held) -> None:
        self.layer, self.device = layer, held.tensor.device
        self.nbytes = held.tensor.untyped_storage().nbytes()
        self.held: Held | None = held
        self._version = held.tensor._version

    def on_device(self) -> Tensor:
        """Return it as bytes."""
        assert self.held
        whole = self.held.tensor.untyped_storage()
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(whole, 0, (self.nbytes,), (1,))

    def let_go(self) -> None:
        """Free its memory on the device.

        Raises:
            RuntimeError: it has been overwritten since it was kept, so that the gradient would be wrong.
        """
        if self.held and self.held.tensor._version != self._version:
            raise RuntimeError("a layer overwrites what its backward pass needs: train without --offload-activations")
        self.held = None

    def expect(self, meter: ActivationMeter) -> Tensor:
        """Return memory on the device to copy it back into."""
        self.held = meter.hold(torch.empty(self.nbytes, dtype=torch.uint8, device=self.device))
        return self.held.tensor


class _View:
    """A tensor in memory that has been offloaded. Autograd keeps it instead of the tensor, until it has used it."""

    def __init__(self, stored: _Stored, tensor: Tensor) -> None:
        self.stored, self.dtype = stored, tensor.dtype
        self.shape: Sequence[int] = tensor.shape
        self.stride, self.offset = tensor.stride(), int(tensor.storage_offset())

    def tensor(self) -> Tensor:
        assert self.stored.held
        whole = self.stored.held.tensor.untyped_storage()
        return torch.empty(0, dtype=self.dtype, device=self.stored.device).set_(
            whole, self.offset, tuple(self.shape), self.stride
        )
