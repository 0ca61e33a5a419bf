"""Images without a Dockerfile: assembled here, loaded into any daemon, known by what they are."""
