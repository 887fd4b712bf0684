"""Administration of a running gateway: client keys, keys of providers, forms of the status page, the audit log, spend."""
