"""Memory: the plan before a launch and the policy while it serves. Pure."""
