"""Changes of config.toml, lockfiles and ``current`` while the supervisor runs: noticed, validated whole, applied or shown."""
