//! The library as a user has it: from a crate outside the workspace.

use std::path::Path;
use std::process::Command;

#[test]
fn a_crate_outside_the_workspace_works() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--locked", "--manifest-path"])
        .arg(here.join("outside/Cargo.toml"))
        .env("CARGO_TARGET_DIR", here.join("../target/outside"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("test result: ok."), "{}", text(&output.stdout));
}
