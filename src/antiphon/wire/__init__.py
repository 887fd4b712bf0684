"""The wire formats: values in, values out; nothing here opens a socket."""
