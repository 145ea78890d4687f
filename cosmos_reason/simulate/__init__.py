"""Videos with known truth: physics scenes and manipulation, their timelines, questions and sets on disk."""
