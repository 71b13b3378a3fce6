//! The sled backend of Headwater's state stores.
