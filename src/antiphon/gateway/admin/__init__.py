"""Administration of a running gateway: stored client keys, the audit log, spend."""
