"""Known wrong answers of lab 4, as changes of reference.py."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

MUTANTS = [
    Mutant(
        name="a_bucket_for_each_parameter",
        says="Makes a bucket of every parameter: as many messages as there are parameters.",
        fails={"buckets": "the bucket of parameter 1 would have had room for parameter 0"},
        changes={
            "return [bucket.parameters for bucket in buckets.cut(lengths, most)]": """
            return [range(number, number + 1) for number in reversed(range(len(lengths)))]
            """,
        },
    ),
    Mutant(
        name="all_at_once_without_overlap",
        says="Reduces the whole gradient at once where it does not overlap, in another order of additions.",
        fails={"same bits": "are the same parts reduced, in the same order?"},
        changes={"cut(network.lengths, most)": "cut(network.lengths, most if overlap else len(network.gradients))"},
    ),
    Mutant(
        name="always_overlaps",
        says="Begins during backward even with overlap=False.",
        fails={"same bits": "without overlap: a reduction begins before gradient 0"},
        changes={"= network, comm, overlap": "= network, comm, True"},
    ),
    Mutant(
        name="begins_with_the_first_gradient",
        says="Begins a reduction when the first gradient of its bucket is there, before the others are.",
        fails={
            "weighted mean": "Were all of them there when the reduction was begun",
            "same bits": "what is being reduced has been changed",
            "early": "what is being reduced has been changed",
            "waits": "what is being reduced has been changed",
            "one order": "what is being reduced has been changed",
            "unused parameters": "what is being reduced has been changed",
        },
        changes={
            """
            self.missing[self.bucket_of[number]] -= 1
            while self.overlap and len(self.reductions) < len(self.buckets) and not self.missing[len(self.reductions)]:
                self.hand_over_next()
            """: """
            if self.overlap and self.bucket_of[number] == len(self.reductions):
                self.hand_over_next()
            """,
        },
    ),
    Mutant(
        name="begins_with_the_last_one_again",
        says="Begins each bucket with the parameter that did not fit, and puts it into the full one, too.",
        fails={
            "buckets": "is in more than one bucket",
            **dict.fromkeys(
                ("weighted mean", "same bits", "early", "waits", "one order", "unused parameters"),
                "what is being reduced has been changed",
            ),
        },
        changes={
            "return [bucket.parameters for bucket in buckets.cut(lengths, most)]": """
            found = [bucket.parameters for bucket in buckets.cut(lengths, most)]
            return [range(max(bucket.start - 1, 0), bucket.stop) for bucket in found]
            """,
        },
    ),
    Mutant(
        name="buckets_of_its_own",
        says="Fills buckets only by half, and sends more messages than needed.",
        fails={"early": "are the buckets those of cut(network.lengths, 20)?"},
        changes={"cut(network.lengths, most)": "cut(network.lengths, most // 2)"},
    ),
    Mutant(
        name="closes_a_bucket_too_late",
        says="Closes a bucket only when it has exceeded its limit.",
        fails={"buckets": "has 5 elements, and 4 are allowed"},
        changes={
            "return [bucket.parameters for bucket in buckets.cut(lengths, most)]": """
            found, stop, elements = [], len(lengths), 0
            for number in reversed(range(len(lengths))):
                elements += lengths[number]
                if elements >= most or number == 0:
                    found.append(range(number, stop))
                    stop, elements = number, 0
            return found
            """,
        },
    ),
    Mutant(
        name="counts_only_once",
        says="Counts the missing gradients down from the first step on, and never up again.",
        fails={
            "early": "In step 0 all began in time: do you start every step with the full counts?",
            "unused parameters": "Were all of them there when the reduction was begun",
            "one order": "Were all of them there when the reduction was begun",
        },
        changes={
            "self.missing = [len(bucket) for bucket in self.buckets]": "",
            "self.missing: list[int] = []": "self.missing = [len(bucket) for bucket in self.buckets]",
        },
    ),
    Mutant(
        name="fills_up_with_smaller_ones",
        says="Passes over a parameter that does not fit, and fills the bucket with smaller ones before it.",
        fails={
            "buckets": "and each bucket goes on where the one before has stopped",
            **dict.fromkeys(
                ("weighted mean", "same bits", "early", "waits", "one order", "unused parameters"),
                "what is being reduced has been changed",
            ),
        },
        changes={
            "return [bucket.parameters for bucket in buckets.cut(lengths, most)]": """
            left, found = list(reversed(range(len(lengths)))), []
            while left:
                bucket, room = [left.pop(0)], most
                room -= lengths[bucket[0]]
                for number in list(left):
                    if lengths[number] <= room:
                        bucket.insert(0, number)
                        left.remove(number)
                        room -= lengths[number]
                found.append(bucket)
            return found
            """,
        },
    ),
    Mutant(
        name="first_bucket_may_be_empty",
        says="Closes a bucket when the next parameter does not fit, although the bucket is still empty.",
        fails={"buckets": "a bucket is empty"},
        changes={
            "return [bucket.parameters for bucket in buckets.cut(lengths, most)]": """
            found, stop, room = [], len(lengths), most
            for number in reversed(range(len(lengths))):
                if lengths[number] > room:
                    found.append(range(number + 1, stop))
                    stop, room = number + 1, most
                room -= lengths[number]
            return [*found, range(0, stop)]
            """,
        },
    ),
    Mutant(
        name="first_parameters_first",
        says="Cuts from the front: the first bucket is of the first parameters, whose gradients come last.",
        fails={
            "buckets": "backward has the last parameters' gradients first",
            "early": "is the first bucket that of the last parameters",
            "one order": "is the first bucket that of the last parameters",
        },
        changes={
            "return [bucket.parameters for bucket in buckets.cut(lengths, most)]": """
            size = len(lengths)
            found = [bucket.parameters for bucket in buckets.cut(lengths[::-1], most)]
            return [range(size - bucket.stop, size - bucket.start) for bucket in found]
            """,
        },
    ),
    Mutant(
        name="forgets_the_last_bucket",
        says="Closes a bucket when the next parameter does not fit, and the last one never.",
        fails={
            "buckets": "is in no bucket",
            "weighted mean": "parameter 0 is never reduced",
            "same bits": "parameter 0 is never reduced",
            "early": "parameter 0 is never reduced",
            "waits": "parameter 0 is never reduced",
            "one order": "parameter 0 is never reduced",
            "unused parameters": "parameter 0 is never reduced",
        },
        changes={
            "return [bucket.parameters for bucket in buckets.cut(lengths, most)]": """
            return [bucket.parameters for bucket in buckets.cut(lengths, most)][:-1]
            """,
            "self.missing[self.bucket_of[number]] -= 1": """
            if number not in self.bucket_of:
                return
            self.missing[self.bucket_of[number]] -= 1
            """,
        },
    ),
    Mutant(
        name="forgets_the_share",
        says="Sums the gradients up as they are.",
        fails={
            "weighted mean": "moves by the sum of the ranks' gradients",
            "one order": "has other values than in one process",
            "unused parameters": "has other values than in one process",
        },
        changes={"part *= self.share": ""},
    ),
    Mutant(
        name="goes_on_after_a_large_one",
        says="Adds further parameters to a bucket whose one parameter has exceeded its limit already.",
        fails={"buckets": "elements, and 9 are allowed"},
        changes={
            "return [bucket.parameters for bucket in buckets.cut(lengths, most)]": """
            found, elements = [], 0
            for number in reversed(range(len(lengths))):
                if found and (elements > most or elements + lengths[number] <= most):
                    found[-1] = range(number, found[-1].stop)
                else:
                    found.append(range(number, number + 1))
                    elements = 0
                elements += lengths[number]
            return found
            """,
        },
    ),
    Mutant(
        name="keeps_the_first_steps_reductions",
        says="Uses the reductions of the first step in the second.",
        fails={
            "weighted mean": "step 1: parameters 0 to 11 are never reduced",
            "same bits": "step 1: parameters 0 to 11 are never reduced",
            "early": "step 1: parameters 0 to 11 are never reduced",
            "waits": "step 1: parameters 0 to 11 are never reduced",
            "one order": "parameters 0 to 11 are never reduced",
            "unused parameters": "parameters 0 to 11 are never reduced",
        },
        changes={"self.share, self.reductions = share, []": "self.share = share"},
    ),
    Mutant(
        name="no_bucket_is_full",
        says="Closes a bucket when the next parameter would fill it exactly.",
        fails={"buckets": "the bucket of parameter 1 would have had room for parameter 0: 5 elements"},
        changes={
            "return [bucket.parameters for bucket in buckets.cut(lengths, most)]": """
            found, stop, held = [], len(lengths), 0
            for number in reversed(range(len(lengths))):
                if held and held + lengths[number] >= most:
                    found.append(range(number + 1, stop))
                    stop, held = number + 1, 0
                held += lengths[number]
            return [*found, range(0, stop)] if stop else found
            """,
        },
    ),
    Mutant(
        name="nothing_after_backward",
        says="Begins reductions in is_there alone: without overlap, and for unused parameters, there are none.",
        fails={
            "same bits": "without overlap: parameters 0 to 11 are never reduced: is the rest begun",
            "waits": "without overlap: parameters 0 to 11 are never reduced",
            "unused parameters": "begin it after backward",
        },
        changes={
            """
            while len(self.reductions) < len(self.buckets):  # also those of which some gradients never come
                self.hand_over_next()
            """: "",
        },
    ),
    Mutant(
        name="one_bucket_per_gradient",
        says="Begins at most one reduction when a gradient arrives, although several buckets are ready.",
        fails={"one order": "can begin after gradient 8, and begins after gradient 3"},
        changes={"while self.overlap": "if self.overlap"},
    ),
    Mutant(
        name="one_reduction_at_a_time",
        says="Waits for a reduction before it begins the next one.",
        fails={"waits": "backward stands still meanwhile"},
        changes={
            "bucket = self.buckets[len(self.reductions)]": """
            for reduction in self.reductions[-1:]:
                reduction.wait()
            bucket = self.buckets[len(self.reductions)]
            """,
        },
    ),
    Mutant(
        name="only_buckets_whose_gradients_come",
        says="Never begins the reduction of a bucket with a missing gradient.",
        fails={"unused parameters": "so its bucket is never complete: begin it after backward"},
        changes={
            "while len(self.reductions) < len(self.buckets):": """
            while len(self.reductions) < len(self.buckets) and not self.missing[len(self.reductions)]:
            """,
        },
    ),
    Mutant(
        name="other_way_round_without_overlap",
        says="Without overlap begins with the first layer's bucket: the same sums, in another order.",
        fails={"same bits": "the order is to be the same"},
        changes={
            "self.buckets = cut(network.lengths, most)": """
            self.buckets = cut(network.lengths, most)[:: 1 if overlap else -1]
            """,
        },
    ),
    Mutant(
        name="plain_mean",
        says="Gives every rank the same weight, however many samples it has.",
        fails={
            "weighted mean": "their plain mean: a rank with fewer samples has to count less",
            "one order": "has other values than in one process",
            "unused parameters": "has other values than in one process",
        },
        changes={"part *= self.share": "part /= self.comm.size"},
    ),
    Mutant(
        name="reduces_a_copy",
        says="Passes a copy of the bucket's gradients to the reduction, which writes the sum there.",
        fails={
            "weighted mean": "begin takes a part of network.gradients itself, not a copy",
            "same bits": "not a copy",
            "early": "not a copy",
            "waits": "not a copy",
            "one order": "not a copy",
            "unused parameters": "not a copy",
        },
        changes={"part *= self.share": "part = self.share * part"},
    ),
    Mutant(
        name="updates_after_every_bucket",
        says="Updates after each reduction that it has waited for.",
        fails={
            "weighted mean": "the update comes before the wait for parameter 9",
            "same bits": "the update comes before the wait",
            "early": "the update comes before the wait",
            "waits": "the update comes before the wait",
            "one order": "the update comes before the wait",
            "unused parameters": "the update comes before the wait",
        },
        changes={
            """
            for reduction in self.reductions:
                reduction.wait()
            self.network.update()
            """: """
            for reduction in self.reductions:
                reduction.wait()
                self.network.update()
            """,
        },
    ),
    Mutant(
        name="updates_before_it_waits",
        says="Updates while the sums are still on their way, and waits for them afterwards.",
        fails={
            "weighted mean": "the update comes before the wait for parameters 10 and 11",
            "same bits": "the update comes before the wait",
            "early": "the update comes before the wait",
            "waits": "the update comes before the wait",
            "one order": "the update comes before the wait",
            "unused parameters": "the update comes before the wait",
        },
        changes={
            """
            for reduction in self.reductions:
                reduction.wait()
            self.network.update()
            """: """
            self.network.update()
            for reduction in self.reductions:
                reduction.wait()
            """,
        },
    ),
    Mutant(
        name="weighs_all_gradients_after_backward",
        says="Multiplies the whole vector after backward, when most of it is being reduced.",
        fails={
            "weighted mean": "what is being reduced has been changed",
            "same bits": "what is being reduced has been changed",
            "early": "what is being reduced has been changed",
            "waits": "what is being reduced has been changed",
            "one order": "what is being reduced has been changed",
            "unused parameters": "what is being reduced has been changed",
        },
        changes={
            "self.network.backward(samples, self.is_there)": """
            self.network.backward(samples, self.is_there)
            self.network.gradients *= share
            """,
            "part *= self.share": "",
        },
    ),
    Mutant(
        name="waits_at_once",
        says="Waits for each reduction right after it has begun, which blocks backward.",
        fails={"waits": "the step waits for the reduction of parameters 10 and 11 before gradient 9 is there"},
        changes={
            "self.reductions.append(self.comm.begin(part))": """
            self.reductions.append(self.comm.begin(part))
            self.reductions[-1].wait()
            """,
        },
    ),
    Mutant(
        name="waits_for_the_end_of_backward",
        says="Begins all reductions when backward is over, whether it is to overlap or not.",
        fails={"early": "begins when backward is over", "one order": "begins when backward is over"},
        changes={"= network, comm, overlap": "= network, comm, False"},
    ),
    Mutant(
        name="waits_for_the_last_one_only",
        says="Waits for the last reduction, and assumes that the others are done by then.",
        fails={
            "weighted mean": "does the step wait for every reduction before the update?",
            "same bits": "does the step wait for every reduction before the update?",
            "waits": "the update comes before the wait for parameters 10 and 11",
            "one order": "with a gradient that is still being reduced",
            "unused parameters": "with a gradient that is still being reduced",
        },
        changes={
            """
            for reduction in self.reductions:
                reduction.wait()
            """: "self.reductions[-1].wait()",
        },
    ),
    Mutant(
        name="weighs_after_the_beginning",
        says="Weights a bucket after its reduction has begun.",
        fails={
            "weighted mean": "what is being reduced has been changed: the gradients of parameters 10 and 11",
            "same bits": "what is being reduced has been changed",
            "early": "what is being reduced has been changed",
            "waits": "what is being reduced has been changed",
            "one order": "what is being reduced has been changed",
            "unused parameters": "what is being reduced has been changed",
        },
        changes={
            """
            part *= self.share
            self.reductions.append(self.comm.begin(part))
            """: """
            self.reductions.append(self.comm.begin(part))
            part *= self.share
            """,
        },
    ),
    Mutant(
        name="weighs_the_sum",
        says="Multiplies the sum by its own share, after the reduction.",
        fails={
            "weighted mean": "moves by their sum, times this rank's share",
            "same bits": "end with different parameters",
            "one order": "has other values than in one process",
            "unused parameters": "has other values than in one process",
        },
        changes={
            "part *= self.share": "",
            "self.network.update()": """
            self.network.gradients *= share
            self.network.update()
            """,
        },
    ),
    Mutant(
        name="whichever_is_complete_first",
        says="Begins with whichever bucket is complete first, which differs between ranks.",
        fails={"one order": "reduction 1 is of", "unused parameters": "all ranks have to begin them in the same order"},
        changes={
            "self.share, self.reductions = share, []": "self.share, self.reductions = share, {}",
            """
            while len(self.reductions) < len(self.buckets):  # also those of which some gradients never come
                self.hand_over_next()
            """: """
            for index in range(len(self.buckets)):
                self.hand_over(index)
            """,
            "for reduction in self.reductions:": "for reduction in self.reductions.values():",
            """
            self.missing[self.bucket_of[number]] -= 1
            while self.overlap and len(self.reductions) < len(self.buckets) and not self.missing[len(self.reductions)]:
                self.hand_over_next()
            """: """
            index = self.bucket_of[number]
            self.missing[index] -= 1
            if self.overlap and not self.missing[index]:
                self.hand_over(index)
            """,
            """
            def hand_over_next(self) -> None:
                bucket = self.buckets[len(self.reductions)]
            """: """
            def hand_over(self, index):
                if index in self.reductions:
                    return
                bucket = self.buckets[index]
            """,
            "self.reductions.append(self.comm.begin(part))": "self.reductions[index] = self.comm.begin(part)",
        },
    ),
]

SENTENCES: Sentences = {
    "cut": {
        "in the order in which backward fills them": ["first_parameters_first"],
        "A bucket holds consecutive parameters": ["fills_up_with_smaller_ones"],
        "The first bucket begins with the last parameter": ["first_parameters_first"],
        "as long as there is room": ["a_bucket_for_each_parameter"],
        "The second bucket continues from there": ["begins_with_the_last_one_again"],
        "lengths: the number of elements": "describes an argument",
        "most: the largest number of elements in a bucket": ["closes_a_bucket_too_late"],
        "A single parameter with more elements is a bucket by itself": ["goes_on_after_a_large_one"],
        "The parameter numbers of each bucket": ["forgets_the_last_bucket"],
        "No bucket is empty": ["first_bucket_may_be_empty"],
        "no bucket leaves out a parameter that it had room for": ["no_bucket_is_full"],
    },
    "Overlapped": {
        "trained synchronously with its copies on all other ranks": ["weighs_the_sum"],
        "network: this rank's copy": "describes an argument",
        "comm.begin(part) begins to replace this part of network.gradients": ["reduces_a_copy"],
        "Do not touch the part": ["weighs_after_the_beginning", "weighs_all_gradients_after_backward"],
        "most: the largest number of elements in a bucket, as in `cut`": ["buckets_of_its_own"],
        "begin each reduction as early as possible": [
            "waits_for_the_end_of_backward",
            "counts_only_once",
            "one_bucket_per_gradient",
        ],
        "If False, begin the same ones after it": [
            "always_overlaps",
            "all_at_once_without_overlap",
            "other_way_round_without_overlap",
        ],
    },
    "Overlapped.step": {
        "Compute the gradient of this rank's samples": ["begins_with_the_first_gradient"],
        "sum it over all ranks": [
            "keeps_the_first_steps_reductions",
            "waits_for_the_last_one_only",
            "updates_before_it_waits",
        ],
        "update once": ["updates_after_every_bucket"],
        "Every rank calls this at the same time": "says what the caller keeps to",
        "Do not wait for a reduction before": ["waits_at_once"],
        "in the same order, whatever the order": ["whichever_is_complete_first"],
        "never reported by backward": ["only_buckets_whose_gradients_come", "nothing_after_backward"],
        "samples: this rank's part": "describes an argument",
        "share: this rank's fraction": "describes an argument",
        "share times gradient": ["forgets_the_share", "plain_mean"],
    },
}
