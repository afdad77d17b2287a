"""What this documentation's build adds to Sphinx."""
