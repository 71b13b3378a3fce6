//! Headers of the record being processed.

use std::ops::Range;

/// The headers of a record: names with optional values, in order, duplicates kept.
///
/// The names and values live in two buffers that are used again for the next record, so reading
/// and changing headers does not allocate once these have grown.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Headers {
    names: String,
    values: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: Range<usize>,
    value: Option<Range<usize>>,
}

impl Headers {
    /// No headers.
    pub const fn new() -> Self {
        Self { names: String::new(), values: Vec::new(), entries: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a header at the end.
    pub fn add(&mut self, name: &str, value: Option<&[u8]>) {
        let name_start = self.names.len();
        self.names.push_str(name);
        let value = value.map(|bytes| {
            let start = self.values.len();
            self.values.extend_from_slice(bytes);
            start..self.values.len()
        });
        self.entries.push(Entry { name: name_start..self.names.len(), value });
    }

    /// Removes all headers of that name; says whether there were any.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.entries.len();
        let names = &self.names;
        self.entries.retain(|entry| names.get(entry.name.clone()) != Some(name));
        self.entries.len() != before
    }

    /// The last value added under that name; `Some(None)` when it is null.
    pub fn last(&self, name: &str) -> Option<Option<&[u8]>> {
        self.iter().rfind(|header| header.0 == name).map(|header| header.1)
    }

    /// All headers in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, Option<&[u8]>)> + Clone {
        self.entries.iter().map(|entry| {
            let name = self.names.get(entry.name.clone()).unwrap_or_default();
            let value = entry.value.clone().map(|range| self.values.get(range).unwrap_or_default());
            (name, value)
        })
    }

    /// Removes all; the buffers stay.
    pub fn clear(&mut self) {
        self.names.clear();
        self.values.clear();
        self.entries.clear();
    }
}

impl Clone for Headers {
    fn clone(&self) -> Self {
        let Self { names, values, entries } = self;
        Self { names: names.clone(), values: values.clone(), entries: entries.clone() }
    }

    /// Keeps the buffers that are there.
    fn clone_from(&mut self, source: &Self) {
        let Self { names, values, entries } = source;
        self.names.clone_from(names);
        self.values.clone_from(values);
        self.entries.clone_from(entries);
    }
}

impl<'a> FromIterator<(&'a str, Option<&'a [u8]>)> for Headers {
    fn from_iter<I: IntoIterator<Item = (&'a str, Option<&'a [u8]>)>>(headers: I) -> Self {
        let mut all = Self::new();
        for (name, value) in headers {
            all.add(name, value);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::Headers;

    #[test]
    fn keeps_order_and_duplicates() {
        let mut headers = Headers::new();
        headers.add("a", Some(b"1"));
        headers.add("b", None);
        headers.add("a", Some(b""));
        let all: Vec<_> = headers.iter().collect();
        assert_eq!(all, [("a", Some(&b"1"[..])), ("b", None), ("a", Some(&b""[..]))]);
        assert_eq!(headers.last("a"), Some(Some(&b""[..])));
        assert_eq!(headers.last("b"), Some(None));
        assert_eq!(headers.last("c"), None);
    }

    #[test]
    fn removes_all_of_a_name() {
        let mut headers: Headers =
            [("a", None), ("b", Some(&b"x"[..])), ("a", None)].into_iter().collect();
        assert!(headers.remove("a"));
        assert!(!headers.remove("a"));
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("b", Some(&b"x"[..]))]);
    }

    #[test]
    fn is_empty_after_clear() {
        let mut headers: Headers = [("a", Some(&b"1"[..]))].into_iter().collect();
        headers.clear();
        assert!(headers.is_empty());
        headers.add("c", Some(b"3"));
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("c", Some(&b"3"[..]))]);
    }
}
