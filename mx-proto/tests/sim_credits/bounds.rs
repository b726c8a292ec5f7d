//! Small crowds, and what they may cost at most.
