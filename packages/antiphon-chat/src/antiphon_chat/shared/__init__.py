"""What the terminal chat and the chat page share: session, commands, models, tools, uploads and the guided tour."""
