"""Known wrong answers of lab 5, as changes of reference.py."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

MUTANTS = [
    Mutant(
        name="another_patience",
        says="Tries a larger scale after a thousand good steps by default.",
        fails={"scale": "after 1000 good steps the value is 131072"},
        changes={
            "class MixedPrecision:": """
            class LossScale(LossScale):
                def __init__(self, value=2.0**16, patience=1000):
                    super().__init__(value, patience)


            class MixedPrecision:
            """,
        },
    ),
    Mutant(
        name="asks_all_ranks",
        says="Asks in a separate message whether any rank had an overflow.",
        fails={"one message": "step 0: all_reduce is called 2 times: once is enough"},
        changes={
            "self.comm.all_reduce(gradient)": """
            overflows = np.array([not np.isfinite(gradient).all()], dtype=np.float32)
            self.comm.all_reduce(overflows)
            if overflows[0]:
                gradient[:] = np.inf
            self.comm.all_reduce(gradient)
            """,
        },
    ),
    Mutant(
        name="casts_only_once",
        says="Casts the parameters in the first step only, and computes with these copies from then on.",
        fails={
            "steps": "step 1: master moves by the gradient of the first step's parameters",
            "shares": "the gradient of the first step's parameters: cast master in every step",
            "small gradients": "after 4 steps master has moved by",
        },
        changes={
            "half = self.master.astype(np.float16)": """
            if not hasattr(self, "half"):
                self.half = self.master.astype(np.float16)
            """,
            "self.network.backward(half,": "self.network.backward(self.half,",
        },
    ),
    Mutant(
        name="counts_across_an_overflow",
        says="Does not restart the count of good steps after an overflow.",
        fails={"scale": "after 2 good steps, 1 overflow, 1 good step the value is 1024, and should be 512"},
        changes={
            "class MixedPrecision:": """
            class LossScale(LossScale):
                def __init__(self, value=2.0**16, patience=2000):
                    self.value, self.patience, self.good = value, patience, 0

                def observe(self, finite):
                    if not finite:
                        self.value = max(1.0, self.value / 2)
                        return
                    self.good += 1
                    if self.good == self.patience:
                        self.value, self.good = self.value * 2, 0


            class MixedPrecision:
            """,
        },
    ),
    Mutant(
        name="divides_by_the_next_scale",
        says="Reports the step to the scale before it divides by the scale.",
        fails={"any scale": "step 0: 43 parameters differ between a scale of 64 and one of 256"},
        changes={
            "gradient *= share / scale": "gradient *= share",
            "self.update(gradient)": "self.update(gradient / self.scale.value)",
        },
    ),
    Mutant(
        name="divides_in_16_bits",
        says="Divides by the scale before it goes to float32, where small gradients are 0 again.",
        fails={"small gradients": "master has moved by nothing; it should have by up to"},
        changes={
            """
            gradient = self.network.backward(half, samples, scale).astype(np.float32)
            gradient *= share / scale
            """: """
            gradient = self.network.backward(half, samples, scale)
            with np.errstate(all="ignore"):
                gradient = gradient / np.float16(scale)
            gradient = gradient.astype(np.float32) * share
            """,
        },
    ),
    Mutant(
        name="divides_by_the_share",
        says="Divides the gradient by the share as well as by the scale.",
        fails={
            "steps": "divided by their shares: multiply",
            "shares": "divided by their shares: multiply",
            "small gradients": "after 4 steps master has moved by",
            "small updates": "after 64 steps master has moved by",
        },
        changes={"gradient *= share / scale": "gradient /= max(share, 1e-3) * scale"},
    ),
    Mutant(
        name="ignores_the_first_value",
        says="Begins with the default factor, whatever value it is given.",
        fails={"scale": "before the first step the value is 65536"},
        changes={
            "class MixedPrecision:": """
            class LossScale(LossScale):
                def __init__(self, value=2.0**16, patience=2000):
                    super().__init__(2.0**16, patience)


            class MixedPrecision:
            """,
        },
    ),
    Mutant(
        name="never_falls",
        says="Restarts its count at an overflow, and does not try a smaller factor.",
        fails={"scale": "after 1 overflow the value is 8, and should be 4"},
        changes={
            "class MixedPrecision:": """
            class LossScale(LossScale):
                def observe(self, finite):
                    value = self.value
                    super().observe(finite)
                    self.value = max(value, self.value)


            class MixedPrecision:
            """,
        },
    ),
    Mutant(
        name="passes_master_itself",
        says="Passes the float32 parameters to backward, which computes in 16 bits.",
        fails=dict.fromkeys(
            ("steps", "shares", "small gradients", "small updates", "any scale", "skip", "one message"),
            "backward computes in float16",
        ),
        changes={"half = self.master.astype(np.float16)": "half = self.master"},
    ),
    Mutant(
        name="tells_the_scale_of_overflows",
        says="Reports to the scale whether there was an overflow, where it takes whether there was none.",
        fails={"skip": "observe takes whether the summed gradient is finite"},
        changes={"self.scale.observe(finite)": "self.scale.observe(not finite)"},
    ),
    Mutant(
        name="falls_below_one",
        says="Halves the scale without end: below 1 it makes small gradients smaller.",
        fails={"scale": "after 3 overflows the value is 0.5, and should be 1"},
        changes={
            "class MixedPrecision:": """
            class LossScale(LossScale):
                def __init__(self, value=2.0**16, patience=2000):
                    self.value, self.patience, self.good = value, patience, 0

                def observe(self, finite):
                    self.good = self.good + 1 if finite else 0
                    if not finite:
                        self.value /= 2
                    elif self.good == self.patience:
                        self.value, self.good = self.value * 2, 0


            class MixedPrecision:
            """,
        },
    ),
    Mutant(
        name="forgets_the_share",
        says="Sums the gradients up as they are.",
        fails={
            "steps": "master moves by the sum of the ranks' gradients",
            "shares": "master moves by the sum of the ranks' gradients",
            "small gradients": "after 4 steps master has moved by",
            "small updates": "after 64 steps master has moved by",
        },
        changes={"gradient *= share / scale": "gradient *= 1.0 / scale"},
    ),
    Mutant(
        name="forgets_to_divide",
        says="Scales the loss, and never divides the gradient by the scale.",
        fails={
            "steps": "step 0: master moves by the gradient of the scaled loss: divide it by the scale",
            "shares": "master moves by the gradient of the scaled loss",
            "small gradients": "after 4 steps master has moved by",
            "small updates": "after 64 steps master has moved by",
            "any scale": "step 0: 43 parameters differ between a scale of 4096 and one of 256",
            "skip": "rank 0 leaves out a step without an overflow",
        },
        changes={"gradient *= share / scale": "gradient *= share"},
    ),
    Mutant(
        name="goes_on_from_what_was_rounded",
        says="Updates the 16-bit copy, so master loses what 16 bits cannot hold.",
        fails={
            "steps": "step 1: element",
            "shares": "is something in 16 bits after backward, the gradient, its sum or master?",
            "small updates": "float16 shows no single update, so is each of them added to master, in float32?",
        },
        changes={
            "self.master -= self.rate * gradient": """
            self.master = self.master.astype(np.float16).astype(np.float32) - self.rate * gradient
            """,
        },
    ),
    Mutant(
        name="grows_at_every_step_from_then_on",
        says="Doubles the scale after every step, once the first interval is over.",
        fails={"scale": "after 4 good steps the value is 32, and should be 16"},
        changes={
            "class MixedPrecision:": """
            class LossScale(LossScale):
                def __init__(self, value=2.0**16, patience=2000):
                    self.value, self.patience, self.good = value, patience, 0

                def observe(self, finite):
                    self.good = self.good + 1 if finite else 0
                    if not finite:
                        self.value = max(1.0, self.value / 2)
                    elif self.good >= self.patience:
                        self.value *= 2


            class MixedPrecision:
            """,
        },
    ),
    Mutant(
        name="in_two_messages",
        says="Adds the gradient up in two halves.",
        fails={"one message": "all_reduce is called 2 times"},
        changes={
            "self.comm.all_reduce(gradient)": """
            self.comm.all_reduce(gradient[:20])
            self.comm.all_reduce(gradient[20:])
            """,
        },
    ),
    Mutant(
        name="leaves_out_what_16_bits_do_not_show",
        says="Leaves out an update that would change nothing in 16 bits.",
        fails={"small updates": "after 64 steps master has moved by nothing"},
        changes={
            "self.master -= self.rate * gradient": """
            moved = self.master - self.rate * gradient
            if (moved.astype(np.float16) != self.master.astype(np.float16)).any():
                self.master = moved
            """,
        },
    ),
    Mutant(
        name="looks_at_its_own_gradient",
        says="Decides by its own gradient, so that only the rank with the overflow leaves out the step.",
        fails={"skip": "step 1, the last rank has an overflow: 31 parameters of rank 0 are infinite or no numbers"},
        changes={
            """
            self.comm.all_reduce(gradient)
            finite = bool(np.isfinite(gradient).all())
            """: """
            finite = bool(np.isfinite(gradient).all())
            self.comm.all_reduce(gradient)
            """,
        },
    ),
    Mutant(
        name="looks_for_infinities_only",
        says="Accepts NaN as a good gradient: the sum of an infinite one and its opposite is NaN.",
        fails={"skip": "step 3, the first and the last rank have one, of opposite signs: 31 parameters of rank 0"},
        changes={"finite = bool(np.isfinite(gradient).all())": "finite = not np.isinf(gradient).any()"},
    ),
    Mutant(
        name="never_grows",
        says="Halves the scale, and never tries a larger one.",
        fails={"scale": "after 3 good steps the value is 8, and should be 16"},
        changes={
            "class MixedPrecision:": """
            class LossScale(LossScale):
                def observe(self, finite):
                    if not finite:
                        super().observe(finite)


            class MixedPrecision:
            """,
        },
    ),
    Mutant(
        name="never_scales",
        says="Computes in 16 bits without a scale.",
        fails={
            "small gradients": "after 4 steps master has moved by nothing",
            "skip": "step 1, the last rank has an overflow: rank 0 moves",
        },
        changes={"scale = self.scale.value": "scale = 1.0"},
    ),
    Mutant(
        name="plain_mean",
        says="Gives every rank the same weight, however many samples it has.",
        fails={"shares": "master moves by the plain mean of the ranks' gradients"},
        changes={"gradient *= share / scale": "gradient *= 1 / self.comm.size / scale"},
    ),
    Mutant(
        name="puts_zeros_for_what_is_infinite",
        says="Replaces non-finite values by zeros, and takes the step.",
        fails={"skip": "step 1, the last rank has an overflow: rank 0 moves"},
        changes={
            """
            if finite:
                self.update(gradient)
            """: "self.update(np.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0))",
        },
    ),
    Mutant(
        name="reduces_in_16_bits",
        says="Sums the gradients up over the ranks in 16 bits.",
        fails={
            "steps": "is something in 16 bits after backward, the gradient, its sum or master?",
            "shares": "is something in 16 bits after backward, the gradient, its sum or master?",
            "one message": "step 0: float16 is added up over the ranks: it is to be float32",
        },
        changes={
            """
            gradient *= share / scale
            return gradient
            """: "return (gradient * share).astype(np.float16)",
            "self.comm.all_reduce(gradient)": """
            scale = self.scale.value
            self.comm.all_reduce(gradient)
            """,
            "self.update(gradient)": "self.update(gradient.astype(np.float32) / scale)",
        },
    ),
    Mutant(
        name="reduces_in_64_bits",
        says="Sums the gradients up over the ranks in 64 bits: twice the bytes.",
        fails={"one message": "float64 is added up over the ranks"},
        changes={"samples, scale).astype(np.float32)": "samples, scale).astype(np.float64)"},
    ),
    Mutant(
        name="remembers_in_16_bits",
        says="Keeps the parameters in float16.",
        fails={
            "steps": "master is float16: it is to be float32",
            "shares": "is something in 16 bits after backward",
            "small updates": "after 64 steps master has moved by nothing",
        },
        changes={
            "self.master = values.copy()": "self.master = values.astype(np.float16)",
            "self.master -= self.rate * gradient": """
            self.master = (self.master - self.rate * gradient).astype(np.float16)
            """,
        },
    ),
    Mutant(
        name="remembers_in_64_bits",
        says="Keeps the parameters in float64: twice the memory.",
        fails={"steps": "master is float64"},
        changes={"self.master = values.copy()": "self.master = values.astype(np.float64)"},
    ),
    Mutant(
        name="stays_away_with_an_overflow",
        says="Returns before the all-reduce if its own gradient is not finite.",
        fails={
            "skip": "step 1, the last rank has an overflow: rank 3 does not call all_reduce",
            "one message": "rank 3 does not call all_reduce: all have to, whatever their own gradient is",
        },
        changes={
            "self.comm.all_reduce(gradient)": """
            if not np.isfinite(gradient).all():
                self.scale.observe(False)
                return
            self.comm.all_reduce(gradient)
            """,
        },
    ),
    Mutant(
        name="stays_away_without_samples",
        says="Does nothing in a step for which it has no samples, while the others wait for it.",
        fails={"shares": "rank 1 does not call all_reduce", "any scale": "rank 1 does not call all_reduce"},
        changes={
            "self.finish(self.gradient(samples, share))": """
            if samples:
                self.finish(self.gradient(samples, share))
            """,
        },
    ),
    Mutant(
        name="tells_the_scale_good_steps_only",
        says="Skips the step without reporting it to the scale, so the next step overflows, too.",
        fails={"skip": "rank 0 calls observe 1 time in 2 steps: call it once for each step"},
        changes={
            """
            self.scale.observe(finite)
            if finite:
            """: """
            if finite:
                self.scale.observe(True)
            """,
        },
    ),
    Mutant(
        name="tells_the_scale_of_its_own_gradient",
        says="Skips the step with the others, but tells its scale only of an overflow of its own.",
        fails={"skip": "rank 0 tells its scale of no overflow, and there was one"},
        changes={
            "self.comm.all_reduce(gradient)": """
            own = bool(np.isfinite(gradient).all())
            self.comm.all_reduce(gradient)
            """,
            "self.scale.observe(finite)": "self.scale.observe(own)",
        },
    ),
    Mutant(
        name="up_the_gradient",
        says="Adds the gradient to the parameters, where it has to be subtracted.",
        fails={
            "steps": "master moves by the gradient upwards: subtract it",
            "shares": "master moves by the gradient upwards: subtract it",
            "small gradients": "after 4 steps master has moved by",
            "small updates": "after 64 steps master has moved by",
        },
        changes={"self.master -= self.rate * gradient": "self.master += self.rate * gradient"},
    ),
    Mutant(
        name="weighs_in_16_bits",
        says="Multiplies by the share before it goes to float32, and loses digits that the gradient has.",
        fails={"shares": "is something in 16 bits after backward"},
        changes={
            "samples, scale).astype(np.float32)": "samples, scale)",
            "gradient *= share / scale": """
            gradient *= np.float16(share)
            gradient = gradient.astype(np.float32) / np.float32(scale)
            """,
        },
    ),
    Mutant(
        name="weighs_the_sum",
        says="Multiplies the sum by its own share, after the reduction.",
        fails={"shares": "master moves by the sum, times this rank's share"},
        changes={
            "gradient *= share / scale": """
            self.share = share
            gradient *= 1.0 / scale
            """,
            "self.master -= self.rate * gradient": "self.master -= self.rate * (gradient * self.share)",
        },
    ),
]

SENTENCES: Sentences = {
    "LossScale": {
        "The loss scale: the factor": "names what the class is",
        "value: the initial factor": ["ignores_the_first_value"],
        "patience: the number of consecutive steps": ["another_patience"],
        "value: the factor for the next step": ["never_falls"],
    },
    "LossScale.observe": {
        "choose the factor for the next one": ["never_grows"],
        "halve the factor": ["never_falls"],
        "but not below 1": ["falls_below_one"],
        "After `patience` consecutive steps without overflow, double it": ["never_grows"],
        "the count of steps restarts at 0": ["counts_across_an_overflow", "grows_at_every_step_from_then_on"],
        "False means overflow": ["tells_the_scale_of_overflows", "tells_the_scale_of_its_own_gradient"],
    },
    "MixedPrecision": {
        "A network that computes in float16": ["passes_master_itself"],
        "returns the gradient of scale times the mean loss": ["forgets_to_divide", "never_scales"],
        "values: the initial parameters": "describes an argument",
        "the parameters move by −rate times the gradient": ["up_the_gradient"],
        "scale.value is the factor to use": ["divides_by_the_next_scale"],
        "call scale.observe(finite) once for every step": ["tells_the_scale_good_steps_only"],
        "The checks do not use your own LossScale here": "says what the checks do",
        "comm: this rank's communicator": "describes an argument",
        "one vector of float32; the same on all ranks after every step": [
            "remembers_in_16_bits",
            "remembers_in_64_bits",
            "goes_on_from_what_was_rounded",
        ],
    },
    "MixedPrecision.step": {
        "Compute the gradient of this rank's samples, sum it over all ranks": ["casts_only_once"],
        "and update": ["leaves_out_what_16_bits_do_not_show"],
        "Every rank calls this at the same time": "says what the caller keeps to",
        "It calls all_reduce once": ["asks_all_ranks", "stays_away_with_an_overflow"],
        "with the whole gradient": ["in_two_messages"],
        "in float32": ["reduces_in_16_bits", "reduces_in_64_bits", "divides_in_16_bits", "weighs_in_16_bits"],
        "If any rank has an overflow": [
            "looks_at_its_own_gradient",
            "looks_for_infinities_only",
            "puts_zeros_for_what_is_infinite",
        ],
        "it may be empty": ["stays_away_without_samples"],
        "share: this rank's fraction": "describes an argument",
        "share times gradient": ["forgets_the_share", "plain_mean", "weighs_the_sum", "divides_by_the_share"],
    },
}
