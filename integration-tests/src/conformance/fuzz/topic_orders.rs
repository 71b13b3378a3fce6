//! Counts of dropped records that hang on the order in which topics are read.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use headwater_testing::sim::Chance;
use serde_json::Value as Json;

use crate::conformance::check::check_in_order;
use crate::conformance::{Case, Outcome};

/// How many orders are tried besides those by name.
const SHUFFLED: usize = 40;

/// Whether a case that the original has answered comes out as it expects, in everything, when its topics are read in
/// another order than that of their names.
///
/// Records of one timestamp can wait in several internal topics, and which of them a task takes first is left open: the
/// original takes that of the queue which lies on top of its heap, here it is that of the first topic by name. An answer
/// to a foreign-key join is dropped when something has overtaken it, so it is the order that decides how many are.
pub(super) fn holds_in_another_order(case: &Json) -> Result<bool> {
    let parsed = Case::parse(&case.to_string()).context("an answer of the original")?;
    let topics = read_and_written(case);
    Ok(orders(&topics).iter().any(|order| check_in_order(&parsed, order) == Outcome::Passed))
}

/// The topics that the application both writes and reads: only in these do records wait while others do.
fn read_and_written(case: &Json) -> Vec<String> {
    let subtopologies = || case["expect"]["subtopologies"].as_object().into_iter().flatten();
    let topics = |part: &str| -> BTreeSet<&str> {
        let lists = subtopologies().filter_map(|(_, it)| it[part].as_array());
        lists.flatten().filter_map(Json::as_str).collect()
    };
    let read = topics("source_topics");
    read.intersection(&topics("sink_topics")).map(|it| (*it).to_owned()).collect()
}

/// Orders of topics that come by name: from each of them on, forwards and backwards, and some that are shuffled.
fn orders(topics: &[String]) -> BTreeSet<Vec<&str>> {
    let by_name: Vec<&str> = topics.iter().map(String::as_str).collect();
    let (mut orders, mut order) = (BTreeSet::new(), by_name.clone());
    for _ in topics {
        order.rotate_left(1);
        orders.insert(order.clone());
        orders.insert(order.iter().rev().copied().collect());
    }
    let mut chance = Chance::new(1);
    for _ in 0..SHUFFLED {
        for at in (1..order.len()).rev() {
            order.swap(at, chance.index(0..at + 1));
        }
        orders.insert(order.clone());
    }
    orders.remove(&by_name);
    orders
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{orders, read_and_written};

    #[test]
    fn only_topics_that_are_both_written_and_read_change_places() {
        let case = json!({"expect": {"subtopologies": {
            "0": {"source_topics": ["in"], "sink_topics": ["app-b-repartition", "out"]},
            "1": {"source_topics": ["app-a-topic", "app-b-repartition"], "sink_topics": ["app-a-topic"]},
        }}});
        assert_eq!(read_and_written(&case), ["app-a-topic", "app-b-repartition"]);
    }

    #[test]
    fn few_topics_come_in_all_their_orders_and_many_in_some() {
        let count = |topics: &[&str]| {
            let topics: Vec<String> = topics.iter().map(|it| (*it).to_owned()).collect();
            orders(&topics).len()
        };
        assert_eq!([count(&[]), count(&["a"]), count(&["a", "b"])], [0, 0, 1]);
        assert_eq!(count(&["a", "b", "c"]), 5);
        assert!((30..24 + 40).contains(&count(&["a", "b", "c", "d", "e", "f", "g", "h"])));
    }
}
