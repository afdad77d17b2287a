"""The few models that the scenarios train, each small enough for a laptop's cores."""
