//! The group as text and as JSON.

use std::fmt::Write as _;

use headwater::{GroupView, MemberView, TaskDuty, TaskView};
use serde_json::{Value, json};

use crate::table::Table;

/// Tables, and a line for each thing that is waited for.
pub(super) fn text(view: &GroupView) -> String {
    let mut text = format!("group {}: {}", view.application_id, view.state);
    let mut add = |more: &str| text.push_str(more);
    if let Some(generation) = view.generation {
        add(&format!(", generation {generation}"));
    }
    match view.members.len() {
        0 => add(", no members\n"),
        1 => add(", 1 member\n"),
        count => add(&format!(", {count} members\n")),
    }
    for member in &view.members {
        add("\n");
        add(&of_member(member));
    }
    let waiting = view.waiting_for();
    if !waiting.is_empty() {
        add("\nwaits for:\n");
    }
    for line in waiting {
        add(&format!("  {line}\n"));
    }
    text
}

fn of_member(member: &MemberView) -> String {
    let mut text = format!("member {}", member.member_id);
    let facts = [
        ("static id", member.group_instance_id.clone()),
        ("host", Some(member.host.clone()).filter(|host| !host.is_empty())),
        ("process", member.process_id.map(|id| id.to_string())),
        ("rack", member.rack.clone()),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact {
            write!(text, ", {name} {fact}").expect("a string takes all");
        }
    }
    let threads = if member.threads == 1 { "thread" } else { "threads" };
    if member.process_id.is_some() {
        write!(text, ", {} {threads}", member.threads).expect("a string takes all");
    }
    text.push('\n');
    if member.process_id.is_none() {
        text.push_str("  what it does cannot be seen now\n");
    }
    if !member.tasks.is_empty() {
        let mut table = Table::new(&["  TASK", "DUTY", "WHY", "BEHIND"]);
        for view in &member.tasks {
            table.row([
                format!("  {}", view.task),
                view.duty.as_str().to_owned(),
                view.reason.clone().unwrap_or_else(|| "-".to_owned()),
                view.behind.map_or_else(|| "-".to_owned(), |behind| behind.to_string()),
            ]);
        }
        text.push_str(&table.to_string());
    }
    let lags = member.input_lags.values().flatten();
    let (inputs, lag) = (member.input_lags.len(), lags.sum::<u64>());
    if inputs > 0 {
        let unknown = member.input_lags.values().filter(|lag| lag.is_none()).count();
        write!(text, "  {lag} records of {inputs} inputs are not committed")
            .expect("a string takes all");
        if unknown > 0 {
            write!(text, ", of {unknown} it is not known").expect("a string takes all");
        }
        text.push('\n');
    }
    text
}

/// Everything, sorted by name.
pub(super) fn json(view: &GroupView) -> String {
    let members: Vec<Value> = view.members.iter().map(member_json).collect();
    let whole = json!({
        "application_id": view.application_id,
        "state": view.state.as_str(),
        "protocol": view.protocol,
        "generation": view.generation,
        "members": members,
        "waiting_for": view.waiting_for(),
    });
    format!("{whole:#}\n")
}

fn member_json(member: &MemberView) -> Value {
    let tasks: Vec<Value> = member.tasks.iter().map(task_json).collect();
    let lags = member.input_lags.iter().map(
        |(at, lag)| json!({ "topic": at.topic.as_str(), "partition": at.partition, "lag": lag }),
    );
    json!({
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "process_id": member.process_id.map(|id| id.to_string()),
        "threads": member.threads,
        "rack": member.rack,
        "tags": member.tags,
        "is_leaving": member.is_leaving,
        "tasks": tasks,
        "input_lags": lags.collect::<Vec<_>>(),
    })
}

fn task_json(view: &TaskView) -> Value {
    let mut task = json!({
        "task": view.task.to_string(),
        "duty": view.duty.as_str(),
        "reason": view.reason,
        "behind": view.behind,
        "is_waited_for": view.is_waited_for,
    });
    if view.duty == TaskDuty::Withheld {
        task["owner"] = json!(view.owner);
    }
    task
}
