//! What the fuzz target runs, and the test over the kept corpus: a directory with whatever in it.

mod files;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use headwater_broker::{
    Broker, Clock, GroupId, OffsetSpec, Offsets, TopicPartition, Topics, simple,
};
use headwater_records::fuzzing::repair_checksums;
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use self::files::MemoryFiles;
use crate::journal::JOURNAL;
use crate::segment::{Cleaning, file_name};
use crate::{Embedded, EmbeddedOptions, OpenError};

const TOPIC: &str = "lines";
const GROUP: &str = "group";
/// The id of the topic is one higher.
const CLUSTER: Uuid = Uuid::from_u128(0xcb90_42df_6bbf_48fd_b096_0d1a_1c17_b71a);
const NOW_MS: i64 = 1_000_000_000_000;

/// Puts bytes into a directory, as the kind of file that the first byte says, starts a broker in it, has it do
/// all that looks at what it found, and starts it again.
///
/// - 0: the journal,
/// - 1: lines of a journal, each of which gets the checksum that fits,
/// - 2: the log of a topic,
/// - 3: what comes behind a sound log of a topic,
/// - 4: the log of a topic, with checksums that fit,
/// - 5: two segments of one, with checksums that fit; the next four bytes say how long the first is, how it
///   was compacted, and with which offset the second begins,
/// - 6: as 1 up to the first zero, and behind it as 4.
///
/// # Panics
/// If a directory does not look the same to the next broker, or cannot be opened after it was used.
pub fn open_directory(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime can be had");
    let files = MemoryFiles::default();
    let sound = sound(&runtime);
    for (path, bytes) in sound {
        files.put(path, bytes);
    }
    let (log, records) = sound.iter().find(|(path, _)| is_log(path)).expect("records were written");
    let partition = log.parent().expect("a file lies in a directory");
    match kind {
        0 => files.put(&root().join(JOURNAL), data),
        1 => files.put(&root().join(JOURNAL), &checked_lines(data)),
        2 => files.put(log, data),
        3 => files.put(log, &[records, data].concat()),
        4 => files.put(log, &repaired(data)),
        5 => put_segments(&files, partition, data),
        6 => {
            let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
            let (lines, records) = data.split_at(end);
            files.put(&root().join(JOURNAL), &checked_lines(lines));
            files.put(log, &repaired(records.get(1..).unwrap_or_default()));
        }
        _ => return,
    }
    runtime.block_on(async {
        let (first, second) = (look(&files).await, look(&files).await);
        assert_eq!(first, second, "a second start finds the same");
        if let Ok(broker) = open(&files) {
            use_all(&broker).await;
            drop(broker);
            open(&files).expect("what was open and used can be opened again");
        }
    });
}

fn root() -> &'static Path {
    Path::new("/broker")
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == "log")
}

/// The files of a directory as a broker leaves it, with a topic, records, and a log that began again.
fn sound(runtime: &Runtime) -> &'static [(PathBuf, Vec<u8>)] {
    static SOUND: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let files = MemoryFiles::default();
        runtime.block_on(async {
            let broker = open(&files).expect("an empty directory can be used");
            simple::create_topic(&broker, TOPIC, 1).await.expect("the name is free");
            write(&broker).await.expect("there is room");
            broker.change_leader(&TopicPartition::new(TOPIC, 0), 2).expect("there is a leader");
        });
        files.all()
    })
}

async fn write(broker: &Embedded) -> Result<(), headwater_broker::BrokerError> {
    let mut writer = simple::TopicWriter::new(broker, TOPIC).await?;
    for number in 0..3 {
        writer.add(number, Some(b"key"), Some(b"value"))?;
        writer.flush().await?;
    }
    Ok(())
}

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn wall_ms(&self) -> i64 {
        NOW_MS
    }
}

fn open(files: &MemoryFiles) -> Result<Embedded, OpenError> {
    let options = EmbeddedOptions::new()
        .maintenance_interval(None)
        .cluster_id(CLUSTER)
        .segment_bytes(1024)
        .clock(Arc::new(Still))
        .files(Arc::new(files.clone()));
    Embedded::open(root(), options)
}

/// All that a broker says of a directory.
async fn look(files: &MemoryFiles) -> String {
    let broker = match open(files) {
        Ok(broker) => broker,
        Err(error) => return format!("{error} {error:?}"),
    };
    let at = [TopicPartition::new(TOPIC, 0)];
    let topics = broker.list_topics().await.expect("topics are in memory");
    let committed = broker.committed_offsets(&GroupId::from(GROUP), &at, true).await;
    let mut offsets = Vec::new();
    for spec in [OffsetSpec::Earliest, OffsetSpec::Latest, OffsetSpec::AtTimestamp(1)] {
        offsets.push(simple::offsets(&broker, &at, spec).await);
    }
    let records = simple::read_topic(&broker, TOPIC).await;
    format!("{topics:?} {committed:?} {offsets:?} {records:?}")
}

/// Appends, deletes what is old, compacts, and has another leader. What is refused here was damaged before.
async fn use_all(broker: &Embedded) {
    let at = TopicPartition::new(TOPIC, 0);
    let mut refused = vec![write(broker).await.err()];
    refused.extend([NOW_MS, i64::MAX].map(|now_ms| broker.maintain(now_ms).err()));
    refused.push(broker.change_leader(&at, 1).err());
    refused.push(broker.describe_group(&GroupId::from(GROUP)).await.err());
    refused.push(simple::read_topic(broker, TOPIC).await.err());
    black_box(refused);
}

fn put_segments(files: &MemoryFiles, partition: &Path, data: &[u8]) {
    let &[high, low, cleaning, base_offset, ref segments @ ..] = data else { return };
    let length = usize::from(u16::from_be_bytes([high, low])).min(segments.len());
    let (first, second) = segments.split_at(length);
    let cleaning = match cleaning {
        0 => Cleaning::Dirty,
        1 => Cleaning::Clean,
        days => Cleaning::Tombstones { since_ms: NOW_MS - i64::from(days) * 86_400_000 },
    };
    files.put(&partition.join(file_name(0, cleaning)), &repaired(first));
    let name = file_name(i64::from(base_offset), Cleaning::Dirty);
    files.put(&partition.join(name), &repaired(second));
}

fn repaired(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    repair_checksums(&mut bytes);
    bytes
}

fn checked_lines(data: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for line in data.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        lines.extend_from_slice(format!("{:08x} ", crc32c::crc32c(line)).as_bytes());
        lines.extend_from_slice(line);
        lines.push(b'\n');
    }
    lines
}
