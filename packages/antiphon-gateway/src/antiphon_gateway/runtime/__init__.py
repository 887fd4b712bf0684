"""What requests run with: a configuration in use, the services of a process, and the context of one request."""
