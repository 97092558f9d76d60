"""Source models: one training algorithm a file. None of them knows of adaptation."""
