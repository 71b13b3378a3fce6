//! Tasks, stream threads and the instance.
