"""Makes the weights of weavegen-nano from scratch: `make weights` runs make_weights.sh. Not in the wheel."""
