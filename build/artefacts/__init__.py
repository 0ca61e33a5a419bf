"""What the artefacts are made by: sources, toolchain, derived inputs, rank caches, images, bundles."""
