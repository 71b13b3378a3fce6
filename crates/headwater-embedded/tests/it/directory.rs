//! What survives in a directory, and what a broker makes of a damaged one.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use expect_test::{Expect, expect};
use headwater_broker::{
    Broker, BrokerError, Grant, GroupEvent, GroupOptions, MemberId, OffsetCommit, Offsets,
    TopicPartition, Topics,
};
use headwater_embedded::{Embedded, EmbeddedOptions, OpenError};
use headwater_records::Compression;

use crate::tools::{
    batch, create, delete_before, fetch, log_text, quiet, send, write, write_values, writer,
};

fn open(directory: &Path) -> Embedded {
    Embedded::open(directory, quiet().segment_bytes(200)).expect("the directory can be opened")
}

/// The files of a partition, by name, with their sizes.
fn files(directory: &Path) -> Vec<(PathBuf, u64)> {
    fn collect(directory: &Path, found: &mut Vec<(PathBuf, u64)>) {
        for entry in fs::read_dir(directory)
            .expect("the test has what it needs")
            .map(|entry| entry.expect("the directory can be read"))
        {
            if entry.file_type().expect("the test has what it needs").is_dir() {
                collect(&entry.path(), found);
            } else {
                found.push((
                    entry.path(),
                    entry.metadata().expect("the test has what it needs").len(),
                ));
            }
        }
    }
    let mut found = Vec::new();
    let topics = directory.join("topics");
    if topics.exists() {
        collect(&topics, &mut found);
    }
    found.sort();
    found
}

fn last_file(directory: &Path) -> PathBuf {
    files(directory).pop().expect("the test has what it needs").0
}

fn options(replaces: Option<MemberId>) -> GroupOptions {
    let second = Duration::from_secs(1);
    GroupOptions {
        group: "app".into(),
        protocol: "test".to_owned(),
        client_id: "client".to_owned(),
        group_instance_id: None,
        replaces,
        topics: Vec::new(),
        session_timeout: 10 * second,
        rebalance_timeout: 10 * second,
        heartbeat_interval: second,
    }
}

async fn join_alone(broker: &Embedded, replaces: Option<MemberId>) -> Grant {
    let mut member = broker.membership(options(replaces));
    member.join(bytes::Bytes::new());
    loop {
        match member.next_event().await.expect("the test has what it needs") {
            GroupEvent::PlanWanted { .. } => member.plan(Vec::new()),
            GroupEvent::Assigned { grant, .. } => return grant,
            event => unreachable!("{event:?} came to a member alone"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn everything_is_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let broker = open(directory.path());
    let lines = create(&broker, "lines", 2, &[("retention.ms", "77")]).await;
    let gone = create(&broker, "gone", 1, &[]).await;
    let at = TopicPartition::new("lines", 1);
    write_values(&broker, &at, &["a", "b", "c", "d", "e"]).await;
    delete_before(&broker, &at, 3).await;
    let grant = join_alone(&broker, None).await;
    let commit =
        OffsetCommit { topic_partition: at.clone(), offset: 4, metadata: "m \"\n".to_owned() };
    broker.commit_offsets(&grant, &[commit]).await.unwrap();
    broker.delete_topic(&gone.name).await.unwrap();
    drop(broker);

    let broker = open(directory.path());
    assert_eq!(broker.list_topics().await.unwrap(), [lines]);
    let configs = broker.topic_configs(&"lines".into()).await.unwrap();
    assert_eq!((&*configs["retention.ms"], &*configs["segment.bytes"]), ("77", "200"));
    assert_eq!(log_text(&broker, &at).await, "3..5 3:key=d 4:key=e");
    assert_eq!(log_text(&broker, &TopicPartition::new("lines", 0)).await, "0..0");
    let committed =
        broker.committed_offsets(&"app".into(), std::slice::from_ref(&at), true).await.unwrap();
    let committed = committed[0].as_ref().unwrap();
    assert_eq!((committed.offset, &*committed.metadata), (4, "m \"\n"));
    write_values(&broker, &at, &["f"]).await;
    assert_eq!(log_text(&broker, &at).await, "3..6 3:key=d 4:key=e 5:key=f");
    let again = create(&broker, "gone", 1, &[]).await;
    assert_ne!(again.id, gone.id, "ids are not used twice, not even after a restart");
}

/// Each broker counts its members: the second one gives the id that the first one gave.
#[tokio::test(start_paused = true)]
async fn a_member_does_not_take_itself_for_the_one_whose_place_it_takes() {
    let gone = join_alone(&Embedded::in_memory_with(quiet()), None).await;
    let broker = Embedded::in_memory_with(quiet());
    let back = join_alone(&broker, Some(gone.member_id.clone())).await;
    assert_eq!((back.member_id, back.generation), (gone.member_id, 1));
}

#[tokio::test(start_paused = true)]
async fn no_two_members_of_a_directory_have_the_same_id() {
    let directory = tempfile::tempdir().unwrap();
    let mut ids = BTreeSet::new();
    for _ in 0..3 {
        let broker = open(directory.path());
        ids.insert(join_alone(&broker, None).await.member_id);
        broker.restart().unwrap();
        ids.insert(join_alone(&broker, None).await.member_id);
    }
    assert_eq!(ids.len(), 6, "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_back_takes_out_nobody_but_the_one_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let gone = join_alone(&open(directory.path()), None).await.member_id;
    let broker = open(directory.path());
    let other = join_alone(&broker, None).await.member_id;
    let mut back = broker.membership(options(Some(gone)));
    back.join(bytes::Bytes::new());
    // It comes in when the other one has come too, or is over.
    let joined = tokio::time::timeout(Duration::from_secs(5), back.next_event()).await;
    assert!(joined.is_err(), "{joined:?}");
    let group = broker.describe_group(&"app".into()).await.unwrap();
    let ids: Vec<_> = group.members.into_iter().map(|member| member.member_id).collect();
    assert!(ids.len() == 2 && ids.contains(&other), "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn an_emptied_log_keeps_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let broker = open(directory.path());
    create(&broker, "lines", 1, &[]).await;
    let at = TopicPartition::new("lines", 0);
    write_values(&broker, &at, &["a", "b", "c"]).await;
    delete_before(&broker, &at, 3).await;
    assert_eq!(files(directory.path()).iter().map(|(_, size)| size).sum::<u64>(), 0);
    drop(broker);
    let broker = open(directory.path());
    assert_eq!(log_text(&broker, &at).await, "3..3");
    write_values(&broker, &at, &["d"]).await;
    assert_eq!(log_text(&broker, &at).await, "3..4 3:key=d");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_deletion_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let broker = open(directory.path());
    create(&broker, "lines", 1, &[]).await;
    let at = TopicPartition::new("lines", 0);
    write_values(&broker, &at, &["a", "b", "c", "d", "e"]).await;
    let first = files(directory.path())[0].0.clone();
    let bytes = fs::read(&first).unwrap();
    delete_before(&broker, &at, 3).await;
    assert!(!first.exists());
    drop(broker);
    fs::write(&first, bytes).unwrap();
    let broker = open(directory.path());
    assert_eq!(log_text(&broker, &at).await, "3..5 3:key=d 4:key=e");
    assert!(!first.exists());
}

/// Writes three batches, has somebody damage the file, and tells what a new start makes of it.
async fn check_damage(damage: impl FnOnce(&Path), expected: &Expect) {
    let directory = tempfile::tempdir().expect("a temporary directory is to be had");
    let at = TopicPartition::new("lines", 0);
    {
        let broker =
            Embedded::open(directory.path(), quiet()).expect("the directory can be opened");
        create(&broker, "lines", 1, &[]).await;
        write_values(&broker, &at, &["a", "b", "c"]).await;
    }
    damage(&last_file(directory.path()));
    let broker = Embedded::open(directory.path(), quiet()).expect("the directory can be opened");
    let found = log_text(&broker, &at).await;
    write_values(&broker, &at, &["new"]).await;
    let after = log_text(&broker, &at).await;
    drop(broker);
    let broker = Embedded::open(directory.path(), quiet()).expect("the directory can be opened");
    assert_eq!(log_text(&broker, &at).await, after, "what was written since stays");
    expected.assert_eq(&format!("{found}\n{after}\n"));
}

fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("the test has what it needs");
    let length = file.metadata().expect("the test has what it needs").len();
    file.set_len(length - bytes).expect("the test has what it needs");
}

fn change_byte_from_end(path: &Path, from_end: usize) {
    let mut bytes = fs::read(path).expect("the test has what it needs");
    let index = bytes.len() - from_end;
    bytes[index] ^= 1;
    fs::write(path, bytes).expect("the test has what it needs");
}

#[tokio::test(start_paused = true)]
async fn a_torn_end_is_cut_off() {
    let two_left = expect![[r"
        0..2 0:key=a 1:key=b
        0..3 0:key=a 1:key=b 2:key=new
    "]];
    check_damage(|path| cut(path, 1), &two_left).await;
    check_damage(|path| cut(path, 20), &two_left).await;
    check_damage(|path| change_byte_from_end(path, 1), &two_left).await;
    let three_left = expect![[r"
        0..3 0:key=a 1:key=b 2:key=c
        0..4 0:key=a 1:key=b 2:key=c 3:key=new
    "]];
    let append = |garbage: Vec<u8>| {
        move |path: &Path| {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(&garbage).unwrap();
        }
    };
    check_damage(append(vec![0; 10]), &three_left).await;
    check_damage(append(vec![0; 4096]), &three_left).await;
    check_damage(append(vec![0xff; 4096]), &three_left).await;
}

#[tokio::test(start_paused = true)]
async fn damage_that_is_no_torn_end_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let broker = open(directory.path());
    create(&broker, "lines", 1, &[]).await;
    let at = TopicPartition::new("lines", 0);
    write_values(&broker, &at, &["a", "b", "c", "d", "e"]).await;
    drop(broker);
    let files = files(directory.path());
    assert!(files.len() > 1, "{files:?}");
    cut(&files[0].0, 1);
    let error = Embedded::open(directory.path(), quiet()).unwrap_err();
    let OpenError::DamagedSegment { path, .. } = &error else { panic!("{error}") };
    assert_eq!(*path, files[0].0);
}

/// The checksum of a batch does not cover where it lies.
#[tokio::test(start_paused = true)]
async fn a_wrong_offset_costs_no_batch() {
    let of_first = [3_i64, i64::MAX / 2, i64::MAX - 1, i64::MAX, -1].map(|offset| (false, offset));
    for (is_last, offset) in of_first.into_iter().chain([(true, 0), (true, -1)]) {
        let directory = tempfile::tempdir().unwrap();
        let broker = open(directory.path());
        create(&broker, "lines", 1, &[]).await;
        let at = TopicPartition::new("lines", 0);
        write_values(&broker, &at, &["a", "b", "c", "d", "e"]).await;
        drop(broker);
        let before = files(directory.path());
        assert!(before.len() > 1, "{before:?}");
        let damaged = if is_last { before.len() - 1 } else { 0 };
        let damaged = &before[damaged].0;
        let mut bytes = fs::read(damaged).unwrap();
        bytes[..8].copy_from_slice(&offset.to_be_bytes());
        fs::write(damaged, bytes).unwrap();
        let error = Embedded::open(directory.path(), quiet()).unwrap_err();
        let OpenError::DamagedSegment { path, .. } = &error else { panic!("{offset}: {error}") };
        assert_eq!(path, damaged, "{offset}");
        assert_eq!(files(directory.path()), before, "{offset}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_torn_journal_loses_only_what_was_not_answered() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal");
    let broker = open(directory.path());
    create(&broker, "first", 1, &[]).await;
    create(&broker, "second", 1, &[]).await;
    drop(broker);
    cut(&journal, 3);
    let broker = open(directory.path());
    let names = |topics: Vec<headwater_broker::TopicDescription>| {
        topics.into_iter().map(|topic| topic.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(broker.list_topics().await.unwrap()), ["first"]);
    create(&broker, "second", 1, &[]).await;
    assert_eq!(files(directory.path()).len(), 0, "what the first one left is gone");
    drop(broker);
    change_byte_from_end(&journal, fs::read(&journal).unwrap().len() / 2);
    let error = Embedded::open(directory.path(), quiet()).unwrap_err();
    assert!(matches!(error, OpenError::DamagedJournal { .. }), "{error}");
}

#[test]
fn a_second_broker_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let broker = open(directory.path());
    let error = Embedded::open(directory.path(), quiet()).unwrap_err();
    let expected = format!(
        "directory {} is in use by process {}; a broker's directory belongs to one process at a time",
        directory.path().display(),
        std::process::id()
    );
    assert_eq!(error.to_string(), expected);
    drop(broker);
    open(directory.path());
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("letter.txt");
    fs::write(&file, "Dear reader").unwrap();
    let error = Embedded::open(directory.path(), quiet()).unwrap_err();
    assert!(matches!(error, OpenError::ForeignDirectory { .. }), "{error}");
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
    let error = Embedded::open(&file, quiet()).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_journal_of_a_later_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let json = r#"{"entry":"cluster","format":3,"id":"00000000-0000-0000-0000-000000000007"}"#;
    let line = format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes()));
    fs::write(directory.path().join("journal"), line).unwrap();
    let error = Embedded::open(directory.path(), quiet()).unwrap_err();
    assert!(matches!(error, OpenError::NewerFormat { format: 3, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_long_journal_is_written_anew() {
    let directory = tempfile::tempdir().unwrap();
    let broker = open(directory.path());
    create(&broker, "lines", 1, &[]).await;
    let at = TopicPartition::new("lines", 0);
    let grant = join_alone(&broker, None).await;
    let metadata = "x".repeat(100_000);
    for offset in 0..30 {
        let metadata = metadata.clone();
        let commit = OffsetCommit { topic_partition: at.clone(), offset, metadata };
        broker.commit_offsets(&grant, &[commit]).await.unwrap();
    }
    let length = fs::metadata(directory.path().join("journal")).unwrap().len();
    assert!(length < 2_000_000, "3 MB were committed, {length} bytes are kept");
    drop(broker);
    let broker = open(directory.path());
    let committed = broker.committed_offsets(&"app".into(), &[at], true).await.unwrap();
    assert_eq!(committed[0].as_ref().unwrap().offset, 29);
}

#[tokio::test(start_paused = true)]
async fn readers_go_over_the_borders_of_segments() {
    let directory = tempfile::tempdir().unwrap();
    for fsync in [false, true] {
        let path = directory.path().join(fsync.to_string());
        let options = || EmbeddedOptions::new().segment_bytes(300).fsync(fsync);
        let at = TopicPartition::new("lines", 0);
        let broker = Embedded::open(&path, options()).unwrap();
        create(&broker, "lines", 1, &[]).await;
        for compression in [Compression::None, Compression::Lz4] {
            let batches = (0..10).map(|_| batch(compression, &[(1, "k", "v"), (2, "k", "w")]));
            for result in write(&broker, &at, batches).await {
                result.unwrap();
            }
        }
        let whole = log_text(&broker, &at).await;
        assert_eq!(whole.split(' ').count(), 41);
        drop(broker);
        let broker = Embedded::open(&path, options()).unwrap();
        assert_eq!(log_text(&broker, &at).await, whole);
        let middle = fetch(&broker, &at, 17).await.unwrap();
        assert!(!middle.batches.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn handles_reads_and_writes_outlive_a_deleted_topic() {
    let directory = tempfile::tempdir().unwrap();
    let broker = open(directory.path());
    create(&broker, "lines", 1, &[]).await;
    let at = TopicPartition::new("lines", 0);
    let mut writer = writer(&broker).await;
    send(&mut *writer, &at, "a").await.unwrap();
    broker.delete_topic(&at.topic).await.unwrap();
    let error = send(&mut *writer, &at, "b").await.unwrap_err();
    assert!(matches!(error, BrokerError::UnknownTopic { .. }), "{error}");
    assert_eq!(files(directory.path()), []);
}

#[test]
fn a_closed_directory_is_free_also_while_other_processes_are_being_started() {
    let home = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| {
            let this = std::env::current_exe().unwrap();
            for _ in 0..100 {
                let output = std::process::Command::new(&this).arg("--list").output().unwrap();
                assert!(output.status.success());
            }
        });
        while !starting.is_finished() {
            drop(open(home.path()));
        }
    });
}
