//! Rules for source files.

use super::Text;

/// Lines of a source file up to its tests.
const BODY_LINES_MAX: usize = 800;

/// Words that promise work instead of doing it.
const PROMISES: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

pub(super) fn check(text: &Text, problems: &mut Vec<String>) {
    check_places(text, problems);
    if text.path.split('/').any(|part| part == "target") {
        problems.push(format!("{}: what a build makes is not kept", text.path));
    }
    if !text.has_extension("rs") {
        return;
    }
    let path = &text.path;
    if path.ends_with("/mod.rs") && !path.contains("/tests/") {
        problems.push(format!("{path}: write `name.rs` beside `name/` instead of mod.rs"));
    }
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    if path.contains("/src/") && !is_test && !text.content.trim_start().starts_with("//!") {
        problems.push(format!("{path}: begin with a `//!` line that says what this file is about"));
    }
    let body = text.content.lines().take_while(|line| *line != "#[cfg(test)]").count();
    if body > BODY_LINES_MAX {
        problems.push(format!("{path}: {body} lines; split it, {BODY_LINES_MAX} is the limit"));
    }
    if path.starts_with("xtask/src/tidy/") {
        return;
    }
    let mut previous = "";
    for (number, line) in text.content.lines().enumerate() {
        check_line(path, number + 1, line, problems);
        if previous.trim_start().starts_with("#[error(")
            && line.trim().strip_suffix("(String),").is_some_and(is_name)
        {
            let number = number + 1;
            problems
                .push(format!("{path}:{number}: an error variant needs fields, not a sentence"));
        }
        previous = line;
    }
}

fn check_line(path: &str, number: usize, line: &str, problems: &mut Vec<String>) {
    let words = || line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    if let Some(promise) = words().find(|word| PROMISES.contains(word)) {
        problems.push(format!("{path}:{number}: {promise}: do it, or file an issue"));
    }
    let code = line.trim();
    let comment = code.strip_prefix("// ").unwrap_or_default();
    if comment.starts_with("let ") && comment.ends_with(';') {
        problems.push(format!("{path}:{number}: delete code instead of commenting it out"));
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric())
}

/// No file names a place that exists on one machine only.
fn check_places(text: &Text, problems: &mut Vec<String>) {
    if text.path.starts_with("xtask/src/tidy/") {
        return;
    }
    for (number, line) in text.content.lines().enumerate() {
        for home in ["/home/", "/Users/"] {
            let Some(at) = line.find(home) else { continue };
            let before = line.get(..at).and_then(|before| before.chars().last());
            if before.is_none_or(|c| !c.is_ascii_alphanumeric() && !"._-/".contains(c)) {
                problems.push(format!(
                    "{}:{}: names {home}, a private place",
                    text.path,
                    number + 1
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Text, check};

    #[track_caller]
    fn check_source(path: &str, content: &str, expected: &[&str]) {
        let mut problems = Vec::new();
        check(&Text { path: path.into(), content: content.into() }, &mut problems);
        assert_eq!(problems, expected);
    }

    #[test]
    fn a_clean_file_passes() {
        check_source("crates/a/src/lib.rs", "//! What this is.\n\nfn f() {}\n", &[]);
        check_source("crates/a/tests/it/main.rs", "fn f() {}\n", &[]);
    }

    #[test]
    fn finds_each_kind_of_problem() {
        check_source(
            "crates/a/src/x.rs",
            "fn f() {}\n",
            &["crates/a/src/x.rs: begin with a `//!` line that says what this file is about"],
        );
        check_source(
            "crates/a/src/x/mod.rs",
            "//! X.\n",
            &["crates/a/src/x/mod.rs: write `name.rs` beside `name/` instead of mod.rs"],
        );
        check_source(
            "crates/a/target/criterion/new/sample.json",
            "{}\n",
            &["crates/a/target/criterion/new/sample.json: what a build makes is not kept"],
        );
        check_source(
            "crates/a/src/x.rs",
            "//! X.\n// TODO later\n    #[error(\"{0}\")]\n    Other(String),\n// let a = 1;\nconst P: &str = \"/home/me\";\n",
            &[
                "crates/a/src/x.rs:6: names /home/, a private place",
                "crates/a/src/x.rs:2: TODO: do it, or file an issue",
                "crates/a/src/x.rs:4: an error variant needs fields, not a sentence",
                "crates/a/src/x.rs:5: delete code instead of commenting it out",
            ],
        );
    }

    #[test]
    fn counts_lines_up_to_the_tests() {
        let long = format!("//! X.\n{}", "fn f() {}\n".repeat(800));
        check_source(
            "crates/a/src/x.rs",
            &long,
            &["crates/a/src/x.rs: 801 lines; split it, 800 is the limit"],
        );
        let tests = format!("//! X.\n#[cfg(test)]\n{}", "fn f() {}\n".repeat(900));
        check_source("crates/a/src/x.rs", &tests, &[]);
    }
}
