"""The commands of the developer tools."""
