"""Numbers as people read them: with intervals, and infinity as a word."""
