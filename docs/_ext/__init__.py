"""Extensions of Sphinx for this documentation's build."""
