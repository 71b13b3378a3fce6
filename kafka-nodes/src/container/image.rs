//! An image like `apache/kafka`, made of what is on this machine, where none can be pulled.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Engine;
use crate::command::{require, run};
use crate::{Installation, NodesError};

const DOCKERFILE: &str = include_str!("../../assets/image/Dockerfile");
/// Files in `/etc/kafka/docker`.
const SCRIPTS: &[(&str, &str)] = &[
    ("run", include_str!("../../assets/image/run")),
    ("archive", include_str!("../../assets/image/archive")),
    ("log4j2.yaml", include_str!("../../assets/log4j2.yaml")),
    ("server.properties", "log.dirs=/var/lib/kafka/data\n"),
];
/// Modules of Java that a node and its tools load.
const MODULES: &str = "java.base,java.logging,java.management,java.naming,java.desktop,java.rmi,\
    java.security.jgss,java.security.sasl,java.sql,java.xml,jdk.crypto.ec,jdk.management,\
    jdk.management.agent,jdk.unsupported,jdk.zipfs";
/// Native libraries of `java.desktop`, whose classes are needed but never a screen.
const FOR_SCREENS: &[&str] =
    &["libawt", "libfont", "libfreetype", "libjavajpeg", "liblcms", "libmlib"];
const FOLDERS: &[&str] = &[
    "bin",
    "tmp",
    "etc/kafka/docker",
    "opt/kafka/config",
    "mnt/shared/config",
    "var/lib/kafka/data",
];

/// Builds the image `tag` from Kafka's jars, this machine's JDK and busybox. Pulls nothing.
///
/// # Errors
/// [`NodesError::MissingProgram`] without `jlink` or a static busybox, or what the engine said.
pub fn build_image(
    engine: &Engine,
    installation: &Installation,
    tag: &str,
) -> Result<(), NodesError> {
    require(
        "jlink",
        "--version",
        "building an image",
        "install a JDK of version 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    )?;
    require(
        "busybox",
        "--list",
        "building an image",
        "install a static busybox (Debian: apt-get install busybox-static)",
    )?;
    let context = tempfile::tempdir().map_err(NodesError::file("create", std::env::temp_dir()))?;
    let root = context.path().join("root");
    for folder in FOLDERS {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).map_err(NodesError::file("create", folder))?;
    }
    add_busybox(&root)?;
    copy_folder(&installation.jars(), &root.join("opt/kafka/libs"))?;
    add_java(&root)?;
    for (name, content) in SCRIPTS {
        write(&root.join("etc/kafka/docker").join(name), content)?;
    }
    let run_script = root.join("etc/kafka/docker/run");
    fs::set_permissions(&run_script, fs::Permissions::from_mode(0o755))
        .map_err(NodesError::file("make executable", &run_script))?;
    write(&root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    write(&root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    write(&context.path().join("Dockerfile"), DOCKERFILE)?;
    let mut build = engine.command();
    build.args(["build", "--tag", tag]).arg(context.path());
    if engine.run(&["buildx", "version"]).is_err() {
        // A client without buildx builds the old way only when told to.
        build.env("DOCKER_BUILDKIT", "0");
    }
    run(&mut build).map(drop)
}

fn write(path: &Path, content: &str) -> Result<(), NodesError> {
    fs::write(path, content).map_err(NodesError::file("write", path))
}

fn add_busybox(root: &Path) -> Result<(), NodesError> {
    let program = run(Command::new("sh").args(["-c", "command -v busybox"]))?;
    let copy = root.join("bin/busybox");
    fs::copy(program.trim(), &copy).map_err(NodesError::file("write", &copy))?;
    for name in run(Command::new("busybox").arg("--list"))?.lines().filter(|it| *it != "busybox") {
        let link = root.join("bin").join(name);
        symlink("busybox", &link).map_err(NodesError::file("create", link))?;
    }
    Ok(())
}

fn add_java(root: &Path) -> Result<(), NodesError> {
    let jre = root.join("opt/jre");
    let mut jlink = Command::new("jlink");
    jlink.args(["--add-modules", MODULES, "--strip-java-debug-attributes", "--no-man-pages"]);
    run(jlink.args(["--no-header-files", "--compress=0", "--output"]).arg(&jre))?;
    let mut binaries = vec![jre.join("bin/java")];
    for library in files_below(&jre.join("lib"))? {
        let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if FOR_SCREENS.iter().any(|unwanted| name.starts_with(unwanted)) {
            fs::remove_file(&library).map_err(NodesError::file("remove", library))?;
        } else if library.extension().is_some_and(|extension| extension == "so") {
            binaries.push(library);
        }
    }
    for library in shared_libraries(&binaries)? {
        let copy = root.join(library.strip_prefix("/").unwrap_or(&library));
        let folder = copy.parent().unwrap_or(root);
        fs::create_dir_all(folder).map_err(NodesError::file("create", folder))?;
        fs::copy(&library, &copy).map_err(NodesError::file("copy", &library))?;
    }
    Ok(())
}

/// What these binaries link, outside of the JRE itself, and the loader.
fn shared_libraries(binaries: &[PathBuf]) -> Result<BTreeSet<PathBuf>, NodesError> {
    let text = run(Command::new("ldd").args(binaries))?;
    Ok(linked(&text).map(PathBuf::from).filter(|path| path.is_file()).collect())
}

/// The paths in the output of `ldd`.
fn linked(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.split_once(" => ").map_or(line, |(_, path)| path).trim();
        let (path, _address) = line.split_once(" (0x")?;
        (path.starts_with("/lib") || path.starts_with("/usr/lib")).then_some(path)
    })
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>, NodesError> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(NodesError::file("read", &folder))? {
            let path = entry.map_err(NodesError::file("read", &folder))?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    Ok(files)
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), NodesError> {
    fs::create_dir_all(to).map_err(NodesError::file("create", to))?;
    for file in files_below(from)? {
        let copy = to.join(file.file_name().unwrap_or_default());
        fs::copy(&file, &copy).map_err(NodesError::file("copy", file))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::linked;

    #[test]
    fn reads_what_is_linked() {
        let text = "/opt/jre/bin/java:\n\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f)\n\
                    \tlibjli.so => /opt/jre/lib/libjli.so (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tlibx.so => not found\n";
        let found: Vec<&str> = linked(text).collect();
        assert_eq!(found, ["/lib/x86_64-linux-gnu/libz.so.1", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
