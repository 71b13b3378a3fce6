//! Differences that come from headers which a cache of the original shares with the records.

use serde_json::Value as Json;

use super::other_stores::CACHE_BYTES;
use crate::conformance::Outcome;

/// Whether a case differs in nothing but headers that hang on when a cache is flushed.
///
/// The original's cache keeps the very headers of the record that wrote into it. What a processor adds to them in place
/// afterwards leaves the cache with the update, unless that has left it before, for want of room or with a commit. Here
/// an update has the headers that the record had when it was made.
pub(super) fn hang_on_flush(case: &Json, outcome: &Outcome) -> bool {
    let Outcome::Failed(differences) = outcome else { return false };
    let changes_in_place = case["topology"].to_string().contains("\"add_header_in_place\"");
    let has_cache = !case["config"][CACHE_BYTES].is_null();
    changes_in_place && has_cache && differences.iter().all(|it| only_headers_differ(&it.text))
}

/// Whether records, each on a line, are the same but for their headers.
fn only_headers_differ(text: &str) -> bool {
    let without_headers = |lines: &str| -> Option<Vec<Json>> {
        let records = lines.lines().map(|line| {
            let mut record: Json = serde_json::from_str(line).ok()?;
            record.as_object_mut()?.remove("h");
            Some(record)
        });
        records.collect()
    };
    let found = text.split_once("found\n").and_then(|(_, both)| both.split_once("\nexpected\n"));
    found.is_some_and(|(found, expected)| {
        let found = without_headers(found);
        found.is_some() && found == without_headers(expected)
    })
}

#[cfg(test)]
mod tests {
    use super::only_headers_differ;

    #[track_caller]
    fn check(found: &str, expected: &str, wanted: bool) {
        let text = format!("out: found\n{found}\nexpected\n{expected}");
        assert_eq!(only_headers_differ(&text), wanted, "{text}");
    }

    #[test]
    fn records_are_compared_without_headers() {
        check(r#"  {"e":1,"v":"31"}"#, r#"  {"e":1,"h":[["p","72"]],"v":"31"}"#, true);
        check(r#"  {"e":1,"v":"31"}"#, r#"  {"e":1,"h":[["p","72"]],"v":"32"}"#, false);
        check("  {\"e\":1}\n  {\"e\":2}", "  {\"e\":1}", false);
        check("[[1,2]]", "[[1,2]]", false);
    }
}
