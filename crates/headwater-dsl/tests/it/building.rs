//! Building programs, right ones and wrong ones.

use headwater_dsl::{
    Consumed, DslError, DslStoreFormat, DslStoreSuppliers, Grouped, KStream, Materialized, Part,
    Processed, Processor, ProcessorContext, Produced, Record, Repartitioned, StreamsBuilder,
    Topology,
};
use headwater_runtime::{Application as _, StreamsConfig, TopologyOptimization, UserError};
use headwater_store::serde::{Json, Long, Utf8};
use headwater_topology::StoreKind;

fn words(builder: &StreamsBuilder) -> KStream<String, String> {
    builder.stream("words", Consumed::with(Utf8, Utf8))
}

/// Builds and answers the mistake.
fn mistake(describe: impl FnOnce(&StreamsBuilder)) -> DslError {
    let builder = StreamsBuilder::new();
    describe(&builder);
    builder.build().expect_err("the program is wrong")
}

#[test]
fn a_topology_is_shared_by_threads() {
    fn assert_shared<T: Send + Sync + Clone + 'static>() {}
    assert_shared::<Topology>();
}

/// A value that is neither `Clone` nor `Send`, nor has a serde of its own.
struct Unshared(std::rc::Rc<str>);

#[test]
fn types_need_be_neither_cloned_nor_sent() {
    let builder = StreamsBuilder::new();
    let unshared = words(&builder).map_values(|word| Unshared(word.as_str().into()));
    let lengths = unshared.map_values(|word| i64::try_from(word.0.len()).unwrap());
    lengths.to("lengths", Produced::with(Utf8, Long));
    unshared.foreach(|_, _| {});
    let topology = builder.build().unwrap();
    let children = &topology.graph().node_named("KSTREAM-MAPVALUES-0000000001").unwrap().children;
    assert_eq!(children.len(), 2);
}

#[test]
fn a_type_without_serde_is_named() {
    let error = mistake(|builder| {
        words(builder)
            .map_values(|word| Unshared(word.as_str().into()))
            .to("out", Produced::new().named("out"));
    });
    let DslError::MissingSerde { node, part, type_name } = error else { panic!("{error}") };
    assert_eq!((node.as_str(), part), ("out", Part::Value));
    assert!(type_name.ends_with("Unshared"), "{type_name}");
}

#[test]
fn defaults_are_by_type() {
    let builder = StreamsBuilder::new();
    builder.default_value_serde(Json::<Vec<String>>::new());
    words(&builder).map_values(|word| vec![word.clone()]).to("out", Produced::new());
    builder.build().unwrap();

    let error = mistake(|builder| {
        builder.default_key_serde(Json::<Vec<String>>::new());
        words(builder).map_values(|word| vec![word.clone()]).to("out", Produced::new());
    });
    assert!(matches!(error, DslError::MissingSerde { part: Part::Value, .. }), "{error}");
}

#[test]
fn the_first_mistake_counts_and_shows_before_the_end() {
    let builder = StreamsBuilder::new();
    let stream = words(&builder).filter(|_, _| true).named("a/b");
    let first = builder.check().unwrap_err();
    assert!(first.to_string().contains("\"a/b\" is illegal"), "{first}");
    drop(stream.filter(|_, _| true).named(""));
    assert_eq!(builder.build().unwrap_err(), first);
}

#[test]
fn streams_of_two_builders_do_not_meet() {
    let other = StreamsBuilder::new();
    let error = mistake(|builder| {
        drop(words(builder).merge(&words(&other)));
    });
    assert_eq!(error, DslError::OtherBuilder { node: "KSTREAM-SOURCE-0000000000".to_owned() });
}

#[test]
fn sources_and_repartitions_have_their_names_in_their_parameters() {
    let not_nameable =
        |node: &str| DslError::NotNameable { node: node.to_owned(), name: "x".to_owned() };
    let error = mistake(|builder| drop(words(builder).named("x")));
    assert_eq!(error, not_nameable("KSTREAM-SOURCE-0000000000"));
    let error = mistake(|builder| {
        drop(words(builder).repartition(Repartitioned::new().named("r")).named("x"));
    });
    assert_eq!(error, not_nameable("r-repartition-source"));
}

#[test]
fn a_topic_is_not_read_as_two_types() {
    let error = mistake(|builder| {
        words(builder).foreach(|_, _| {});
        builder.stream("words", Consumed::with(Utf8, Long)).foreach(|_, _| {});
    });
    let DslError::SourceOfTwoTypes { topics, .. } = error else { panic!("{error}") };
    assert_eq!(topics, ["words"]);
}

#[test]
fn a_builder_can_go_on_after_a_build() {
    let builder = StreamsBuilder::new();
    words(&builder).to("copy", Produced::new());
    let before = builder.build().unwrap();
    words(&builder).to("second-copy", Produced::new());
    let after = builder.build().unwrap();
    assert_eq!(before.graph().nodes().len(), 2);
    assert_eq!(after.graph().nodes().len(), 3, "streams of one topic share their source");
}

#[test]
fn what_a_builder_says_of_its_stores_goes_before_the_configuration() {
    #[track_caller]
    fn check(say: impl FnOnce(&StreamsBuilder), expected: (&StoreKind, bool)) {
        let builder = StreamsBuilder::new();
        builder.table("cities", Consumed::with(Utf8, Utf8), Materialized::named("cities"));
        say(&builder);
        let config = StreamsConfig::new("app")
            .dsl_store_format(DslStoreFormat::Headers)
            .dsl_store_suppliers(DslStoreSuppliers::InMemory);
        let topology = builder.build_with(&config).unwrap();
        let spec = &topology.graph().store("cities").unwrap().spec;
        assert_eq!((&spec.kind, spec.persistent), expected);
    }
    let on_disk = |builder: &StreamsBuilder| {
        builder.dsl_store_suppliers(DslStoreSuppliers::Persistent);
    };
    check(|_| {}, (&StoreKind::TimestampedKeyValue, false));
    check(on_disk, (&StoreKind::TimestampedKeyValueWithHeaders, true));
    let plain_on_disk = |builder: &StreamsBuilder| {
        on_disk(builder);
        builder.dsl_store_format(DslStoreFormat::Default);
    };
    check(plain_on_disk, (&StoreKind::TimestampedKeyValue, true));
}

#[test]
fn settings_that_a_topology_was_not_built_with_are_told() {
    #[track_caller]
    fn check(build: impl FnOnce(&StreamsBuilder) -> Result<Topology, DslError>, expected: &[&str]) {
        let builder = StreamsBuilder::new();
        builder.table("cities", Consumed::with(Utf8, Utf8), Materialized::named("cities"));
        let topology = build(&builder).expect("the topology is whole");
        assert_eq!(topology.settings_not_built_with(&config()), expected);
    }
    fn config() -> StreamsConfig {
        StreamsConfig::new("app")
            .topology_optimization(TopologyOptimization::ALL)
            .dsl_store_format(DslStoreFormat::Headers)
            .dsl_store_suppliers(DslStoreSuppliers::InMemory)
    }
    check(|builder| builder.build_with(&config()), &[]);
    let all = ["topology.optimization", "dsl.store.format", "dsl.store.suppliers.class"];
    check(StreamsBuilder::build, &all);
    let says_itself = |builder: &StreamsBuilder| {
        builder.dsl_store_suppliers(DslStoreSuppliers::Persistent);
        builder.build()
    };
    check(says_itself, &["topology.optimization", "dsl.store.format"]);
}

#[test]
fn every_sub_topology_of_an_application_has_a_program() {
    let builder = StreamsBuilder::new();
    words(&builder)
        .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
        .count(Materialized::named("counts"))
        .to_stream()
        .to("counts", Produced::new());
    let application = builder.build().unwrap().for_application("app").unwrap();
    let programs: Vec<_> = application.programs.values().collect();
    assert_eq!(programs.len(), 2);
    let topics = |at: usize| -> Vec<String> {
        programs[at].sources.iter().flat_map(|it| &it.topics).map(ToString::to_string).collect()
    };
    assert_eq!(topics(0), ["words"]);
    assert_eq!(topics(1), ["app-counts-repartition"]);
    let store = &programs[1].stores[0];
    assert_eq!(store.changelog.as_ref().unwrap().as_str(), "app-counts-changelog");
    assert!(store.flush.is_some(), "who gets the updates of a cached table is known");
}

/// Forwards what it gets as it is.
struct PassOn;

impl Processor<String, String, String, String> for PassOn {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, String>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        Ok(context.forward(record)?)
    }
}

#[test]
fn a_named_processor_takes_no_number() {
    let builder = StreamsBuilder::new();
    let named = words(&builder).process(|_| Ok(PassOn), Processed::new().named("first"));
    named.process(|_| Ok(PassOn), Processed::new()).to("out", Produced::new());
    let topology = builder.build().unwrap();
    let names: Vec<&str> = topology.graph().nodes().iter().map(|node| node.name.as_str()).collect();
    let expected = [
        "KSTREAM-SOURCE-0000000000",
        "first",
        "KSTREAM-PROCESSOR-0000000001",
        "KSTREAM-SINK-0000000002",
    ];
    assert_eq!(names, expected);
}
