//! The headers of a record in a dead-letter topic (KIP-1034, feature row E6).

use std::error::Error;
use std::fmt::Write as _;

use crate::process::{Headers, RecordPosition};

const PREFIX: &str = "__streams.errors.";

/// The record's own headers first, then six about the failure, in Kafka Streams' order.
///
/// What Java puts into `exception` (a class) and `stacktrace` has no equal here: `exception` is the
/// text of the innermost cause, and `stacktrace` lists the causes from the outside in.
pub(crate) fn dead_letter_headers(
    record: &Headers,
    error: &(dyn Error + 'static),
    position: Option<&RecordPosition>,
) -> Headers {
    let mut headers = record.clone();
    let mut add = |name: &str, value: &str| {
        headers.add(&format!("{PREFIX}{name}"), Some(value.as_bytes()));
    };
    let mut causes = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(inner) = cause {
        causes.push(inner.to_string());
        cause = inner.source();
    }
    add("exception", causes.last().map_or("", String::as_str));
    add("message", causes.first().map_or("", String::as_str));
    add("stacktrace", &chain(&causes));
    if let Some(position) = position {
        add("topic", position.topic_partition.topic.as_str());
        add("partition", &position.topic_partition.partition.to_string());
        add("offset", &position.offset.to_string());
    }
    headers
}

fn chain(causes: &[String]) -> String {
    let mut text = String::new();
    for (depth, cause) in causes.iter().enumerate() {
        let separator = if depth == 0 { "" } else { "\ncaused by: " };
        write!(text, "{separator}{cause}").expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use headwater_broker::TopicPartition;

    use super::dead_letter_headers;
    use crate::process::{Headers, RecordPosition};

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn own_headers_come_first() {
        let own: Headers = [("h", Some(&b"1"[..]))].into_iter().collect();
        let error = Outer("x".parse::<i32>().unwrap_err());
        let position = RecordPosition { topic_partition: TopicPartition::new("in", 3), offset: 17 };
        let headers = dead_letter_headers(&own, &error, Some(&position));
        let text: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value.unwrap())))
            .collect();
        assert_eq!(
            text,
            [
                "h=1",
                "__streams.errors.exception=invalid digit found in string",
                "__streams.errors.message=outer",
                "__streams.errors.stacktrace=outer\ncaused by: invalid digit found in string",
                "__streams.errors.topic=in",
                "__streams.errors.partition=3",
                "__streams.errors.offset=17",
            ]
        );
    }
}
