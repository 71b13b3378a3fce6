use std::fmt::Write;

use expect_test::{Expect, expect};

use super::from_properties::NEVER_EMPTY;
use super::*;

fn read(text: &str) -> StreamsConfig {
    StreamsConfig::from_properties(text).unwrap()
}

#[test]
fn a_file_of_kafka_streams_is_read_as_it_is() {
    let config = read(
        "# word count
application.id = word-count
bootstrap.servers = one:9092,two:9092
state.dir = /var/lib/\\
            streams
num.stream.threads = 4
commit.interval.ms: 100
max.task.idle.ms = -1
replication.factor = -1
processing.guarantee = at_least_once
deserialization.exception.handler = org.apache.kafka.streams.errors.LogAndContinueExceptionHandler
production.exception.handler = DefaultProductionExceptionHandler
auto.offset.reset = none
consumer.auto.offset.reset = latest
main.consumer.session.timeout.ms = 30000
consumer.session.timeout.ms = 20000
session.timeout.ms = 10000
producer.compression.type = lz4
topic.segment.bytes = 1000
topic.min.insync.replicas = 2
",
    );
    let expected = StreamsConfig::new("word-count")
        .bootstrap_servers("one:9092,two:9092")
        .state_dir("/var/lib/streams")
        .num_stream_threads(4)
        .commit_interval_ms(100)
        .max_task_idle_ms(MaxTaskIdle::Never)
        .deserialization_exception_handler(BadRecord::Continue)
        .auto_offset_reset(OffsetReset::Latest)
        .session_timeout_ms(30_000)
        .compression_type(Compression::Lz4)
        .topic("segment.bytes", "1000")
        .topic("min.insync.replicas", "2");
    assert_eq!(config, expected);
    assert_eq!(config.findings, []);
    config.validate().unwrap();
}

#[test]
fn keys_without_effect_are_named() {
    let config = read(
        "application.id=a
num.stream.treads=4
commit.interval.ms=1
ssl.provider=x
consumer.max.poll.records=1
consumer.nonsense=1
restore.consumer.session.timeout.ms=1
producer.session.timeout.ms=1
consumer.num.stream.threads=7
commit.interval.ms=2
consumer.client.tag.zone=a
",
    );
    let findings: Vec<String> =
        config.findings.iter().map(|finding| format!("{finding}\n")).collect();
    expect![[r#"
        num.stream.treads in line 2 has no effect: there is no such setting
        commit.interval.ms in line 3 has no effect: the key comes again in line 10
        ssl.provider in line 4 has no effect: Kafka Streams has this setting, Headwater does not
        consumer.max.poll.records in line 5 has no effect: Kafka Streams has this setting, Headwater does not
        consumer.nonsense in line 6 has no effect: there is no such setting
        restore.consumer.session.timeout.ms in line 7 has no effect: Kafka Streams has this setting, Headwater does not
        producer.session.timeout.ms in line 8 has no effect: Kafka Streams has this setting, Headwater does not
        consumer.num.stream.threads in line 9 has no effect: Kafka Streams has this setting, Headwater does not
        consumer.client.tag.zone in line 11 has no effect: there is no such setting
    "#]]
    .assert_eq(&findings.concat());
    assert_eq!(config.commit_interval_ms, Some(2));
    assert_eq!(config.num_stream_threads, 1);
}

#[test]
fn one_client_takes_the_settings_of_all() {
    let config = read(
        "main.consumer.request.timeout.ms=4
admin.request.timeout.ms=3
request.timeout.ms=2
producer.retry.backoff.ms=7
reconnect.backoff.ms=5
consumer.client.rack=here
producer.fetch.min.bytes=9
global.consumer.metadata.max.age.ms=1
",
    );
    assert_eq!(config.request_timeout_ms, 4);
    assert_eq!(config.retry_backoff_ms, 7);
    assert_eq!(config.reconnect_backoff_ms, 5);
    assert_eq!(config.client_rack.as_deref(), Some("here"));
    let without_effect: Vec<usize> = config.findings.iter().map(|finding| finding.line).collect();
    assert_eq!(without_effect, [7, 8]);
}

fn check_error(config: Result<StreamsConfig, ConfigError>, expected: &Expect) {
    let error = config.and_then(|config| config.validate()).unwrap_err();
    expected.assert_eq(&error.to_string());
}

#[test]
fn errors_name_key_and_value() {
    let file = |text: &str| StreamsConfig::from_properties(&format!("application.id=a\n{text}"));
    check_error(
        file("num.stream.threads=two"),
        &expect![[r#"num.stream.threads cannot be "two": it must be a whole number from 0"#]],
    );
    for key in NEVER_EMPTY {
        let error = file(&format!("{key}=\nnum.stream.threads=1")).unwrap_err().to_string();
        let expected =
            "it must be set to something, or left out of the file, which means the default";
        assert_eq!(error, format!("{key} cannot be \"\": {expected}"));
        assert!(file(&format!("consumer.{key}= ")).is_err(), "{key}");
    }
    check_error(
        file("num.stream.threads=0"),
        &expect![[r#"num.stream.threads cannot be "0": it must be at least 1"#]],
    );
    check_error(
        file("main.consumer.auto.offset.reset=first"),
        &expect![[
            r#"main.consumer.auto.offset.reset cannot be "first": it must be earliest, latest, none or by_duration:<ISO 8601 duration>"#
        ]],
    );
    check_error(
        file("processing.guarantee=exactly_once"),
        &expect![[
            r#"processing.guarantee cannot be "exactly_once": it must be at_least_once or exactly_once_v2"#
        ]],
    );
    check_error(
        file("replication.factor=0"),
        &expect![[r#"replication.factor cannot be "0": it must be at least 1, or -1"#]],
    );
    check_error(
        file("processing.exception.handler=com.example.Mine"),
        &expect![[
            r#"processing.exception.handler cannot be "com.example.Mine": it must be fail, continue or dead_letter; a handler class of your own cannot be read from a file"#
        ]],
    );
    check_error(
        file("task.assignor.class=com.example.MyAssignor"),
        &expect![[
            r#"task.assignor.class cannot be "com.example.MyAssignor": it must be minimum_movement, high_availability, sticky, legacy_sticky, fallback_prior or Kafka Streams' class for one of these; an assignor of your own is given to the builder"#
        ]],
    );
    check_error(
        Ok(StreamsConfig::new("")),
        &expect![[
            r#"application.id cannot be "": it must be 1 to 200 letters, digits, '.', '_' or '-', because topic names begin with it"#
        ]],
    );
    check_error(
        Ok(StreamsConfig::new("a/../b")),
        &expect![[
            r#"application.id cannot be "a/../b": it must be 1 to 200 letters, digits, '.', '_' or '-', because topic names begin with it"#
        ]],
    );
    check_error(
        Ok(StreamsConfig::new("a").heartbeat_interval_ms(45_000)),
        &expect![[
            r#"heartbeat.interval.ms cannot be "45000" while session.timeout.ms is "45000": it must be less"#
        ]],
    );
    check_error(
        Ok(StreamsConfig::new("a").processing_exception_handler(BadRecord::DeadLetter)),
        &expect![[
            r#"processing.exception.handler cannot be "dead_letter" while errors.dead.letter.queue.topic.name is "": it must be fail or continue, or the topic must be named"#
        ]],
    );
}

#[test]
fn assignors_are_known_by_their_classes() {
    let check = |text: &str, expected| assert_eq!(read(text).task_assignor, expected, "{text}");
    check("", BuiltInAssignor::MinimumMovement);
    check(
        "task.assignor.class=org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor",
        BuiltInAssignor::Sticky,
    );
    let internal =
        "internal.task.assignor.class=org.apache.kafka.streams.processor.internals.assignment";
    check(&format!("{internal}.HighAvailabilityTaskAssignor"), BuiltInAssignor::HighAvailability);
    check(&format!("{internal}.StickyTaskAssignor"), BuiltInAssignor::LegacySticky);
    check(&format!("{internal}.FallbackPriorTaskAssignor"), BuiltInAssignor::FallbackPrior);
    // The public setting stands over the internal one, in whichever order they come.
    let both = ["task.assignor.class=sticky", "internal.task.assignor.class=high_availability"];
    check(&both.join("\n"), BuiltInAssignor::Sticky);
    check(&[both[1], both[0]].join("\n"), BuiltInAssignor::Sticky);
}

#[test]
fn tags_are_read_and_limited() {
    let config = read("application.id=a\nclient.tag.zone = eu-1 \nclient.tag.cluster=k8s");
    assert_eq!(
        config,
        StreamsConfig::new("a").client_tag("zone", "eu-1").client_tag("cluster", "k8s")
    );
    check_error(
        Ok(config.clone().client_tag("a-key-that-is-too-long", "x")),
        &expect![[
            r#"client.tag.a-key-that-is-too-long cannot be "x": it must be under a key of 1 to 20 characters"#
        ]],
    );
    check_error(
        Ok(config.clone().client_tag("zone", "")),
        &expect![[r#"client.tag.zone cannot be "": it must be 1 to 30 characters long"#]],
    );
    let many = (0..4).fold(config, |config, number| config.client_tag(format!("z{number}"), "x"));
    check_error(
        Ok(many),
        &expect![[r#"client.tag.zone cannot be "eu-1": it must be one of at most 5 tags"#]],
    );
}

#[test]
fn every_default_can_be_written_into_a_file() {
    let mut text = String::new();
    for (key, default) in reference() {
        // None is the default of these, and a file that says so is refused.
        let is_said = !NEVER_EMPTY.contains(&key) || !default.is_empty();
        if is_said {
            writeln!(text, "{key}={default}").unwrap();
        }
    }
    assert_eq!(read(&text), StreamsConfig::new(""));
}

#[test]
fn offset_reset_by_duration() {
    let parse = |text: &str| <OffsetReset as Setting>::parse(text);
    for (text, ms) in
        [("P1D", 86_400_000), ("PT1.5S", 1500), ("P2DT3H4M5.006S", 183_845_006), ("pt10m", 600_000)]
    {
        let read = parse(&format!("by_duration:{text}"));
        assert_eq!(read, Ok(OffsetReset::ByDuration { ms }), "{text}");
        assert_eq!(parse(&read.unwrap().show()), read);
    }
    for text in ["", "P", "PT", "P1", "P1H", "PT1D", "PT1S2S", "PT-1S", "1D", "PT1.S", "P1DT"] {
        assert!(parse(&format!("by_duration:{text}")).is_err(), "{text}");
    }
}

#[test]
fn the_commit_interval_follows_the_guarantee() {
    let interval = |text: &str| read(text).commit_interval_in_force_ms();
    assert_eq!(interval(""), 30_000);
    assert_eq!(interval("processing.guarantee=exactly_once_v2"), 100);
    assert_eq!(interval("processing.guarantee=exactly_once_v2\ncommit.interval.ms=7"), 7);
    let config = StreamsConfig::from_properties(
        "application.id=a\nprocessing.guarantee=exactly_once_v2\ncommit.interval.ms=10000",
    );
    check_error(
        config,
        &expect![[
            r#"transaction.timeout.ms cannot be "10000" while commit.interval.ms is "10000": it must be more"#
        ]],
    );
}

#[test]
fn rack_aware_settings_are_read() {
    let config = read(
        "application.id=a
rack.aware.assignment.strategy=balance_subtopology
rack.aware.assignment.traffic_cost=3
rack.aware.assignment.non_overlap_cost=
application.server=[::1]:4460
",
    );
    assert_eq!(config.rack_aware_assignment_strategy, RackAwareStrategy::BalanceSubtopology);
    assert_eq!(config.rack_aware_assignment_traffic_cost, Some(3));
    assert_eq!(config.rack_aware_assignment_non_overlap_cost, None);
    assert_eq!(config.findings, []);
    config.validate().unwrap();
    check_error(
        Ok(config.application_server("http://one")),
        &expect![[
            r#"application.server cannot be "http://one": it must be host:port, with a port from 1 to 65535"#
        ]],
    );
}
