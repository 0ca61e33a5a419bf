"""What is current, written down for others to run: a systemd unit, compose files, a LeaderWorkerSet. Text out, nothing else."""
