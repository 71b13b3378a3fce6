//! Generated names and names given by the user.

use headwater_topology::{GeneratedNames, NameCounter, TopologyBuilder, validate_name};

#[test]
fn nodes_and_stores_share_one_counter_of_ten_digits() {
    let mut names = NameCounter::new();
    assert_eq!(names.processor_name("KSTREAM-SOURCE-"), "KSTREAM-SOURCE-0000000000");
    assert_eq!(names.store_name("KSTREAM-AGGREGATE-"), "KSTREAM-AGGREGATE-STATE-STORE-0000000001");
    assert_eq!(names.peek(), 2);
    assert_eq!(names.processor_name("KSTREAM-AGGREGATE-"), "KSTREAM-AGGREGATE-0000000002");
}

#[test]
fn names_are_judged_as_by_the_original() {
    for good in ["a", "A-b_c.9", "...", &"x".repeat(249)] {
        assert_eq!(validate_name(good), Ok(()));
    }
    let long = "x".repeat(250);
    let too_long = format!("Name is illegal, it can't be longer than 249 characters, name: {long}");
    for (name, message) in [
        ("", "Name is illegal, it can't be empty"),
        (".", "Name cannot be \".\" or \"..\""),
        ("..", "Name cannot be \".\" or \"..\""),
        (long.as_str(), too_long.as_str()),
        (
            "a b",
            "Name \"a b\" is illegal, it contains a character other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (
            "é",
            "Name \"é\" is illegal, it contains a character other than ASCII alphanumerics, '.', '_' and '-'",
        ),
    ] {
        let error = validate_name(name).unwrap_err();
        assert_eq!(error.to_string(), format!("Invalid topology: {message}"));
    }
}

#[test]
fn generated_names_can_be_refused() {
    let mut builder = TopologyBuilder::new();
    assert_eq!(builder.check_generated_names(), Ok(()));
    let store = |changelog: &str, store: &str| GeneratedNames {
        changelog_topic: Some(changelog.to_owned()),
        store: Some(store.to_owned()),
        repartition_topic: None,
    };
    builder.add_generated_names(store("b-changelog", "b"));
    builder.add_generated_names(store("b-changelog", "b"));
    builder.add_generated_names(store("a-changelog", "a"));
    builder.add_generated_names(GeneratedNames {
        repartition_topic: Some("r-repartition".to_owned()),
        ..GeneratedNames::default()
    });
    // The text is that of KIP-1111, to be found in the conformance cases `naming-guard-*`.
    assert_eq!(
        builder.check_generated_names().unwrap_err().to_string(),
        "Invalid topology: Following changelog topic(s) has not been named: b-changelog, a-changelog\n\
         Following state store(s) has not been named: b, a\n\
         Following repartition topic(s) has not been named: r-repartition\n"
    );
}
