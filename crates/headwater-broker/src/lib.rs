//! What the engine asks of a broker, as traits and plain types.
