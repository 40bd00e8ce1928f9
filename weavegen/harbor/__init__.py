"""Harbor tasks: worlds in container images, made by others, with a verifier of their own (docs/harbor.md)."""
