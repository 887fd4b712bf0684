"""The Effect Bench: how often does a payment happen if the process dies in the middle of it, and another one resumes."""
