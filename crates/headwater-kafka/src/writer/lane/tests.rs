//! What answers mean, step by step, and a broker in a few lines that loses, delays and forgets.

mod model;
mod steps;
