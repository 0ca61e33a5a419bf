"""Measuring a served model: decode, prefill, times to tokens, and whether replies are the same tokens together as alone."""
