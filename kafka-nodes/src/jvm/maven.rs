//! Jars, fetched with Maven.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::NodesError;
use crate::command::{require, run};

/// Copies the jars that a project of Kafka's `version` needs into a directory. The project is written to the file `pom`.
pub(super) fn copy_jars(
    pom: &Path,
    project: &str,
    version: &str,
    jars: &Path,
) -> Result<(), NodesError> {
    require(
        "mvn",
        "-version",
        "fetching Kafka's jars",
        "install Apache Maven (Debian: apt-get install maven)",
    )?;
    fs::write(pom, project).map_err(NodesError::file("write", pom))?;
    let mut mvn = Command::new("mvn");
    mvn.args(["--quiet", "--batch-mode", "--file"]).arg(pom).args([
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        &format!("-Dkafka.version={version}"),
        &format!("-DoutputDirectory={}", jars.display()),
    ]);
    run(&mut mvn).map(drop)
}
