//! Rules for manifests.

use super::Text;

pub(super) fn check(texts: &[Text], problems: &mut Vec<String>) {
    let members = texts.iter().filter(|text| {
        text.path.ends_with("/Cargo.toml")
            && !text.path.starts_with("fuzz/")
            && text.content.contains("[package]")
    });
    for text in members {
        // A crate outside the workspace, kept to show how one is made, has its own settings.
        if text.content.contains("[workspace]") {
            continue;
        }
        check_member(text, problems);
    }
}

fn check_member(text: &Text, problems: &mut Vec<String>) {
    if !text.content.contains("[lints]\nworkspace = true") {
        problems.push(format!("{}: say `[lints] workspace = true`", text.path));
    }
    let mut in_dependencies = false;
    for line in text.content.lines() {
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
        } else if in_dependencies
            && !line.trim().is_empty()
            && !line.starts_with('#')
            && line.contains('=')
            && !line.contains("workspace = true")
            && !line.starts_with(char::is_whitespace)
        {
            problems.push(format!("{}: take `{line}` from [workspace.dependencies]", text.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Text, check};

    #[test]
    fn versions_stand_in_one_place() {
        let content = "[package]\nname = \"a\"\n[lints]\nworkspace = true\n[dependencies]\n\
                       bytes.workspace = true\nserde = \"1\"\n";
        let text = Text { path: "crates/a/Cargo.toml".into(), content: content.into() };
        let mut problems = Vec::new();
        check(&[text], &mut problems);
        assert_eq!(
            problems,
            ["crates/a/Cargo.toml: take `serde = \"1\"` from [workspace.dependencies]"]
        );
    }

    #[test]
    fn every_member_takes_the_lints() {
        let text = Text {
            path: "crates/a/Cargo.toml".into(),
            content: "[package]\nname = \"a\"\n".into(),
        };
        let mut problems = Vec::new();
        check(&[text], &mut problems);
        assert_eq!(problems, ["crates/a/Cargo.toml: say `[lints] workspace = true`"]);
    }
}
