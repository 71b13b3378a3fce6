//! What is printed.

use expect_test::{Expect, expect};

use super::*;

fn topics() -> AclTopics {
    let mut topics = AclTopics::default();
    topics.sources.extend(["lines".to_owned(), "prices".to_owned()]);
    topics.whole.insert("prices".to_owned());
    topics.sinks.extend(["counts".to_owned(), "lines".to_owned()]);
    topics
}

#[expect(clippy::needless_pass_by_value, reason = "as expect-test is used")]
fn check(text: String, expected: Expect) {
    expected.assert_eq(&text);
}

#[test]
fn each_right_has_its_reason() {
    check(
        table(&needed_acls("app", &topics(), true), &topics()),
        expect![[r#"
        resource          name    pattern   operations                                    for
        topic             counts  literal   Write                                         output
        topic             lines   literal   Read, Write                                   input and output
        topic             prices  literal   Read, DescribeConfigs                         input
        topic             app-    prefixed  Read, Write, Create, Delete, DescribeConfigs  changelogs and repartition topics
        group             app     literal   Read                                          membership, committed offsets
        transactional-id  app-    prefixed  Write                                         transactions
    "#]],
    );
}

#[test]
fn commands_can_be_given_to_a_shell() {
    let mut topics = AclTopics::default();
    topics.patterns.insert("in-.*".to_owned());
    topics.chooses = true;
    let rules = needed_acls("app", &topics, false);
    check(
        commands(&rules, &topics, "User:CN=al'ice"),
        expect![[r#"
        kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --add --allow-principal 'User:CN=al'\''ice' --operation Read --operation Write --operation Create --operation Delete --operation DescribeConfigs --topic app- --resource-pattern-type prefixed
        kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --add --allow-principal 'User:CN=al'\''ice' --operation Read --group app
        # Read is needed for each topic that matches in-.*; the application sees only those that it may describe.
        # Write is needed for each topic that a sink may choose; name them with --sink.
    "#]],
    );
}

#[test]
fn control_characters_are_escaped() {
    let mut topics = AclTopics::default();
    topics.patterns.insert("a\nrm -r x\u{1b}[2J".to_owned());
    let rules = needed_acls("app", &topics, false);
    let text = commands(&rules, &topics, "User:a\n'\\b");
    assert!(text.contains(r"--allow-principal $'User:a\u000a\'\\b' "), "{text}");
    assert!(text.contains(r"topic that matches a\u000arm -r x\u001b[2J;"), "{text}");
    assert!(text.lines().all(|line| line.starts_with(['k', '#'])), "{text}");
}
