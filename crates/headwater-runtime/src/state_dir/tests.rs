use super::*;

const PROCESS: Uuid = Uuid::from_u128(7);

fn open(root: &Path) -> Result<StateDirectory, StateDirError> {
    StateDirectory::open(root, "counts", PROCESS)
}

/// All paths below `root` with their contents.
fn snapshot(root: &Path) -> Vec<(PathBuf, Option<String>)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path.clone());
                found.push((path, None));
            } else {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, Some(text)));
            }
        }
    }
    found.sort();
    found
}

#[track_caller]
fn check_refused(files: &[(&str, &str)], expected: &str) {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = root.path().join("counts").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let before = snapshot(root.path());
    let error = open(root.path()).unwrap_err();
    let directory = root.path().join("counts").display().to_string();
    assert_eq!(error.to_string().replace(&directory, "DIR"), expected);
    let left: Vec<_> =
        snapshot(root.path()).into_iter().filter(|(path, _)| !path.ends_with(LOCK_FILE)).collect();
    assert_eq!(left, before, "a refused directory is left as it is");
}

#[test]
fn the_process_id_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let first = open(root.path()).unwrap();
    assert_eq!(first.process_id(), PROCESS);
    drop(first);
    let second = StateDirectory::open(root.path(), "counts", Uuid::from_u128(8)).unwrap();
    assert_eq!(second.process_id(), PROCESS);
    second.clean_up().unwrap();
    drop(second);
    assert_eq!(open(root.path()).unwrap().process_id(), PROCESS);
}

#[test]
fn the_place_in_the_group_is_kept_until_it_is_taken() {
    let root = tempfile::tempdir().unwrap();
    let ended = open(root.path()).unwrap();
    assert_eq!(ended.left_member(), None);
    ended.note_left_member(Some("member")).unwrap();
    drop(ended);
    let next = StateDirectory::open(root.path(), "counts", Uuid::from_u128(8)).unwrap();
    assert_eq!((next.process_id(), next.left_member()), (PROCESS, Some("member")));
    next.note_left_member(None).unwrap();
    drop(next);
    let text = fs::read_to_string(root.path().join("counts").join(PROCESS_FILE)).unwrap();
    assert!(!text.contains("left_member"), "as every version writes it: {text}");
    assert_eq!(open(root.path()).unwrap().left_member(), None);
}

#[test]
fn a_second_holder_is_told_who_the_first_is() {
    let root = tempfile::tempdir().unwrap();
    let first = open(root.path()).unwrap();
    let error = open(root.path()).unwrap_err();
    let expected = format!(
        "state directory {} is in use by process {}; stop that process, or give each process of the application its own state.dir",
        root.path().join("counts").display(),
        std::process::id()
    );
    assert_eq!(error.to_string(), expected);
    drop(first);
    open(root.path()).unwrap();
}

#[test]
fn other_applications_have_other_directories() {
    let root = tempfile::tempdir().unwrap();
    let first = open(root.path()).unwrap();
    let other = StateDirectory::open(root.path(), "other", PROCESS).unwrap();
    assert_ne!(first.path(), other.path());
}

#[test]
fn directories_of_kafka_streams_are_refused() {
    for (file, shown) in [
        ("kafka-streams-process-metadata", "kafka-streams-process-metadata"),
        (".lock", ".lock"),
        ("0_0/.checkpoint", "0_0/.checkpoint"),
        ("0_1/rocksdb/counts/CURRENT", "0_1/rocksdb"),
    ] {
        check_refused(
            &[(file, "x")],
            &format!(
                "state directory DIR belongs to Kafka Streams for Java (it has {shown}); choose another state.dir, the state comes back from the changelogs"
            ),
        );
    }
}

#[test]
fn directories_of_others_are_refused() {
    check_refused(
        &[("holiday.jpg", "x")],
        "state directory DIR holds holiday.jpg, which is not Headwater's; choose another state.dir",
    );
    check_refused(
        &[("photos/holiday.jpg", "x")],
        "state directory DIR holds photos, which is not Headwater's; choose another state.dir",
    );
    let other = r#"{"format":1,"application_id":"sums","process_id":"00000000-0000-0000-0000-000000000001"}"#;
    check_refused(
        &[(PROCESS_FILE, other)],
        "state directory DIR belongs to application sums, not to counts; choose another state.dir",
    );
    check_refused(
        &[(PROCESS_FILE, r#"{"format":2,"process":"?"}"#)],
        "state directory DIR has format 2, this version knows only format 1; use the version that made it, or delete it",
    );
    check_refused(
        &[(PROCESS_FILE, "{")],
        "DIR/headwater.json is damaged; delete it, the state can stay",
    );
}

#[test]
fn a_path_that_cannot_be_made_is_named() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = open(&file).unwrap_err();
    assert!(
        matches!(&error, StateDirError::Io { operation: "create", path, .. } if *path == file.join("counts")),
        "{error}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_is_not_writable_is_named() {
    // The kernel lets nobody, not even the superuser, make directories here.
    let error = open(Path::new("/sys")).unwrap_err();
    assert_eq!(error.to_string(), "cannot create /sys/counts: this process may not write there");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("counts");
    fs::create_dir(&directory).unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.join(PROCESS_FILE_NEW)).unwrap();
    let error = open(root.path()).unwrap_err();
    let expected =
        format!("cannot write {}: the disk is full", directory.join(PROCESS_FILE_NEW).display());
    assert_eq!(error.to_string(), expected);
    assert!(!directory.join(PROCESS_FILE).exists());
}

#[test]
fn what_the_operating_system_says_is_sorted() {
    let kind =
        |kind: io::ErrorKind| match StateDirError::from_io("write", Path::new("x"), kind.into()) {
            StateDirError::NotWritable { .. } => "not writable",
            StateDirError::Full { .. } => "full",
            StateDirError::Io { .. } => "other",
            _ => "?",
        };
    assert_eq!(kind(io::ErrorKind::PermissionDenied), "not writable");
    assert_eq!(kind(io::ErrorKind::ReadOnlyFilesystem), "not writable");
    assert_eq!(kind(io::ErrorKind::StorageFull), "full");
    assert_eq!(kind(io::ErrorKind::QuotaExceeded), "full");
    assert_eq!(kind(io::ErrorKind::NotADirectory), "other");
}

#[test]
fn state_that_nobody_owns_goes_after_a_while() {
    let root = tempfile::tempdir().unwrap();
    let directory = open(root.path()).unwrap();
    let tasks = [TaskId::new(0, 0), TaskId::new(0, 1)];
    for task in tasks {
        fs::create_dir(directory.task(task)).unwrap();
        fs::write(directory.task(task).join("db"), "x").unwrap();
    }
    let owned = BTreeSet::from([tasks[0]]);
    let touched = last_touched_ms(&directory.task(tasks[1])).unwrap();
    assert_eq!(directory.clean(&owned, 1000, touched + 999).unwrap(), []);
    assert_eq!(directory.tasks().unwrap(), BTreeSet::from(tasks));
    assert_eq!(directory.clean(&owned, 1000, touched + 1000).unwrap(), [tasks[1]]);
    assert_eq!(directory.tasks().unwrap(), owned);
    directory.clean_up().unwrap();
    assert_eq!(directory.tasks().unwrap(), BTreeSet::new());
}

#[cfg(unix)]
#[test]
fn only_its_user_can_look_into_it() {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let home = tempfile::tempdir().unwrap();
    // Where the directories of all applications lie may be everybody's.
    let root = home.path().join("state");
    fs::create_dir(&root).unwrap();
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&root, everybody).unwrap();
    let directory = open(&root).unwrap();
    assert_eq!((mode(&root), mode(directory.path())), (0o777, 0o700));
    for file in [LOCK_FILE, PROCESS_FILE] {
        assert_eq!(mode(&directory.path().join(file)), 0o600, "{file}");
    }
    // What somebody has opened up stays so.
    let path = directory.path().to_owned();
    drop(directory);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    drop(open(&root).unwrap());
    assert_eq!(mode(&path), 0o750);
}
