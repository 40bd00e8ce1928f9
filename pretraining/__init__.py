"""Makes the weights of weavegen-nano from nothing: `make weights` runs make_weights.sh. Not in the wheel."""
