"""The server: a `Listener` serves an `Application` on a port or a Unix socket."""
