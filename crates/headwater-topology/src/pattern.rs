//! Patterns of topic names.

use regex_lite::Regex;

use crate::error::TopologyError;

/// A regular expression that whole topic names are matched against.
#[derive(Clone, Debug)]
pub(crate) struct TopicPattern {
    pub(crate) text: String,
    anchored: Regex,
}

impl TopicPattern {
    pub(crate) fn new(source_name: &str, text: &str) -> Result<Self, TopologyError> {
        // Checked on its own first: an unbalanced parenthesis must not pair with ours.
        let compiled = Regex::new(text)
            .and_then(|_| Regex::new(&format!("^(?:{text})$")))
            .map_err(|error| TopologyError::BadPattern {
                source_name: source_name.to_owned(),
                pattern: text.to_owned(),
                problem: error.to_string(),
            })?;
        Ok(Self { text: text.to_owned(), anchored: compiled })
    }

    pub(crate) fn matches(&self, topic: &str) -> bool {
        self.anchored.is_match(topic)
    }
}
