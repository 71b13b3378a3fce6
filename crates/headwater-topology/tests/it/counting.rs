//! Partition counts that Kafka Streams 4.4 computes for repartition topics.
//!
//! `counts.jsonl` holds random graphs with repartition topics and co-partitioned sources, the number of
//! partitions of their source topics, and what `RepartitionTopics` and `CopartitionedTopicsEnforcer`
//! made of them. Left out are the graphs (20 of 3000) in which that depends on the order of a Java hash
//! set: where some sub-topology reads another topic besides a repartition topic that is counted later.

use std::collections::BTreeMap;
use std::error::Error;

use headwater_topology::{
    InternalTopicProperties, SinkTopic, SourceOptions, TaskPlan, TaskPlanError, Topics,
    TopologyBuilder, TopologyError,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    operators: Vec<Operator>,
    existing: BTreeMap<String, u32>,
    expect: Expectation,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Operator {
    Source { name: String, topics: Vec<String> },
    Processor { name: String, parents: Vec<String> },
    Sink { name: String, topic: String, parents: Vec<String> },
    Internal { topic: String, partitions: Option<u32> },
    Copartition { sources: Vec<String> },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Expectation {
    Repartition(BTreeMap<String, u32>),
    Error(String),
}

#[test]
fn repartition_topics_get_as_many_partitions_as_in_the_original() {
    let mut checked = 0;
    for line in include_str!("../data/counts.jsonl").lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let plan = plan(&case);
        match &case.expect {
            Expectation::Repartition(counts) => {
                assert_eq!(&plan.unwrap().repartition_topics, counts, "{}", case.name);
            }
            Expectation::Error(message) => {
                let error = plan.expect_err(message);
                let planned = error.downcast_ref::<TaskPlanError>();
                let built = error.downcast_ref::<TopologyError>();
                assert!(
                    matches!(planned, Some(TaskPlanError::NotCopartitioned { .. }))
                        || matches!(built, Some(TopologyError::UnequalFixedPartitions { .. })),
                    "{}: {error} instead of {message}",
                    case.name
                );
            }
        }
        checked += 1;
    }
    assert_eq!(checked, 200);
}

fn plan(case: &Case) -> Result<TaskPlan, Box<dyn Error>> {
    let mut builder = TopologyBuilder::new();
    for operator in &case.operators {
        match operator {
            Operator::Source { name, topics } => {
                let topics = Topics::Named(topics.clone());
                builder.add_source(name, topics, SourceOptions::default())?;
            }
            Operator::Processor { name, parents } => {
                builder.add_processor(name, parents)?;
            }
            Operator::Sink { name, topic, parents } => {
                builder.add_sink(name, SinkTopic::named(topic), parents)?;
            }
            Operator::Internal { topic, partitions } => {
                let properties = InternalTopicProperties { partitions: *partitions };
                builder.add_internal_topic(topic, properties);
            }
            Operator::Copartition { sources } => builder.copartition_sources(sources),
        }
    }
    Ok(builder.build("app")?.plan_tasks(&case.existing)?)
}
