//! Compaction: of each key only the last value stays, and a tombstone until
//! `delete.retention.ms` has passed since it was compacted first. The segment with the newest
//! record is never touched, nor what is younger than `min.compaction.lag.ms`, nor what lies behind
//! the beginning of an open transaction. Records of aborted transactions go, and the markers of
//! transactions when tombstones of their time go.
//!
//! The keys of the segments that are not compacted yet are held in memory meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use headwater_broker::BrokerError;
use headwater_records::{Batch, RecordRef, RecordsError, Retained};

use super::Maintained;
use crate::config::LogConfig;
use crate::directory::delete_file;
use crate::error::storage_error;
use crate::files::{Files, OpenMode};
use crate::frame::Frame;
use crate::log::{DECOMPRESSED_MAX, Log, Place};
use crate::partition::Partition;
use crate::producers::AbortedList;
use crate::segment::{Cleaning, Segment, file_name};
use crate::storage::{FileBytes, SegmentBytes, Snapshot, WriteOptions, sync_directory_of};

/// What counts of a sealed segment.
#[derive(Clone, Copy, Debug)]
struct Facts {
    base_offset: i64,
    /// Where the next one begins.
    end_offset: i64,
    size: u64,
    max_timestamp: i64,
    cleaning: Cleaning,
}

/// Compacts the sealed segments of a log, if there is reason to.
pub(super) fn compact(
    partition: &Partition,
    config: &LogConfig,
    now_ms: i64,
    done: &mut Maintained,
) -> Result<(), BrokerError> {
    let (facts, aborted) =
        partition.with_log(|log| Ok((sealed(log), log.producers().aborted().clone())))?;
    let groups = plan(&facts, config, now_ms);
    let Some(until) = groups.last().map(|group| group.end) else { return Ok(()) };
    let tombstones_from_ms = now_ms.saturating_sub(config.delete_retention_ms);
    let last_offsets = last_offsets(partition, &facts[..until], &aborted)?;
    let with_data = BTreeSet::new();
    let mut pass = Pass { last_offsets, aborted, with_data, tombstones_from_ms, now_ms };
    for group in groups {
        pass.rewrite(partition, &facts[group], done)?;
    }
    Ok(())
}

/// The segments behind the one with the newest record. That stays as it is, so that a reader that
/// goes by what it finds always gets to the end of the log.
fn sealed(log: &Log) -> Vec<Facts> {
    let newest = log.segments().iter().rposition(|segment| !segment.is_empty());
    let count = newest.unwrap_or(0);
    let stable = log.bounds().last_stable;
    let segments = log.segments().iter().zip(log.segments().iter().skip(1)).take(count);
    segments
        .take_while(|(_, next)| next.base_offset <= stable)
        .map(|(segment, next)| Facts {
            base_offset: segment.base_offset,
            end_offset: next.base_offset,
            size: segment.bytes.length(),
            max_timestamp: segment.max_timestamp.unwrap_or(i64::MIN),
            cleaning: segment.cleaning,
        })
        .collect()
}

/// Which segments are to be rewritten, in groups that become one segment each; none if there is
/// no reason to. A segment comes alone, save those that were clean before: they shrink, so they
/// are put together as long as they fit into one.
fn plan(segments: &[Facts], config: &LogConfig, now_ms: i64) -> Vec<Range<usize>> {
    let too_young = |segment: &Facts| {
        segment.cleaning == Cleaning::Dirty
            && config.min_compaction_lag_ms > 0
            && segment.max_timestamp > now_ms.saturating_sub(config.min_compaction_lag_ms)
    };
    let count = segments.iter().position(too_young).unwrap_or(segments.len());
    let segments = &segments[..count];
    let size_of = |wanted: fn(&Facts) -> bool| -> u64 {
        segments.iter().filter(|segment| wanted(segment)).map(|segment| segment.size).sum()
    };
    let total = size_of(|_| true);
    let dirty = size_of(|segment| segment.cleaning == Cleaning::Dirty);
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more precision")]
    let is_dirty = dirty > 0 && dirty as f64 >= config.min_cleanable_dirty_ratio * total as f64;
    let has_old_tombstones = segments.iter().any(|segment| match segment.cleaning {
        Cleaning::Tombstones { since_ms } => {
            now_ms.saturating_sub(since_ms) >= config.delete_retention_ms
        }
        Cleaning::Dirty | Cleaning::Clean => false,
    });
    if !is_dirty && !has_old_tombstones {
        return Vec::new();
    }
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut group_size = 0;
    for (index, segment) in segments.iter().enumerate() {
        let is_clean = |index: usize| segments[index].cleaning == Cleaning::Clean;
        match groups.last_mut() {
            Some(group)
                if is_clean(index)
                    && is_clean(group.start)
                    && group_size + segment.size <= config.segment_bytes =>
            {
                group.end += 1;
                group_size += segment.size;
            }
            _ => {
                groups.push(index..index + 1);
                group_size = segment.size;
            }
        }
    }
    groups
}

/// The last offset of each key of the segments that are not compacted yet: what a clean segment
/// holds can only be superseded by these.
fn last_offsets(
    partition: &Partition,
    segments: &[Facts],
    aborted: &AbortedList,
) -> Result<HashMap<Box<[u8]>, i64>, BrokerError> {
    let mut offsets: HashMap<Box<[u8]>, i64> = HashMap::new();
    for facts in segments.iter().filter(|facts| facts.cleaning == Cleaning::Dirty) {
        let Some(snapshot) = snapshot(partition, facts)? else { continue };
        let read = snapshot.for_each(|bytes| {
            let batch = Batch::new(bytes).map_err(io::Error::other)?;
            if batch.header().is_control || aborted.holds(batch.header()) {
                return Ok(());
            }
            // What cannot be read supersedes nothing; the second pass reports it.
            let Ok(records) = batch.decompress(DECOMPRESSED_MAX) else { return Ok(()) };
            for record in records.iter().map_while(Result::ok) {
                let Some(key) = record.key else { continue };
                match offsets.get_mut(key) {
                    Some(last) => *last = record.offset,
                    None => {
                        offsets.insert(key.into(), record.offset);
                    }
                }
            }
            Ok(())
        });
        read.map_err(|error| failure("read", partition, &error))?;
    }
    Ok(offsets)
}

/// The second pass over a log.
struct Pass {
    last_offsets: HashMap<Box<[u8]>, i64>,
    aborted: AbortedList,
    /// Producers of kept records whose marker has not come yet.
    with_data: BTreeSet<i64>,
    /// Tombstones compacted first at this time or before may go.
    tombstones_from_ms: i64,
    now_ms: i64,
}

/// A compacted segment being written.
struct Output {
    segment: Segment,
    /// The file it is in, under a name that no log reads.
    file: Option<(Arc<dyn Files>, PathBuf)>,
    has_tombstones: bool,
    removed: u64,
}

impl Pass {
    /// Writes a group of segments anew as one and puts it in their place.
    fn rewrite(
        &mut self,
        partition: &Partition,
        group: &[Facts],
        done: &mut Maintained,
    ) -> Result<(), BrokerError> {
        let (base_offset, end_offset) = (group[0].base_offset, group[group.len() - 1].end_offset);
        let mut output = Output::new(partition, base_offset, self.now_ms)?;
        for facts in group {
            let Some(snapshot) = snapshot(partition, facts)? else {
                output.remove_file();
                return Ok(());
            };
            let written = snapshot.for_each(|bytes| self.take(&mut output, bytes, facts.cleaning));
            if let Err(error) = written {
                output.remove_file();
                return Err(failure("compact", partition, &error));
            }
        }
        let cleaning = match (output.has_tombstones, group[0].cleaning) {
            (false, _) => Cleaning::Clean,
            (true, Cleaning::Tombstones { since_ms }) => Cleaning::Tombstones { since_ms },
            (true, Cleaning::Dirty | Cleaning::Clean) => {
                Cleaning::Tombstones { since_ms: self.now_ms }
            }
        };
        if output.removed == 0 && group.len() == 1 && cleaning == group[0].cleaning {
            output.remove_file();
            return partition.with_log(|log| {
                log.forget_aborted_before(end_offset);
                Ok(())
            });
        }
        done.records_removed += output.removed;
        done.segments_compacted += group.len();
        tracing::debug!(
            partition = %partition.topic_partition(),
            base_offset,
            removed = output.removed,
            "a segment is compacted"
        );
        partition.with_log(|log| {
            output.install(log, group, cleaning)?;
            // No record of what was aborted up to there is left.
            log.forget_aborted_before(end_offset);
            Ok(())
        })
    }

    /// Takes over what is to be kept of a batch.
    fn take(&mut self, output: &mut Output, bytes: Bytes, cleaning: Cleaning) -> io::Result<()> {
        let batch = Batch::new(bytes).map_err(io::Error::other)?;
        let header = batch.header();
        if header.is_control {
            // As long as records of its transaction are there it says that they count.
            let has_data = self.with_data.remove(&header.producer_id);
            return if has_data || self.keeps_tombstones(cleaning) {
                output.has_tombstones |= !has_data;
                output.put(batch.bytes().clone())
            } else {
                output.removed += 1;
                Ok(())
            };
        }
        if self.aborted.holds(header) {
            output.removed += u64::from(header.record_count);
            return Ok(());
        }
        let is_kept = output.take(&batch, |record| self.keeps(record, cleaning))?;
        if is_kept && header.is_transactional {
            self.with_data.insert(header.producer_id);
        }
        Ok(())
    }

    fn keeps_tombstones(&self, cleaning: Cleaning) -> bool {
        match cleaning {
            Cleaning::Tombstones { since_ms } => since_ms > self.tombstones_from_ms,
            Cleaning::Dirty | Cleaning::Clean => true,
        }
    }

    fn keeps(&self, record: &RecordRef<'_>, cleaning: Cleaning) -> bool {
        // Without a key nothing can supersede it.
        let Some(key) = record.key else { return true };
        if self.last_offsets.get(key).is_some_and(|last| *last > record.offset) {
            return false;
        }
        record.value.is_some() || self.keeps_tombstones(cleaning)
    }
}

impl Output {
    fn new(partition: &Partition, base_offset: i64, now_ms: i64) -> Result<Self, BrokerError> {
        let place = partition.with_log(|log| Ok(log.place().clone()))?;
        let file = match &place {
            Place::Memory => None,
            Place::Directory { files, path } => {
                Some((Arc::clone(files), path.join(format!("{base_offset:020}.new"))))
            }
        };
        let bytes = match &file {
            None => place.new_segment(base_offset),
            Some((files, path)) => {
                files.open(path, OpenMode::Anew).map_err(|error| {
                    storage_error("create", &path.display().to_string(), &error)
                })?;
                SegmentBytes::File(FileBytes::new(files, path.clone(), 0))
            }
        };
        let segment = Segment::new(base_offset, bytes, now_ms);
        Ok(Self { segment, file, has_tombstones: false, removed: 0 })
    }

    /// Takes over the records that are to be kept of a batch; true if there are any.
    fn take(
        &mut self,
        batch: &Batch,
        mut keeps: impl FnMut(&RecordRef<'_>) -> bool,
    ) -> io::Result<bool> {
        let mut has_tombstones = false;
        let retained = batch.retain(DECOMPRESSED_MAX, |record| {
            let kept = keeps(record);
            has_tombstones |= kept && record.key.is_some() && record.value.is_none();
            kept
        });
        self.has_tombstones |= has_tombstones;
        match retained {
            Ok(Retained::All) => self.put(batch.bytes().clone())?,
            Ok(Retained::Some { batch: bytes, removed }) => {
                self.removed += removed;
                self.put(bytes)?;
            }
            Ok(Retained::Nothing { removed }) => {
                self.removed += removed;
                return Ok(false);
            }
            Err(error) => self.put_unreadable(batch, &error)?,
        }
        Ok(true)
    }

    /// What cannot be read is not lost by compaction.
    fn put_unreadable(&mut self, batch: &Batch, error: &RecordsError) -> io::Result<()> {
        tracing::warn!(
            base_offset = batch.header().base_offset,
            %error,
            "a batch cannot be read and is kept as it is"
        );
        self.put(batch.bytes().clone())
    }

    fn put(&mut self, bytes: Bytes) -> io::Result<()> {
        let frame = Frame::read(&bytes)?;
        let options = WriteOptions { fsync: false, disk_full_after: None };
        self.segment.append(&frame, bytes, options)
    }

    /// Puts the segment in the place of those it was made of, unless they are gone.
    fn install(
        mut self,
        log: &mut Log,
        group: &[Facts],
        cleaning: Cleaning,
    ) -> Result<(), BrokerError> {
        let base_offset = group[0].base_offset;
        let segments = log.segments_mut();
        let found = segments.iter().position(|found| found.base_offset == base_offset);
        // Behind them is at least the active one, unless a change of leader has cut them off.
        let Some(first) = found.filter(|first| first + group.len() < segments.len()) else {
            self.remove_file();
            return Ok(());
        };
        self.segment.cleaning = cleaning;
        let is_empty = self.segment.is_empty();
        if let Some((files, path)) = self.file.take_if(|_| !is_empty) {
            self.segment.bytes.seal();
            let target = path.with_file_name(file_name(base_offset, cleaning));
            move_file(&*files, &path, &target)
                .map_err(|error| storage_error("write", &target.display().to_string(), &error))?;
            self.segment.bytes =
                SegmentBytes::File(FileBytes::new(&files, target, self.segment.bytes.length()));
        } else if is_empty {
            self.remove_file();
        }
        let new_path = self.segment.bytes.path().cloned();
        let replaced: Vec<Segment> = segments.drain(first..first + group.len()).collect();
        if !is_empty {
            segments.insert(first, self.segment);
        }
        for old in replaced.iter().map(|old| &old.bytes) {
            if is_empty || new_path.as_ref() != old.path() {
                old.delete();
            }
        }
        Ok(())
    }

    /// Removes the file, if there is one.
    fn remove_file(&self) {
        if let Some((files, path)) = &self.file {
            delete_file(&**files, path);
        }
    }
}

fn move_file(files: &dyn Files, from: &Path, to: &Path) -> io::Result<()> {
    files.open(from, OpenMode::Read)?.sync()?;
    files.rename(from, to)?;
    sync_directory_of(files, to)
}

/// The batches of a segment; `None` if it is gone.
fn snapshot(partition: &Partition, facts: &Facts) -> Result<Option<Snapshot>, BrokerError> {
    let found = partition.with_log(|log| {
        let mut segments = log.segments().iter();
        let found = segments.find(|segment| segment.base_offset == facts.base_offset);
        Ok(found.map(|segment| segment.bytes.snapshot()))
    })?;
    found.transpose().map_err(|error| failure("read", partition, &error))
}

fn failure(operation: &str, partition: &Partition, error: &io::Error) -> BrokerError {
    storage_error(operation, &partition.topic_partition().to_string(), error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::in_force;

    /// Segments as `(size, newest timestamp, cleaning)`.
    fn check(
        configs: &[(&str, &str)],
        segments: &[(u64, i64, Cleaning)],
        now_ms: i64,
        expected: &[(usize, usize)],
    ) {
        let given: BTreeMap<_, _> =
            configs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let config = LogConfig::new(&in_force(&given, 100));
        let facts: Vec<Facts> = (0..)
            .zip(segments)
            .map(|(number, (size, max_timestamp, cleaning))| Facts {
                base_offset: number * 10,
                end_offset: number * 10 + 10,
                size: *size,
                max_timestamp: *max_timestamp,
                cleaning: *cleaning,
            })
            .collect();
        let groups: Vec<_> =
            plan(&facts, &config, now_ms).iter().map(|group| (group.start, group.end)).collect();
        assert_eq!(groups, expected, "{configs:?} {segments:?} at {now_ms}");
    }

    #[test]
    fn it_takes_enough_dirt() {
        use Cleaning::{Clean, Dirty};
        let half = [(50, 0, Clean), (50, 0, Dirty)];
        check(&[], &[], 0, &[]);
        check(&[], &half, 0, &[(0, 1), (1, 2)]);
        check(&[("min.cleanable.dirty.ratio", "0.6")], &half, 0, &[]);
        check(&[("min.cleanable.dirty.ratio", "0")], &[(50, 0, Clean)], 0, &[]);
    }

    #[test]
    fn or_tombstones_whose_time_is_over() {
        let waiting = [(50, 0, Cleaning::Tombstones { since_ms: 1000 })];
        let retention = [("delete.retention.ms", "100")];
        check(&retention, &waiting, 1099, &[]);
        check(&retention, &waiting, 1100, &[(0, 1)]);
    }

    #[test]
    fn what_is_too_young_is_left_alone_with_all_behind_it() {
        use Cleaning::{Clean, Dirty};
        let lag = [("min.compaction.lag.ms", "100")];
        let segments = [(10, 990, Clean), (50, 900, Dirty), (50, 901, Dirty), (50, 0, Dirty)];
        check(&lag, &segments, 1000, &[(0, 1), (1, 2)]);
    }

    #[test]
    fn clean_ones_are_put_together_while_they_fit() {
        use Cleaning::{Clean, Dirty, Tombstones};
        let segments = [
            (40, 0, Clean),
            (60, 0, Clean),
            (10, 0, Clean),
            (10, 0, Tombstones { since_ms: 0 }),
            (10, 0, Clean),
            (500, 0, Dirty),
        ];
        check(&[], &segments, 0, &[(0, 2), (2, 3), (3, 4), (4, 5), (5, 6)]);
    }
}
