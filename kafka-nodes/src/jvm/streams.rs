//! The jars of Kafka Streams, for programs that run beside the nodes.

use std::fs;
use std::path::Path;

use super::maven;
use crate::NodesError;
use crate::command::require;

const POM: &str = include_str!("../../assets/streams-pom.xml");

/// The class path of Kafka Streams of a version, whose jars are fetched with Maven to a directory below `cache` unless
/// they are there already. They are 94 MB.
///
/// ```no_run
/// use std::process::Command;
///
/// let class_path = kafka_nodes::streams_class_path("target/kafka".as_ref(), "4.4.0")?;
/// Command::new("java").args(["-cp", &class_path, "Program.java"]).status()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`NodesError::MissingProgram`] without a Java compiler or Maven; what Maven said when it fails.
pub fn streams_class_path(cache: &Path, version: &str) -> Result<String, NodesError> {
    require(
        "javac",
        "-version",
        "a program with Kafka Streams",
        "install a JDK of version 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    )?;
    let directory = cache.join(version).join("streams");
    let jars = directory.join("jars");
    if !jars.is_dir() {
        fs::create_dir_all(&directory).map_err(NodesError::file("create", &directory))?;
        let unfinished = tempfile::tempdir_in(&directory)
            .map_err(NodesError::file("create a directory in", &directory))?;
        let fetched = unfinished.path().join("jars");
        maven::copy_jars(&directory.join("pom.xml"), POM, version, &fetched)?;
        match fs::rename(&fetched, &jars) {
            // Another process was faster; its jars are the same.
            Err(_) if jars.is_dir() => {}
            moved => moved.map_err(NodesError::file("move", fetched))?,
        }
    }
    Ok(format!("{}/*", jars.display()))
}
