//! Where a stream is printed.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::plain_impls;

/// Where and how the records of a stream are printed, for a look at them (feature row D2).
///
/// A line is `[label]: key, value`; null is `null`. The label is the name of the stream's node unless
/// another is given. All tasks share the place, one line at a time.
///
/// ```
/// use headwater_dsl::{Consumed, Printed, StreamsBuilder};
/// use headwater_store::serde::{Long, Utf8};
///
/// let builder = StreamsBuilder::new();
/// let prices = builder.stream("prices", Consumed::with(Utf8, Long));
/// prices.print(Printed::to_stdout().with_label("prices"));
/// prices.print(Printed::to_stderr().with_key_value_mapper(|key, value| format!("{key:?}={value:?}")));
/// # builder.build()?;
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
pub struct Printed<K, V> {
    pub(crate) name: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) mapper: Mapper<K, V>,
    /// The file, and why it could not be opened.
    pub(crate) place: Result<Place, (String, String)>,
}

plain_impls!(Printed { name, label, mapper, place });

/// A place that all tasks write to.
pub(crate) type Place = Arc<Mutex<dyn Write + Send>>;

/// Makes the text of a record.
pub(crate) type Mapper<K, V> = Arc<dyn Fn(Option<&K>, Option<&V>) -> String + Send + Sync>;

impl<K: Display, V: Display> Printed<K, V> {
    /// To the standard output.
    pub fn to_stdout() -> Self {
        Self::to_writer(io::stdout())
    }

    /// To the standard error output.
    pub fn to_stderr() -> Self {
        Self::to_writer(io::stderr())
    }

    /// To a file, which is emptied first. If it cannot be opened, `build` says so.
    pub fn to_file(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        match File::create(path) {
            Ok(file) => Self::to_writer(file),
            Err(error) => Self {
                place: Err((path.display().to_string(), error.to_string())),
                ..Self::to_writer(io::sink())
            },
        }
    }

    /// To whatever takes bytes. A line is written at once, and nothing is flushed.
    pub fn to_writer(writer: impl Write + Send + 'static) -> Self {
        Self {
            name: None,
            label: None,
            mapper: Arc::new(|key, value| format!("{}, {}", Shown(key), Shown(value))),
            place: Ok(Arc::new(Mutex::new(writer))),
        }
    }
}

impl<K, V> Printed<K, V> {
    /// Puts this label in front of every line.
    pub fn with_label(self, label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..self }
    }

    /// Names the node.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Writes what the function makes of a record behind the label.
    pub fn with_key_value_mapper(
        self,
        mapper: impl Fn(Option<&K>, Option<&V>) -> String + Send + Sync + 'static,
    ) -> Self {
        Self { mapper: Arc::new(mapper), ..self }
    }
}

/// Writes one line.
pub(crate) fn print_line(place: &Place, label: &str, text: &str) -> io::Result<()> {
    let line = format!("[{label}]: {text}\n");
    // A panic while printing leaves nothing half done that matters to the next line.
    place.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
}

struct Shown<'a, T>(Option<&'a T>);

impl<T: Display> Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("null"),
        }
    }
}
