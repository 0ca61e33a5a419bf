"""The supervisor under systemd: readiness, status text and watchdog pings; nothing of it matters elsewhere."""
