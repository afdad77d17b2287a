"""Claims of papers, measured here: ``farandole reproduce`` runs these rows and prints a verdict for each.

A row is one claim: its source, its setting, how it is run here, what is measured, and the rule by which it holds. The
rule is part of the row and the verdict follows from the measured figures by it, so no verdict is ever typed in.

Read `claim` first (a row, its rule, its verdict), then any of the themes, for instance ``pipelines`` or ``scaling``.
`table` has them all in order. `results` runs rows and keeps what was measured, `trainings` launches the ranks that some
rows need, ``printed`` has tables as papers print them, and `page` writes the documentation's page.
"""
