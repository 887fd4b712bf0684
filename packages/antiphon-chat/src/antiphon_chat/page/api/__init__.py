"""The handlers of the chat's API, a file per subject."""
