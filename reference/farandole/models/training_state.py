"""The state that training keeps for each parameter: numbers of the optimizer, and bytes by number format.

    float32    4 + 4 + 4k        parameter, gradient, and k numbers of the optimizer: 16 bytes with Adam
    mixed      2 + 2 + 4 + 4k    half precision, with a float32 copy that the optimizer updates: 16 bytes with Adam

The ZeRO paper writes the latter as 2 + 2 + K, K = 12 for Adam. Megatron-LM adds gradients up in float32: 2 + 4 + 12.

Sources: Micikevicius et al., "Mixed precision training", 2018; Rajbhandari et al., "ZeRO: memory optimizations toward
training trillion parameter models", 2020, section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass

STATE_PER_PARAMETER = {"sgd": 0, "momentum": 1, "adam": 2}  # numbers that the optimizer keeps


@dataclass(frozen=True)
class BytesPerParameter:
    """Bytes for each parameter, by kind, where nothing is divided."""

    parameters: int
    gradients: int
    optimizer_state: int

    @classmethod
    def of(cls, optimizer: str, *, mixed: bool, float32_gradients: bool = False) -> BytesPerParameter:
        """Return the bytes with this optimizer.

        Args:
            mixed: parameters, gradients and activations have 2 bytes, and the optimizer a float32 copy.
            float32_gradients: gradients are added up in 4 bytes, in mixed precision too.
        """
        state = 4 * STATE_PER_PARAMETER[optimizer]
        if not mixed:
            return cls(4, 4, state)
        return cls(2, 4 if float32_gradients else 2, 4 + state)
