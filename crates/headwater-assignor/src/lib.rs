//! Task assignment: group state in, plan out.
