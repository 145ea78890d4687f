"""One file a family of scenes. Each has OUTCOMES (its two main outcomes) and `shoot(rng, outcome) -> Take`."""
