"""Tools for people who build with models: conformance, cassettes, the cache doctor, replay, sessions and trajectories."""
