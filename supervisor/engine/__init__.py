"""The engine's contract: what it takes, and what it says in logs, replies, health and metrics."""
