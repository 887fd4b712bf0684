"""Several workers and hosts: processes, and what they share."""
