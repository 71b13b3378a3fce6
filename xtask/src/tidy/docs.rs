//! Rules for documents: they may not lie about the tree.

use std::collections::BTreeSet;
use std::path::Path;

use super::Text;

fn find<'a>(texts: &'a [Text], path: &str, problems: &mut Vec<String>) -> Option<&'a str> {
    let found = texts.iter().find(|text| text.path == path).map(|text| text.content.as_str());
    if found.is_none() {
        problems.push(format!("{path} is missing"));
    }
    found
}

/// The crates ARCHITECTURE.md names in its table are the crates that exist.
pub(super) fn check_architecture(texts: &[Text], problems: &mut Vec<String>) {
    let Some(architecture) = find(texts, "ARCHITECTURE.md", problems) else { return };
    let named: BTreeSet<&str> = architecture
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let existing: BTreeSet<&str> = texts
        .iter()
        .filter_map(|text| text.path.strip_suffix("/Cargo.toml"))
        .filter(|folder| !folder.starts_with("fuzz"))
        .filter_map(|folder| folder.strip_prefix("crates/").or(Some(folder)))
        .filter(|name| !name.contains('/'))
        .collect();
    for name in existing.difference(&named) {
        problems.push(format!("ARCHITECTURE.md: its table lacks the crate {name}"));
    }
    for name in named.difference(&existing) {
        problems.push(format!("ARCHITECTURE.md: its table names {name}, which does not exist"));
    }
}

/// "Quick start" has two commands, one in each block: run it, and test it.
pub(super) fn check_readme(texts: &[Text], problems: &mut Vec<String>) {
    let Some(readme) = find(texts, "README.md", problems) else { return };
    let section: Vec<&str> = readme
        .lines()
        .skip_while(|line| !line.starts_with("## Quick start"))
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .collect();
    let mut blocks = Vec::new();
    let mut lines = section.iter();
    while let Some(line) = lines.next() {
        if *line == "```sh" {
            blocks.push(lines.by_ref().take_while(|line| **line != "```").count());
        }
    }
    if blocks != [1, 1] {
        problems.push(format!(
            "README.md: \"Quick start\" needs two `sh` blocks of one command each, has {blocks:?} lines"
        ));
    }
}

/// Links from documents to files lead somewhere.
pub(super) fn check_links(root: &Path, text: &Text, problems: &mut Vec<String>) {
    if !text.has_extension("md") {
        return;
    }
    let folder = root.join(&text.path).parent().map(Path::to_owned).unwrap_or_default();
    for (number, line) in text.content.lines().enumerate() {
        for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            // Paths of Rust items are rustdoc's to check.
            let is_item = file.contains("::");
            if file.is_empty() || is_item || file.contains("://") || file.contains(' ') {
                continue;
            }
            if !folder.join(file).exists() {
                problems.push(format!("{}:{}: no file {file}", text.path, number + 1));
            }
        }
    }
}

/// Every test the feature table names exists.
pub(super) fn check_feature_table(texts: &[Text], problems: &mut Vec<String>) {
    let path = "docs/features.md";
    let Some(table) = find(texts, path, problems) else { return };
    for (number, line) in table.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
        let Some(proof) = line.trim_end_matches(['|', ' ']).rsplit('|').next() else { continue };
        for name in proof.split('`').skip(1).step_by(2) {
            let function = name.rsplit("::").next().unwrap_or(name);
            let declared = format!("fn {function}(");
            let exists = texts.iter().any(|text| {
                text.path == name || (text.has_extension("rs") && text.content.contains(&declared))
            });
            if !exists {
                problems.push(format!("{path}:{}: no test or file {name}", number + 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Text, check_architecture, check_feature_table, check_readme};

    fn text(path: &str, content: &str) -> Text {
        Text { path: path.into(), content: content.into() }
    }

    #[test]
    fn architecture_names_the_crates_that_exist() {
        let texts = [
            text("ARCHITECTURE.md", "| `a` | what |\n| `b` | what |\n"),
            text("crates/a/Cargo.toml", ""),
            text("xtask/Cargo.toml", ""),
        ];
        let mut problems = Vec::new();
        check_architecture(&texts, &mut problems);
        assert_eq!(
            problems,
            [
                "ARCHITECTURE.md: its table lacks the crate xtask",
                "ARCHITECTURE.md: its table names b, which does not exist"
            ]
        );
    }

    #[test]
    fn quick_start_has_two_commands() {
        let good = "## Quick start\n```sh\na\n```\ntext\n```sh\nb\n```\n## Next\n```sh\nc\n```\n";
        let mut problems = Vec::new();
        check_readme(&[text("README.md", good)], &mut problems);
        assert!(problems.is_empty());
        check_readme(&[text("README.md", "## Quick start\n```sh\na\nb\n```\n")], &mut problems);
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn feature_table_names_real_tests() {
        let table =
            "| row | state | proof |\n|---|---|---|\n| D1 | works | `it::there`, `gone` |\n";
        let texts = [text("docs/features.md", table), text("crates/a/src/x.rs", "fn there() {}")];
        let mut problems = Vec::new();
        check_feature_table(&texts, &mut problems);
        assert_eq!(problems, ["docs/features.md:3: no test or file gone"]);
    }
}
