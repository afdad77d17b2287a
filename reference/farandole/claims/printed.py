"""Tables as papers print them, typed here once: what the claims and the calculators' tests compare with."""

from __future__ import annotations

# Rajbhandari et al. 2020, table 1: ranks; then, for 7.5, 128 and 1,000 billion parameters, stages 1, 2 and 3.
ZERO = """
1     120   120   120   2048  2048  2048  16000  16000  16000
4     52.5  41.3  30    896   704   512   7000   5500   4000
16    35.6  21.6  7.5   608   368   128   4750   2875   1000
64    31.4  16.6  1.88  536   284   32    4187   2218   250
256   30.4  15.4  0.47  518   263   8     4046   2054   62.5
1024  30.1  15.1  0.12  513   257   2     4011   2013   15.6
"""
# Korthikanti et al. 2022, table 5: MFU and HFU in percent. Of 22B the printed time, 1.10 s, has too few digits.
UTILISATION = {"gpt3-175b": (51.4, 52.8), "mt-nlg-530b": (56.0, 57.0), "gpt-1t": (56.3, 57.0)}


def zero() -> list[tuple[str, ...]]:
    """Return the rows of ZeRO's table 1."""
    return [tuple(line.split()) for line in ZERO.strip().splitlines()]
