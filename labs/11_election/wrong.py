"""Known wrong answers of lab 11, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

ORIGINAL = """\
from farandole.recovery.election.steps import Message, Timer


class Member:
    def __init__(self, number, members, rng):
        self.number = number
        self.others = [member for member in members if member != number]
        self.majority = len(members) // 2 + 1
        self.rng = rng
        self.leader, self.term = None, 0
        self.voted_for, self.votes = None, set()

    def start(self):
        self.enter(self.term + 1)
        self.voted_for = self.number
        self.votes.add(self.number)
        return [*self.tell_all("request vote"), self.patience(), *self.lead_if_elected()]

    def receive(self, message):
        if message.term < self.term:
            return []
        if message.term > self.term:
            self.enter(message.term)
        if message.kind == "heartbeat":
            self.leader = message.sender
            return [self.patience()]
        if message.kind == "vote":
            self.votes.add(message.sender)
            return self.lead_if_elected()
        if self.voted_for is None:
            self.voted_for = message.sender
            return [Message("vote", self.number, message.sender, self.term), self.patience()]
        return []

    def timeout(self):
        if self.leader == self.number:
            return self.lead()
        return self.start()

    def enter(self, term):
        self.term = term
        self.leader = None
        self.voted_for, self.votes = None, set()

    def lead_if_elected(self):
        if self.leader is None and len(self.votes) >= self.majority:
            return self.lead()
        return []

    def lead(self):
        self.leader = self.number
        return [*self.tell_all("heartbeat"), Timer(3.0)]

    def tell_all(self, kind):
        return [Message(kind, self.number, other, self.term) for other in self.others]

    def patience(self):
        return Timer(self.rng.uniform(10.0, 20.0))
"""

# The checks that let members send messages.
PLAYED = ("agree", "cost", "heartbeats", "successor", "majority", "one leader", "heal", "split votes", "duplicates")

MUTANTS = [
    Mutant(
        name="asks_itself_too",
        says="Requests the votes of all members, its own among them.",
        fails=dict.fromkeys(PLAYED, ", to itself"),
        changes={
            "self.others = [member for member in members if member != number]": "self.others = list(members)",
        },
    ),
    Mutant(
        name="asks_no_more_than_it_needs",
        says="Requests only the votes that make a majority with its own: some of these members may be dead.",
        fails={
            "cost": "1 'request vote' messages have been sent, where 2 would be right",
            "successor": "2 dies at 20 s, and at 170 s 5 knows of no leader",
            "majority": "that is a majority, and at 150 s",
            "split votes": "and at 5 s 0 and 1 know of no leader",
        },
        changes={
            '[*self.tell_all("request vote"), self.patience()': """
            [*self.tell_all("request vote")[: self.majority - 1], self.patience()
            """,
        },
    ),
    Mutant(
        name="begins_in_term_1",
        says="Numbers the terms from 1, so that no term is 0.",
        fails={"agree": "member 0 is in term 1 at the beginning, which is term 0"},
        changes={"self.leader, self.term = None, 0": "self.leader, self.term = None, 1"},
    ),
    Mutant(
        name="candidate_does_not_follow",
        says="As a candidate it ignores the heartbeats of the leader of its own term.",
        fails={"split votes": "the other receives its heartbeat, and at 5 s 0 leads (term 1), 1 knows of no leader"},
        changes={
            'if message.kind == "heartbeat":': """
            if message.kind == "heartbeat" and self.voted_for == self.number:
                return []
            if message.kind == "heartbeat":
            """,
        },
    ),
    Mutant(
        name="counts_a_vote_twice",
        says="Counts how many votes have come, not whose.",
        fails={"duplicates": "with the votes of 1 and 3: 2 of 4"},
        changes={
            """
            self.leader, self.term = None, 0
            self.voted_for, self.votes = None, set()
            """: """
            self.leader, self.term = None, 0
            self.voted_for, self.votes = None, 0
            """,
            "self.votes.add(self.number)": "self.votes += 1",
            "self.votes.add(message.sender)": "self.votes += 1",
            "self.voted_for, self.votes = None, set()": "self.voted_for, self.votes = None, 0",
            "if self.leader is None and len(self.votes) >= self.majority:": """
            if self.leader is None and self.votes >= self.majority:
            """,
        },
    ),
    Mutant(
        name="counts_old_votes",
        says="Counts votes for its candidacy in an older term.",
        fails={
            "one leader": "it leads in term 2 when votes of term 1 come",
            "duplicates": "begins to lead in term 6 with only the votes of 1 and 2: 2 of 4",
        },
        changes={"if message.term < self.term:": 'if message.term < self.term and message.kind != "vote":'},
    ),
    Mutant(
        name="draws_from_elsewhere",
        says="Draws its time-out from Python's own generator: no case can be repeated.",
        fails={"heartbeats": "draw from rng alone"},
        changes={
            "from farandole.recovery.election.steps import Message, Timer": """
            import random

            from farandole.recovery.election.steps import Message, Timer
            """,
            "return Timer(self.rng.uniform(10.0, 20.0))": "return Timer(random.uniform(10.0, 20.0))",
        },
    ),
    Mutant(
        name="drops_what_brings_a_newer_term",
        says="Enters the term of a message, and does not handle the message itself.",
        fails={
            "agree": "at 5 s 0 and 1 know of no leader (term 1)",
            "cost": "0 'vote' messages have been sent, where 1 would",
            "heartbeats": "no member has been elected",
            "successor": "5 and 11 know of no leader",
            "majority": "that is a majority, and at 150 s",
            "heal": "know of no leader",
            "split votes": "no member has been elected",
        },
        changes={
            "self.enter(message.term)": """
            self.enter(message.term)
            return []
            """,
        },
    ),
    Mutant(
        name="follows_an_old_heartbeat",
        says="Follows the heartbeat of a leader whose term is over.",
        fails={"heal": "by receive(heartbeat from 1, term 1), member 0 takes 1 for the leader of term 2: it is not"},
        changes={"if message.term < self.term:": 'if message.term < self.term and message.kind != "heartbeat":'},
    ),
    Mutant(
        name="follows_the_candidate",
        says="Treats the member that it has voted for as the leader.",
        fails={"heal": "by receive(request vote from 0, term 2), member 2 takes 0 for the leader of term 2: it is not"},
        changes={"self.voted_for = message.sender": "self.voted_for = self.leader = message.sender"},
    ),
    Mutant(
        name="follows_the_dead_leader",
        says="Stands as a candidate in a new term, and still names the leader that has failed.",
        fails={"heal": "and of a new term no leader is known yet"},
        changes={
            """
            self.enter(self.term + 1)
            self.voted_for = self.number
            """: """
            leader = self.leader
            self.enter(self.term + 1)
            self.leader = leader if leader != self.number else None
            self.voted_for = self.number
            """,
            "if self.leader is None and len(self.votes) >= self.majority:": """
            if self.leader != self.number and len(self.votes) >= self.majority:
            """,
        },
    ),
    Mutant(
        name="gives_away_its_own_vote",
        says="Counts itself among its voters, and votes for another in the same term.",
        fails={
            "one leader": "term 1 had two leaders, 0 from 1.3 s and 1 from 1.3 s: members 0 and 1 voted for both",
            "split votes": "0 and 2 follow 1 (term 1), 1 follows 0 (term 1)",
            "duplicates": "members 0 and 1 voted for both",
        },
        changes={"self.voted_for = self.number": ""},
    ),
    Mutant(
        name="goes_back_to_an_old_term",
        says="Adopts the term of every message, also an older one.",
        fails={
            "one leader": "it leads in term 1 when votes of term 1 come",
            "heal": "by receive(heartbeat from 1, term 1), member 0 goes back from term 2 to 1",
            "duplicates": "member 3 voted for both",
        },
        changes={
            """
            if message.term < self.term:
                return []
            if message.term > self.term:
            """: "if message.term != self.term:",
        },
    ),
    Mutant(
        name="half_is_enough",
        says="Leads with half of the votes.",
        fails={
            "majority": "2 members, and 1 alone lives: at 0.0 s member 1 begins to lead, with the votes of 1: 1 of 2",
            "one leader": "0 had only its own vote: 1 of 2",
            "duplicates": "with the votes of 1: 1 of 2",
        },
        changes={"self.majority = len(members) // 2 + 1": "self.majority = (len(members) + 1) // 2"},
    ),
    Mutant(
        name="half_the_patience",
        says="Waits for the leader for 5 to 10 s only.",
        fails={"heartbeats": "a member waits for the leader between 10 and 20 s"},
        changes={"return Timer(self.rng.uniform(10.0, 20.0))": "return Timer(self.rng.uniform(5.0, 10.0))"},
    ),
    Mutant(
        name="heartbeats_do_not_calm_it",
        says="Does not restart its timer at a heartbeat.",
        fails={
            "heartbeats": "member 1 begins term 2, although 0 leads and is alive: 0's last heartbeat came 1.1 s before",
            "heal": "know of no leader",
        },
        changes={"return [self.patience()]": "return []"},
    ),
    Mutant(
        name="heartbeats_of_nine_seconds",
        says="Sends heartbeats just often enough for a network without losses.",
        fails={"heartbeats": "a leader's heartbeats are 3 s apart"},
        changes={"Timer(3.0)": "Timer(9.0)"},
    ),
    Mutant(
        name="higher_terms_of_candidates_only",
        says="Adopts a higher term from a request for its vote, but not from a leader's heartbeat.",
        fails={
            "one leader": "0 receives the heartbeat of 1, which leads in term 3: it votes for 2, a candidate in term 2",
            "heal": "0 leads (term 2), 1 leads (term 1)",
        },
        changes={
            "if message.term < self.term:": """
            if message.term > self.term and message.kind == "request vote":
                self.enter(message.term)
            if message.term != self.term:
            """,
            """
            if message.term > self.term:
                self.enter(message.term)
            """: "",
        },
    ),
    Mutant(
        name="ignores_higher_terms",
        says="Ignores messages of a higher term as well as of an older one.",
        fails={
            "agree": "0 knows of no leader (term 1), 1 knows of no leader (term 0)",
            "cost": "0 'vote' messages have been sent, where 1 would",
            "heartbeats": "no member has been elected",
            "successor": "know of no leader (term 0)",
            "majority": "that is a majority, and at 150 s",
            "one leader": "no member has ever been elected",
            "heal": "know of no leader (term 0)",
            "split votes": "no member has been elected; 0 requested votes at",
            "duplicates": "at 5 s 0 knows of no leader (term 1), 1 knows of no leader (term 0)",
        },
        changes={
            "if message.term < self.term:": "if message.term != self.term:",
            """
            if message.term > self.term:
                self.enter(message.term)
            """: "",
        },
    ),
    Mutant(
        name="keeps_its_vote",
        says="Keeps its vote when the term changes: a member that has voted once never votes for another.",
        fails={
            "successor": "2 dies at 20 s, and at 170 s 5 and 11 know of no leader",
            "one leader": "no member has ever been elected",
            "heal": "0, 1 and 2 know of no leader",
            "split votes": "no member has been elected; 0 requested votes at",
            "duplicates": "no member has ever been elected",
        },
        changes={
            "if self.voted_for is None:": "if self.voted_for in (None, message.sender):",
            """
            self.leader = None
            self.voted_for, self.votes = None, set()
            """: """
            self.leader = None
            self.votes = set()
            """,
        },
    ),
    Mutant(
        name="leads_on_in_the_new_term",
        says="Adopts a higher term, but remains the leader that it was in the older one.",
        fails={
            "one leader": "term 3 had two leaders",
            "heal": "member 2 takes 1 for the leader of term 2: it is not, and of a new term no leader is known yet",
            "duplicates": "term 3 had two leaders",
        },
        changes={
            "self.voted_for = self.number": """
            self.leader = None
            self.voted_for = self.number
            """,
            """
            self.leader = None
            self.voted_for, self.votes = None, set()
            """: "self.voted_for, self.votes = None, set()",
        },
    ),
    Mutant(
        name="leads_with_the_votes_it_has",
        says="Counts votes when its timer expires, and leads with any vote: it assumes that silent members are dead.",
        fails={
            "majority": "1 and 3 alone live: at 11.4 s member 1 begins to lead, with the votes of 1 and 3: 2 of 4",
            "one leader": "begins to lead in term 9 with only the votes of 1 and 3: 2 of 4",
            "duplicates": "with the votes of 1 and 3: 2 of 4",
        },
        changes={
            "return self.start()": """
            if self.leader is None and len(self.votes) > 1:
                return self.lead()
            return self.start()
            """,
        },
    ),
    Mutant(
        name="members_from_0_on",
        says="Assumes that the members are numbered 0, 1, 2, and so on.",
        fails=dict.fromkeys(("agree", "cost", "heartbeats", "successor"), "there is no member 0"),
        changes={
            "self.others = [member for member in members if member != number]": """
            self.others = [member for member in range(len(members)) if member != number]
            """,
        },
    ),
    Mutant(
        name="never_steps_down",
        says="Once it leads, it ignores all messages.",
        fails={"heal": "at 250 s 0 leads (term 2), 1 leads (term 1), 2 follows 0 (term 2)"},
        changes={"if message.term < self.term:": "if message.term < self.term or self.leader == self.number:"},
    ),
    Mutant(
        name="no_heartbeats",
        says="Sends its heartbeats once, and never again.",
        fails={
            "heartbeats": "although 0 leads and is alive: 0's last heartbeat came 11.9 s before",
            "heal": "at 250 s 0 follows 2 (term 17), 1 knows of no leader",
        },
        changes={
            'return [*self.tell_all("heartbeat"), Timer(3.0)]': """
            return [*self.tell_all("heartbeat"), Timer(None)]
            """,
        },
    ),
    Mutant(
        name="no_vote_for_itself",
        says="Does not count itself among its voters.",
        fails={
            "agree": "0 is the only member, 0 starts: nothing is in the way, and at 5 s 0 knows of no leader",
            "cost": "0 'heartbeat' messages have been sent, where 1 would",
            "heartbeats": "no member has been elected",
            "successor": "5 and 11 know of no leader",
            "majority": "0 and 1 alone live: that is a majority, and at 150 s",
            "split votes": "no member has been elected; 0 requested votes at",
            "duplicates": "at 5 s 0 and 1 know of no leader (term 1)",
        },
        changes={"self.votes.add(self.number)": ""},
    ),
    Mutant(
        name="old_messages_calm_it",
        says="Restarts its timer with every message, even of a term that is over.",
        fails={
            "heartbeats": "3 requests a vote in term 0, which is over: it restarts its timer",
            "heal": "knows of no leader",
        },
        changes={
            """
            if message.term < self.term:
                return []
            """: """
            if message.term < self.term:
                return [] if self.leader == self.number else [self.patience()]
            """,
        },
    ),
    Mutant(
        name="patience_drawn_once",
        says="Draws its time-out only once: two members with equal time-outs keep them.",
        fails={
            "split votes": (
                "0 requested votes at 0.0, 18.3, 36.6, 54.9 … s, 1 requested votes at 0.0, 18.3, 36.6, 55.0 … s"
            )
        },
        changes={
            "self.rng = rng": "self.seconds = rng.uniform(10.0, 20.0)",
            "return Timer(self.rng.uniform(10.0, 20.0))": "return Timer(self.seconds)",
        },
    ),
    Mutant(
        name="refusals_calm_it",
        says="Restarts its timer with every request, also without a vote: candidates can keep it from ever standing.",
        fails={"heartbeats": "2 requests a vote in the same term and gets none: it restarts its timer"},
        changes={
            """
                return [Message("vote", self.number, message.sender, self.term), self.patience()]
            return []
            """: """
                return [Message("vote", self.number, message.sender, self.term), self.patience()]
            return [] if self.leader == self.number else [self.patience()]
            """,
        },
    ),
    Mutant(
        name="refuses_in_words",
        says="Answers a request that it does not grant.",
        fails=dict.fromkeys(
            ("heartbeats", "successor", "majority", "one leader", "heal", "split votes", "duplicates"),
            "the kinds are 'request vote', 'vote', 'heartbeat'",
        ),
        changes={
            """
            if self.voted_for is None:
                self.voted_for = message.sender
                return [Message("vote", self.number, message.sender, self.term), self.patience()]
            return []
            """: """
            if self.voted_for is None:
                self.voted_for = message.sender
                return [Message("vote", self.number, message.sender, self.term), self.patience()]
            return [Message("no vote", self.number, message.sender, self.term)]
            """,
        },
    ),
    Mutant(
        name="returns_none_for_nothing",
        says="Returns None where there is nothing to do.",
        fails=dict.fromkeys(("heartbeats", "one leader", "heal", "duplicates"), "returns None: is there a return?"),
        changes={
            """
            if message.term < self.term:
                return []
            """: """
            if message.term < self.term:
                return None
            """,
        },
    ),
    Mutant(
        name="skips_terms",
        says="Increases the term by two in each candidacy.",
        fails={"one leader": "the next one is 3"},
        changes={"self.enter(self.term + 1)": "self.enter(self.term + 2)"},
    ),
    Mutant(
        name="stands_once",
        says="Sets no timer when it asks for votes: a candidate that is not elected never tries again.",
        fails={
            "successor": "5 and 11 know of no leader (term 2)",
            "heal": "2 knows of no leader (term 2)",
            "split votes": "0 requested votes at 0.0 s, 1 requested votes at 0.0 s",
        },
        changes={
            'return [*self.tell_all("request vote"), self.patience(), *self.lead_if_elected()]': """
            return [*self.tell_all("request vote"), *self.lead_if_elected()]
            """,
        },
    ),
    Mutant(
        name="swaps_sender_and_receiver",
        says="Writes the receiver of a message where its sender belongs.",
        fails=dict.fromkeys(PLAYED, ": the sender is "),
        changes={
            "return [Message(kind, self.number, other, self.term) for other in self.others]": """
            return [Message(kind, other, self.number, self.term) for other in self.others]
            """,
        },
    ),
    Mutant(
        name="tells_with_every_vote",
        says="Sends heartbeats again with each vote beyond the majority.",
        fails={"cost": "4 'heartbeat' messages have been sent, where 2 would"},
        changes={
            "if self.leader is None and len(self.votes) >= self.majority:": "if len(self.votes) >= self.majority:"
        },
    ),
    Mutant(
        name="terms_left_out",
        says="Leaves the term out of its votes.",
        fails=dict.fromkeys(
            ("agree", "cost", "heartbeats", "successor", "majority", "one leader", "heal", "split votes", "duplicates"),
            ", 0), but is in term",
        ),
        changes={
            'return [Message("vote", self.number, message.sender, self.term), self.patience()]': """
            return [Message("vote", self.number, message.sender), self.patience()]
            """,
        },
    ),
    Mutant(
        name="the_same_patience",
        says="Has the same time-out every time, as every other member.",
        fails={
            "successor": "5 and 11 know of no leader",
            "heal": "0, 1, 2 and 3 know of no leader",
            "split votes": (
                "0 requested votes at 0.0, 15.0, 30.0, 45.0 … s, 1 requested votes at 0.0, 15.0, 30.0, 45.0 … s"
            ),
        },
        changes={"return Timer(self.rng.uniform(10.0, 20.0))": "return Timer(15.0)"},
    ),
    Mutant(
        name="the_same_term_again",
        says="Asks for votes without beginning a new term.",
        fails={
            "successor": "5 and 11 know of no leader (term 0)",
            "one leader": "is one again in term 0: each time needs a new term",
            "split votes": "0 requested votes at 0.0 s, 1 requested votes at 0.0 s",
            "duplicates": "no member has ever been elected",
        },
        changes={"self.enter(self.term + 1)": "self.enter(self.term)"},
    ),
    Mutant(
        name="the_timer_always_starts",
        says="Begins a new election whenever the timer expires, although it is the leader.",
        fails={
            "agree": "0 knows of no leader (term 2), 1 follows 0 (term 1)",
            "heartbeats": "member 0 begins term 2, although it has led since 1.7 s itself",
            "heal": "at 250 s",
            "split votes": "and at 5 s 0 knows of no leader (term 2)",
            "duplicates": "at 5 s 0 and 1 know of no leader (term 2)",
        },
        changes={
            """
            if self.leader == self.number:
                return self.lead()
            """: "",
        },
    ),
    Mutant(
        name="twice_the_patience",
        says="Waits for the leader for 20 to 40 s.",
        fails={"heartbeats": "a member waits for the leader between 10 and 20 s"},
        changes={"return Timer(self.rng.uniform(10.0, 20.0))": "return Timer(self.rng.uniform(20.0, 40.0))"},
    ),
    Mutant(
        name="voters_do_not_wait",
        says="Sets no timer when it gives its vote: if the candidate dies, no member detects it.",
        fails={
            "successor": "it has been voted for and does not lead yet; at 150 s 5 and 11 know of no leader (term 1)"
        },
        changes={
            'return [Message("vote", self.number, message.sender, self.term), self.patience()]': """
            return [Message("vote", self.number, message.sender, self.term)]
            """,
        },
    ),
    Mutant(
        name="votes_calm_it",
        says="As a candidate restarts its timer with every vote.",
        fails={"heartbeats": "1 votes for it, and it has no majority yet: it restarts its timer"},
        changes={
            """
            self.votes.add(message.sender)
            return self.lead_if_elected()
            """: """
            self.votes.add(message.sender)
            return self.lead_if_elected() or ([] if self.leader == self.number else [self.patience()])
            """,
        },
    ),
    Mutant(
        name="votes_for_everybody",
        says="Gives its vote to every member that asks for it.",
        fails={
            "one leader": "term 1 had two leaders, 0 from 1.3 s and 1 from 1.3 s: members 0 and 1 voted for both",
            "split votes": "0 and 2 follow 1 (term 1), 1 follows 0 (term 1)",
            "duplicates": "member 2 voted for both",
        },
        changes={
            """
            if self.voted_for is None:
                self.voted_for = message.sender
                return [Message("vote", self.number, message.sender, self.term), self.patience()]
            return []
            """: """
            self.voted_for = message.sender
            return [Message("vote", self.number, message.sender, self.term), self.patience()]
            """,
        },
    ),
    Mutant(
        name="votes_in_an_old_term",
        says="Votes in the term of the request, although that is over.",
        fails={"one leader": "sends Message('vote', 0, 2, 2), but is in term 3"},
        changes={
            "if message.term < self.term:": 'if message.term < self.term and message.kind != "request vote":',
            'return [Message("vote", self.number, message.sender, self.term), self.patience()]': """
            return [Message("vote", self.number, message.sender, message.term), self.patience()]
            """,
        },
    ),
    Mutant(
        name="waits_with_the_first_heartbeat",
        says="Sends its first heartbeats one interval after its election.",
        fails={
            "agree": "at 5 s 0 leads (term 1), 1 knows of no leader (term 1)",
            "cost": "0 'heartbeat' messages have been sent, where 1 would",
            "split votes": "the other receives its heartbeat, and at 5 s 0 leads (term 1)",
        },
        changes={
            """
            if self.leader is None and len(self.votes) >= self.majority:
                return self.lead()
            """: """
            if self.leader is None and len(self.votes) >= self.majority:
                self.leader = self.number
                return [Timer(3.0)]
            """,
        },
    ),
    Mutant(
        name="wants_all_votes",
        says="Leads only when every member has voted for it.",
        fails={
            "successor": "5 and 11 know of no leader",
            "majority": "3 members, and 1 and 2 alone live: that is a majority",
            "split votes": "0, 1 and 2 know of no leader (term 1)",
        },
        changes={"self.majority = len(members) // 2 + 1": "self.majority = len(members)"},
    ),
]

SENTENCES: Sentences = {
    "comments": {
        "at least this, and less than twice this": ["half_the_patience", "twice_the_patience"],
        "drawn at random each time": ["patience_drawn_once", "the_same_patience"],
        "interval between a leader's heartbeats": ["heartbeats_of_nine_seconds"],
    },
    "Member": {
        "by the rules of Raft": "names what the class is",
        "Its methods are called when": "says what the caller keeps to",
        "Each returns a list of actions": ["returns_none_for_nothing"],
        "from `sender`, this member, to the member `to`": ["swaps_sender_and_receiver"],
        "Timer(seconds)": "describes an action",
        "A message carries its sender's term": ["terms_left_out"],
        "and is of one of three kinds": ["refuses_in_words"],
        '"request vote"': "names a kind of message",
        "a member that does not sends no answer": ["refuses_in_words"],
        "the sender leads in this term": ["tells_with_every_vote", "candidate_does_not_follow"],
        "Messages may arrive late": ["old_messages_calm_it", "counts_a_vote_twice"],
        "A member has no other source of information": ["leads_with_the_votes_it_has"],
        "the member that leads in `term`": ["follows_the_candidate", "follows_an_old_heartbeat"],
        "None if this member knows of no leader": ["follows_the_dead_leader"],
        "term: the highest term": ["higher_terms_of_candidates_only"],
        "0 at the beginning": ["begins_in_term_1"],
        "It never decreases": ["goes_back_to_an_old_term"],
    },
    "Member.__init__": {
        "number: this member's number": "describes an argument",
        "dead or alive": ["leads_with_the_votes_it_has"],
        "not necessarily 0, 1, 2": ["members_from_0_on"],
        "rng: the source of all random numbers": ["draws_from_elsewhere"],
    },
    "Member.start": {
        "Begin a new term as a candidate": ["the_same_term_again", "skips_terms"],
        "request the votes of all other members": ["asks_no_more_than_it_needs", "asks_itself_too"],
        "A candidate votes for itself": ["no_vote_for_itself", "gives_away_its_own_vote"],
        "as soon as it has the votes of more than half": ["half_is_enough", "wants_all_votes"],
        "sends heartbeats at once": ["waits_with_the_first_heartbeat"],
    },
    "Member.receive": {
        "Handle a message.": "names what the method does",
        "Ignore a message of an older term": ["counts_old_votes", "votes_in_an_old_term", "follows_an_old_heartbeat"],
        "enter that term": ["ignores_higher_terms", "never_steps_down"],
        "without a known leader": ["leads_on_in_the_new_term"],
        "without a vote given": ["keeps_its_vote"],
        "Then handle the message by its kind": ["drops_what_brings_a_newer_term"],
        "A member has one vote per term": ["votes_for_everybody"],
        "restarts when a member votes": ["voters_do_not_wait", "refusals_calm_it", "votes_calm_it"],
        "when it receives a heartbeat": ["heartbeats_do_not_calm_it"],
    },
    "Member.timeout": {
        "send the leader's next heartbeats": ["no_heartbeats", "the_timer_always_starts"],
        "or begin a new election": ["stands_once"],
    },
}
