//! Opening a log: its segments are found and indexed, and a torn end is cut off.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;
use headwater_records::{Batch, ControlKind};

use crate::directory::delete_file;
use crate::epochs::LeaderEpochs;
use crate::error::OpenError;
use crate::files::{Files, OpenMode, StoredFile};
use crate::frame::{Frame, FrameKind, HEADER_SIZE, marker};
use crate::log::{Place, Recovered};
use crate::producers::Producers;
use crate::segment::{Cleaning, Segment, parse_file_name};
use crate::storage::{FileBytes, SegmentBytes};

/// A segment's file, by its name.
#[derive(Debug)]
struct Found {
    base_offset: i64,
    cleaning: Cleaning,
    path: PathBuf,
}

/// Opens the log in a directory, whose records before `start` are deleted.
pub(super) fn recover(
    files: &Arc<dyn Files>,
    directory: &Path,
    start: i64,
    epochs: LeaderEpochs,
    now_ms: i64,
) -> Result<Recovered, OpenError> {
    let found = find_segments(&**files, directory)?;
    let last = found.len().saturating_sub(1);
    let mut segments: VecDeque<Segment> = VecDeque::new();
    // The offset after the last one found, and the end of the log, which may lie behind it.
    let mut found_until = 0;
    let mut end = start;
    let mut producers = Producers::default();
    let mut before = PathBuf::new();
    for (number, found) in found.into_iter().enumerate() {
        if found.base_offset < found_until {
            // A crash came between putting a merged segment there and removing its parts. What was not
            // compacted is no merged one: it lies about where it ends.
            if segments.back().is_some_and(|segment| segment.cleaning == Cleaning::Dirty) {
                return Err(OpenError::DamagedSegment { path: before, position: 0 });
            }
            delete_file(&**files, &found.path);
            continue;
        }
        before.clone_from(&found.path);
        let segment = open_segment(files, found, number == last, now_ms, |frame, marker| {
            producers.appended(frame, marker);
            found_until = frame.last_offset + 1;
        })?;
        end = end.max(segment.base_offset).max(found_until);
        segments.push_back(segment);
    }
    let needs_active = segments.back().is_none_or(|last| last.cleaning != Cleaning::Dirty);
    if needs_active {
        let place = Place::Directory { files: Arc::clone(files), path: directory.into() };
        segments.push_back(Segment::new(end, place.new_segment(end), now_ms));
    }
    // Deletions that a crash interrupted.
    while segments.get(1).is_some_and(|next| next.base_offset <= start) {
        if let Some(gone) = segments.pop_front() {
            gone.bytes.delete();
        }
    }
    Ok(Recovered { segments, start, end, producers, epochs })
}

/// The segments in order. Of two with the same first offset the more compacted one counts: a
/// crash came between putting it there and removing the other.
fn find_segments(files: &dyn Files, directory: &Path) -> Result<Vec<Found>, OpenError> {
    let failed = |error| OpenError::io("read", directory, error);
    let mut found: Vec<Found> = Vec::new();
    for name in files.names_in(directory).map_err(failed)? {
        let path = directory.join(&name);
        match name.to_str().and_then(parse_file_name) {
            Some((base_offset, cleaning)) => {
                found.push(Found { base_offset, cleaning, path });
            }
            // A compaction that a crash interrupted.
            None if path.extension().is_some_and(|kind| kind == "new") => {
                delete_file(files, &path);
            }
            None => tracing::warn!(path = %path.display(), "an unknown file is left alone"),
        }
    }
    found.sort_by_key(|segment| (segment.base_offset, segment.cleaning));
    let mut kept: Vec<Found> = Vec::new();
    for segment in found {
        if let Some(less_compacted) = kept.pop_if(|last| last.base_offset == segment.base_offset) {
            delete_file(files, &less_compacted.path);
        }
        kept.push(segment);
    }
    Ok(kept)
}

/// Indexes a segment by the headers of its batches. In the last one of a log each batch is also
/// checked, and what follows the last good one is cut off.
fn open_segment(
    files: &Arc<dyn Files>,
    found: Found,
    is_last: bool,
    now_ms: i64,
    mut each: impl FnMut(&Frame, Option<ControlKind>),
) -> Result<Segment, OpenError> {
    let Found { base_offset, cleaning, path } = found;
    let failed = |error| OpenError::io("read", &path, error);
    let mode = if is_last { OpenMode::Write } else { OpenMode::Read };
    let file = files.open(&path, mode).map_err(failed)?;
    let length = file.length().map_err(failed)?;
    let mut frames: Vec<(Frame, Option<ControlKind>, u64)> = Vec::new();
    let mut position = 0;
    while position < length {
        let due = frames.last().map_or(base_offset, |(last, ..)| last.last_offset + 1);
        match read_frame(&*file, position, length, is_last) {
            // A checksum fits, so this is no torn end, whatever the offset says that it does not cover.
            Ok((frame, _)) if !frame.is_from(due) => {
                return Err(OpenError::DamagedSegment { path, position });
            }
            Ok((frame, marker)) => {
                frames.push((frame, marker, position));
                position += frame.size as u64;
            }
            Err(error) if is_last && error.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!(
                    path = %path.display(),
                    position,
                    bytes = length - position,
                    %error,
                    "a torn end was cut off"
                );
                file.set_length(position).map_err(failed)?;
                break;
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(OpenError::DamagedSegment { path, position });
            }
            Err(error) => return Err(failed(error)),
        }
    }
    let bytes = SegmentBytes::File(FileBytes::new(files, path, position));
    let mut segment = Segment::new(base_offset, bytes, now_ms);
    segment.cleaning = cleaning;
    for (frame, marker, position) in &frames {
        segment.index(frame, *position);
        each(frame, *marker);
    }
    Ok(segment)
}

/// The header of the batch at `position`, and what it says if it is a transaction marker.
fn read_frame(
    file: &dyn StoredFile,
    position: u64,
    length: u64,
    check: bool,
) -> io::Result<(Frame, Option<ControlKind>)> {
    let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let rest = length - position;
    if rest < HEADER_SIZE as u64 {
        return Err(damaged("a header is cut off"));
    }
    let mut header = [0; HEADER_SIZE];
    file.read_exact_at(&mut header, position)?;
    let frame = Frame::read_anywhere(&header)?;
    if frame.size as u64 > rest {
        return Err(damaged("a batch is cut off"));
    }
    let is_marker = frame.kind == FrameKind::Control;
    if !check && !is_marker {
        return Ok((frame, None));
    }
    let mut bytes = BytesMut::zeroed(frame.size);
    file.read_exact_at(&mut bytes, position)?;
    let bytes = bytes.freeze();
    if check {
        let batch = Batch::new(bytes.clone());
        let checked = batch.and_then(|batch| batch.check_crc());
        checked.map_err(|error| damaged(&error.to_string()))?;
    }
    Ok((frame, if is_marker { marker(bytes)? } else { None }))
}
