//! Plans for tired operators.

use std::fmt::Write;

use headwater_assignor::{
    ApplicationState, Assignment, CopyExplained, CopyKind, Explanation, FollowUp, GroupExplained,
    Loss, Rates, Reason, explain, instance_loss, tag_loss,
};

use crate::plan::what_if::{Way, zones};
use crate::table::Table;

/// The whole explanation of one plan.
pub(crate) fn plan(
    state: &ApplicationState,
    assignment: &Assignment,
    assignor: &str,
    rates: Rates,
) -> String {
    let explained = explain(state, assignment);
    let mut text = format!(
        "Plan by {assignor} for {} tasks on {} instances\n\n",
        state.tasks.len(),
        state.instances.len()
    );
    text += &instances(state, assignment, &explained).to_string();
    text.push('\n');
    text += &tasks(&explained, rates).to_string();
    text.push('\n');
    text += &follow_up(assignment, &explained, rates);
    text.push('\n');
    text += &group(&explained.group, rates);
    text.push('\n');
    text += &losses(state, assignment, rates).to_string();
    text
}

/// One line for each instance.
fn instances(state: &ApplicationState, assignment: &Assignment, explained: &Explanation) -> Table {
    let mut table = Table::new(&["INSTANCE", "THREADS", "ACTIVE", "STANDBY", "WARM-UP", "NEW"]);
    for (id, holds) in &assignment.instances {
        let new = explained.copies.iter().filter(|copy| copy.is_new && copy.instance == *id);
        let capacity = state.instances.get(id).map_or(0, |info| info.capacity);
        table.row([
            id.to_string(),
            capacity.to_string(),
            holds.active.len().to_string(),
            holds.standby.len().to_string(),
            holds.warmup.len().to_string(),
            new.count().to_string(),
        ]);
    }
    table
}

/// One line for each copy.
fn tasks(explained: &Explanation, rates: Rates) -> Table {
    let mut table = Table::new(&["TASK", "COPY", "INSTANCE", "WHY", "RECORDS", "BYTES", "SECONDS"]);
    for copy in &explained.copies {
        let records = copy.records_to_restore;
        let or_unknown = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
        table.row([
            copy.task.to_string(),
            copy.kind.as_str().to_owned(),
            copy.instance.to_string(),
            why(copy),
            or_unknown(records),
            or_unknown(records.map(|records| rates.bytes(records))),
            or_unknown(records.map(|records| rates.seconds(records))),
        ]);
    }
    table
}

fn why(copy: &CopyExplained) -> String {
    let why = match (copy.reason, copy.kind) {
        (Reason::Stays, _) => "was here before",
        (Reason::NoOwner, _) => "nobody had it",
        (Reason::OwnerLeft, _) => "the instance that had it left",
        (Reason::Balance, _) => "instances would be unevenly loaded",
        (Reason::SubtopologyBalance, _) => "its sub-topology would be unevenly spread",
        (Reason::ThreadBalance, _) => "threads would be unevenly loaded",
        (Reason::Rack, _) => "less is read across racks",
        (Reason::Tag, _) => "copies are spread over more zones",
        (Reason::CaughtUp, _) => "its copy here is ready and takes over",
        (Reason::WarmUp, _) => "gets ready to take over",
        (Reason::FollowState, CopyKind::Active) => "planned elsewhere, but its state is here",
        (Reason::FollowState, _) => "planned elsewhere, but a copy is here",
        (Reason::Replica, _) => "standby",
        (other, _) => other.as_str(),
    };
    match &copy.moved_from {
        Some(from) => format!("{why} (from {from})"),
        None => why.to_owned(),
    }
}

fn follow_up(assignment: &Assignment, explained: &Explanation, rates: Rates) -> String {
    let mut text = match assignment.followup {
        FollowUp::None => "Final: nothing is being waited for.\n",
        FollowUp::Immediately => "Not final: looks again at once.\n",
        FollowUp::AfterProbingInterval => "Not final: looks again after the probing interval.\n",
        _ => "Not final: looks again as soon as a copy has caught up.\n",
    }
    .to_owned();
    for waiting in &explained.waiting_for {
        let left = match waiting.lag.to_restore() {
            Some(records) => format!("{records} records (about {} s)", rates.seconds(records)),
            None => "an unknown number of records".to_owned(),
        };
        let _infallible = writeln!(
            text,
            "  waiting for {} to read {left} of task {}",
            waiting.instance, waiting.task
        );
    }
    text
}

fn group(group: &GroupExplained, rates: Rates) -> String {
    let mut table = Table::new(&["GROUP", ""]);
    let range = |(least, most): (usize, usize)| format!("{least} to {most}");
    let records = group.records_to_restore;
    table.row(["actives per instance".to_owned(), range(group.actives)]);
    table.row(["copies per instance".to_owned(), range(group.copies)]);
    table.row([
        "largest difference in one sub-topology".to_owned(),
        group.subtopology_spread.to_string(),
    ]);
    table.row([
        "actives moved".to_owned(),
        format!("{} (an even plan needs at least {})", group.moves, group.least_moves),
    ]);
    table.row([
        "to restore".to_owned(),
        format!("{records} records, {} bytes", rates.bytes(records)),
    ]);
    table.row([
        "longest restore on one instance".to_owned(),
        format!("{} s", rates.seconds(group.most_records_on_one_instance)),
    ]);
    table.row(["actives standing still".to_owned(), group.standing_still.to_string()]);
    if let Some(reads) = group.cross_rack {
        table.row([
            "partitions read across racks".to_owned(),
            format!("{} by actives, {} by standbys", reads.active, reads.standby),
        ]);
    }
    table.to_string()
}

/// What the loss of each instance and each zone would cost.
fn losses(state: &ApplicationState, assignment: &Assignment, rates: Rates) -> Table {
    let mut table =
        Table::new(&["IF LOST", "TASKS TO MOVE", "STANDING STILL", "RECORDS", "SECONDS"]);
    let mut row = |what: String, loss: &Loss| {
        table.row([
            what,
            loss.actives.to_string(),
            loss.standing_still.len().to_string(),
            loss.records_to_restore.to_string(),
            rates.seconds(loss.records_to_restore).to_string(),
        ]);
    };
    for id in assignment.instances.keys() {
        row(id.to_string(), &instance_loss(state, assignment, id));
    }
    for (key, value) in zones(state) {
        row(format!("{key} {value}"), &tag_loss(state, assignment, &key, &value));
    }
    table
}

/// The plan before a change, the first one after it, and the last one, when nothing more is wanted.
pub(crate) fn comparison(
    plans: [(&ApplicationState, &Assignment); 3],
    way: &Way,
    rates: Rates,
) -> String {
    let sides = plans.map(|(state, assignment)| explain(state, assignment).group);
    let mut table = Table::new(&["", "BEFORE", "AFTER", "SETTLED"]);
    let mut row = |what: &str, value: &dyn Fn(&GroupExplained) -> String| {
        table.row(std::iter::once(what.to_owned()).chain(sides.iter().map(value)));
    };
    row("actives per instance", &|g| format!("{} to {}", g.actives.0, g.actives.1));
    row("copies per instance", &|g| format!("{} to {}", g.copies.0, g.copies.1));
    row("actives moved", &|g| g.moves.to_string());
    row("fewest possible moves", &|g| g.least_moves.to_string());
    row("actives standing still", &|g| g.standing_still.to_string());
    row("records to restore", &|g| g.records_to_restore.to_string());
    row("disk for restored state, bytes", &|g| rates.bytes(g.records_to_restore).to_string());
    row("longest restore on one instance, s", &|g| {
        rates.seconds(g.most_records_on_one_instance).to_string()
    });
    let settles = if way.is_settled { "settles" } else { "has not settled" };
    let rounds = if way.rounds == 1 { "round" } else { "rounds" };
    format!(
        "{table}\nThe group {settles} after {} {rounds}: {} moves, {} records, {} bytes in all.\n",
        way.rounds,
        way.moves,
        way.records,
        rates.bytes(way.records)
    )
}
