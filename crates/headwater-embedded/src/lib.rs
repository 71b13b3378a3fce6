//! A broker inside the process, in memory or in a directory.
