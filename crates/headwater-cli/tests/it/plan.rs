//! `headwater plan`.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::headwater;

fn plan(arguments: &[&str], scenario: &Value) -> String {
    let output = headwater(&[&["plan"], arguments].concat(), &scenario.to_string());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{scenario}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).expect("plans are text")
}

fn plans(scenario: &Value) -> Vec<Value> {
    let text = plan(&[], scenario);
    text.lines().map(|line| serde_json::from_str(line).expect("plans are JSON")).collect()
}

/// Three stateful tasks that have run on `p1`, and one without state, on two instances.
fn scenario() -> Value {
    json!({
        "assignor": "high_availability",
        "tasks": [
            { "id": "0_0", "stateful": true },
            { "id": "0_1", "stateful": true },
            { "id": "0_2", "stateful": true },
            { "id": "1_0", "stateful": false },
        ],
        "clients": [
            {
                "id": "p10", "capacity": 1,
                "lags": { "0_0": 150_000, "0_1": 150_000, "0_2": 150_000 },
            },
            {
                "id": "p2", "capacity": 1, "prev_active": ["0_0", "0_1", "0_2"],
                "lags": { "0_0": -2, "0_1": -2, "0_2": -2 },
            },
        ],
        "configs": { "rack_aware_strategies": ["none"], "max_warmup_replicas": 1 },
    })
}

#[test]
fn a_plan_names_clients_in_order_and_says_why() {
    expect![[r#"
        {
          "assignor": "high_availability",
          "strategy": "none",
          "clients": {
            "p2": {
              "active": [
                "0_0",
                "0_1",
                "0_2"
              ],
              "standby": [],
              "warmup": []
            },
            "p10": {
              "active": [
                "1_0"
              ],
              "standby": [
                "0_1"
              ],
              "warmup": [
                "0_1"
              ]
            }
          },
          "followup": true,
          "moves": [
            {
              "task": "0_1",
              "kind": "warmup",
              "from": null,
              "to": "p10",
              "reason": "warm_up",
              "cost": 150000
            },
            {
              "task": "1_0",
              "kind": "active",
              "from": null,
              "to": "p10",
              "reason": "no_owner",
              "cost": 0
            }
          ],
          "target": {
            "p2": {
              "active": [
                "0_0",
                "0_2"
              ],
              "standby": []
            },
            "p10": {
              "active": [
                "0_1"
              ],
              "standby": []
            }
          }
        }
    "#]]
    .assert_eq(&plan(&["--pretty"], &scenario()));
}

#[test]
fn each_strategy_gets_a_line() {
    let mut scenario = scenario();
    scenario["configs"]["rack_aware_strategies"] =
        json!(["none", "min_traffic", "balance_subtopology"]);
    let strategies: Vec<Value> =
        plans(&scenario).into_iter().map(|mut plan| plan["strategy"].take()).collect();
    assert_eq!(strategies, ["none", "min_traffic", "balance_subtopology"]);
}

#[test]
fn threads_and_withheld_tasks_are_shown() {
    let mut scenario = scenario();
    scenario["assignor"] = json!("sticky");
    scenario["clients"][0]["members"] = json!([{ "id": "p10-t1" }]);
    scenario["clients"][1]["members"] =
        json!([{ "id": "p2-t1", "prev_active": ["0_0", "0_1", "0_2"] }]);
    let plan = plans(&scenario).remove(0);
    assert_eq!(plan["validation"], "NONE");
    assert_eq!(plan["withheld_any"], true);
    let thread = &plan["clients"]["p10"]["threads"]["p10-t1"];
    assert_eq!(thread["planned_active"], json!(["0_2", "1_0"]));
    assert_eq!(thread["active"], json!(["1_0"]));
    assert_eq!(thread["withheld"], json!(["0_2"]));
    assert_eq!(plan["members"]["p10-t1"], *thread);
}

#[test]
fn a_trajectory_is_played() {
    let mut scenario = scenario();
    for task in 0..3 {
        scenario["tasks"][task]["end_offset"] = json!(150_000);
    }
    scenario["clients"] = json!([{ "id": "p2" }]);
    scenario["model"] = json!({ "restore_per_round": null, "max_rounds": 10 });
    scenario["events"] = json!([{ "join": { "id": "p10" } }, { "leave": "p2" }]);
    let played = plans(&scenario).remove(0);
    assert_eq!(
        played["totals"],
        json!({
            "rounds": 4, "stateful_active_moves": 3, "restored_offsets": 900_000,
            "actives_not_ready": 5, "all_stable": true,
        })
    );
    assert_eq!(played["phases"][1]["event"], scenario["events"][0]);
    assert_eq!(played["phases"][1]["rounds"][0]["clients"]["p10"]["warmup"], json!(["0_1"]));
}

/// A change to the scenario, and the complaint.
fn check_error(change: impl FnOnce(&mut Value), kind: &str, message: Expect) {
    let mut scenario = scenario();
    change(&mut scenario);
    check_error_of(&scenario.to_string(), &[], kind, message);
}

fn check_error_of(input: &str, arguments: &[&str], kind: &str, message: Expect) {
    let output = headwater(&[&["plan"], arguments].concat(), input);
    assert_eq!(output.status.code(), Some(2), "{input}");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("errors are JSON");
    assert_eq!(answer["error"]["type"], kind, "{answer}");
    message.assert_eq(answer["error"]["message"].as_str().expect("a message"));
}

#[test]
fn wrong_values_are_named_with_their_place() {
    let bad = |change: fn(&mut Value), message: Expect| check_error(change, "bad_input", message);
    bad(
        |s| s["clients"][1]["capacity"] = json!(-1),
        expect![
            "clients[1].capacity: -1 is here, but this must be a whole number from 0 to 2^32 - 1"
        ],
    );
    bad(
        |s| s["clients"][0]["capacity"] = json!(1.5),
        expect![
            "clients[0].capacity: 1.5 is here, but this must be a whole number from 0 to 2^32 - 1"
        ],
    );
    bad(
        |s| s["clients"][0]["lags"]["0_1"] = json!(-1),
        expect![
            "clients[0].lags.0_1: -1 is here, but this must be -2 (latest), -3 (unknown) or a whole number from 0 to 2^63 - 1"
        ],
    );
    bad(
        |s| s["clients"][0]["lags"]["0_1"] = json!(9_223_372_036_854_775_808_u64),
        expect![
            "clients[0].lags.0_1: 9223372036854775808 is here, but this must be -2 (latest), -3 (unknown) or a whole number from 0 to 2^63 - 1"
        ],
    );
    bad(
        |s| s["clients"][0]["lags"]["x"] = json!(0),
        expect![[r#"clients[0].lags.x: "x" is the key, but this must be a task id such as "0_3""#]],
    );
    bad(
        |s| s["clients"][0]["prev_active"] = json!("0_0"),
        expect![[r#"clients[0].prev_active: "0_0" is here, but this must be a list"#]],
    );
    bad(
        |s| s["clients"] = json!([]),
        expect!["clients: a list is here, but this must be a list of at least one client"],
    );
    bad(|s| s["clients"] = json!(null), expect![[r#"input: "clients" is missing"#]]);
    bad(
        |s| s["clients"][1]["id"] = json!("p10"),
        expect![[r#"clients[1]: "p10" is there already; ids must differ"#]],
    );
    bad(
        |s| s["tasks"][1]["id"] = json!("0_0"),
        expect![[r#"tasks[1]: "0_0" is there already; ids must differ"#]],
    );
    bad(
        |s| s["tasks"][1]["id"] = json!("0-1"),
        expect![[r#"tasks[1].id: "0-1" is here, but this must be a task id such as "0_3""#]],
    );
    bad(
        |s| s["tasks"][3]["stateful"] = json!("no"),
        expect![[r#"tasks[3].stateful: "no" is here, but this must be true or false"#]],
    );
    bad(
        |s| s["configs"]["acceptable_recovery_lag"] = json!(-2),
        expect![
            "configs.acceptable_recovery_lag: -2 is here, but this must be a whole number from 0 to 2^63 - 1"
        ],
    );
    bad(
        |s| s["configs"]["rack_aware_strategies"] = json!(["best"]),
        expect![[
            r#"configs.rack_aware_strategies[0]: "best" is here, but this must be "none", "min_traffic" or "balance_subtopology""#
        ]],
    );
    bad(
        |s| s["assignor"] = json!("best"),
        expect![[
            r#"assignor: "best" is unknown; known are minimum_movement, high_availability, sticky, sticky_preserving, legacy_sticky, legacy_sticky_preserving, fallback_prior"#
        ]],
    );
    bad(|s| *s = json!([]), expect!["input: a list is here, but this must be an object"]);
}

#[test]
fn what_does_not_fit_together_has_a_type_of_its_own() {
    check_error(
        |s| {
            s["clients"][0]["lags"]["7_7"] = json!(1);
        },
        "unknown_task",
        expect!["clients[0].lags.7_7: task 7_7 is not among the tasks"],
    );
    check_error(
        |s| s["clients"][0]["initial_active"] = json!(["7_7"]),
        "unknown_task",
        expect!["clients[0].initial_active[0]: task 7_7 is not among the tasks"],
    );
    check_error(
        |s| s["clients"][1]["lags"] = json!({ "0_0": 1, "0_2": 1 }),
        "missing_lag",
        expect![
            "clients: p2 has no lag for task 0_1; high_availability needs one for every stateful task"
        ],
    );
    check_error(
        |s| {
            s["clients"][0]["capacity"] = json!(0);
            s["clients"][1]["capacity"] = json!(0);
        },
        "no_capacity",
        expect!["the 2 instances have no capacity; give at least one of them a stream thread"],
    );
}

#[test]
fn previous_tasks_that_no_longer_exist_are_dropped() {
    let mut scenario = scenario();
    scenario["clients"][0]["prev_active"] = json!(["9_9"]);
    scenario["clients"][0]["prev_standby"] = json!(["9_8"]);
    assert_eq!(plans(&scenario)[0]["clients"]["p10"]["active"], json!(["1_0"]));
}

#[test]
fn broken_json_is_an_error_with_line_and_column() {
    check_error_of(
        "{\"tasks\": [",
        &[],
        "bad_input",
        expect!["the input is not JSON: EOF while parsing a list at line 1 column 11"],
    );
    check_error_of(
        "",
        &[],
        "bad_input",
        expect!["the input is not JSON: EOF while parsing a value at line 1 column 0"],
    );
}

#[test]
fn a_key_that_comes_twice_is_named() {
    let text = scenario().to_string().replacen(r#""0_0":"#, r#""0_1":0,"0_1":0,"0_0":"#, 1);
    check_error_of(
        &text,
        &[],
        "bad_input",
        expect![[r#"the input is not JSON: the key "0_1" comes twice at line 1 column 91"#]],
    );
}

#[test]
fn unknown_fields_matter_only_if_strict() {
    let mut scenario = scenario();
    scenario["tasks"][0]["colour"] = json!("red");
    assert_eq!(plans(&scenario).len(), 1);
    check_error_of(
        &scenario.to_string(),
        &["--strict"],
        "bad_input",
        expect![[
            r#"tasks[0]: unknown field "colour"; known are id, stateful, partitions, end_offset, weight"#
        ]],
    );
}

#[test]
fn sums_stop_at_the_largest_offset() {
    let largest = i64::MAX;
    let mut scenario = scenario();
    scenario["configs"] = json!({ "acceptable_recovery_lag": 0 });
    for client in 0..2 {
        scenario["clients"][client]["lags"] =
            json!({ "0_0": largest, "0_1": largest, "0_2": largest });
    }
    let text = plan(&["--explain"], &scenario);
    assert!(text.contains("9223372036854775807 records, 18446744073709551615 bytes"), "{text}");
}

/// Twelve stateful tasks with one standby each on three instances.
fn worked_example() -> Value {
    let tasks: Vec<Value> = (0..12)
        .map(|p| json!({ "id": format!("0_{p}"), "stateful": true, "end_offset": 1_000_000 }))
        .collect();
    json!({
        "assignor": "minimum_movement",
        "tasks": tasks,
        "clients": [{ "id": "app-1" }, { "id": "app-2" }, { "id": "app-3" }],
        "configs": { "num_standby_replicas": 1 },
    })
}

/// The last lines of an explained what-if: the three plans compared.
fn check_what_if(changes: &[&str], want: Expect) {
    let mut arguments = vec!["--explain"];
    for change in changes {
        arguments.extend(["--what-if", change]);
    }
    let text = plan(&arguments, &worked_example());
    let (_, comparison) = text.rsplit_once("\n\n  ").expect("a comparison comes last");
    want.assert_eq(&format!("  {comparison}"));
}

#[test]
fn what_if_compares_plans() {
    check_what_if(
        &["add=1"],
        expect![[r#"
                                            BEFORE      AFTER      SETTLED
        actives per instance                4 to 4      0 to 4     3 to 3
        copies per instance                 8 to 8      6 to 7     6 to 6
        actives moved                       0           0          3
        fewest possible moves               0           3          3
        actives standing still              12          0          0
        records to restore                  24000000    6000000    0
        disk for restored state, bytes      2400000000  600000000  0
        longest restore on one instance, s  80          60         0

        The group settles after 2 rounds: 3 moves, 6000000 records, 600000000 bytes in all.
    "#]],
    );
    check_what_if(
        &["remove=app-2"],
        expect![[r#"
                                            BEFORE      AFTER      SETTLED
        actives per instance                4 to 4      6 to 6     6 to 6
        copies per instance                 8 to 8      12 to 12   12 to 12
        actives moved                       0           0          0
        fewest possible moves               0           0          0
        actives standing still              12          0          0
        records to restore                  24000000    8000000    8000000
        disk for restored state, bytes      2400000000  800000000  800000000
        longest restore on one instance, s  80          40         40

        The group settles after 1 round: 0 moves, 8000000 records, 800000000 bytes in all.
    "#]],
    );
    check_what_if(
        &["assignor=high_availability", "add=1"],
        expect![[r#"
                                            BEFORE      AFTER      SETTLED
        actives per instance                4 to 4      0 to 5     3 to 3
        copies per instance                 8 to 8      0 to 10    6 to 6
        actives moved                       0           5          1
        fewest possible moves               0           3          1
        actives standing still              12          0          0
        records to restore                  24000000    2000000    0
        disk for restored state, bytes      2400000000  200000000  0
        longest restore on one instance, s  80          20         0

        The group settles after 7 rounds: 11 moves, 12000000 records, 1200000000 bytes in all.
    "#]],
    );
    check_what_if(
        &["standbys=2"],
        expect![[r#"
                                            BEFORE      AFTER       SETTLED
        actives per instance                4 to 4      4 to 4      4 to 4
        copies per instance                 8 to 8      12 to 12    12 to 12
        actives moved                       0           0           0
        fewest possible moves               0           0           0
        actives standing still              12          0           0
        records to restore                  24000000    12000000    12000000
        disk for restored state, bytes      2400000000  1200000000  1200000000
        longest restore on one instance, s  80          40          40

        The group settles after 1 round: 0 moves, 12000000 records, 1200000000 bytes in all.
    "#]],
    );
}

#[test]
fn a_supposed_loss_must_hit_somebody() {
    check_error_of(
        &worked_example().to_string(),
        &["--what-if", "zone-loss=nowhere"],
        "bad_input",
        expect![[
            r#"what-if: no instance is called "nowhere" or has it as rack or tag; nothing would be lost"#
        ]],
    );
}
