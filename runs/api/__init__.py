"""The HTTP API: Ninja views that parse, call one service, and render."""
