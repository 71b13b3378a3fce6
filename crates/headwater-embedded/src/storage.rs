//! The bytes of one segment: in memory, or in a file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::directory::delete_file;
use crate::files::{Files, OpenMode, StoredFile};
use crate::frame::{Frame, HEADER_SIZE};

/// Batches read at once are put together into one piece up to this size.
const MERGE_MAX: usize = 1024 * 1024;

/// The bytes of one segment: whole batches, one after the other.
#[derive(Debug)]
pub(crate) enum SegmentBytes {
    Memory(MemoryBytes),
    File(FileBytes),
}

/// A stretch of a segment, to be read when no lock is held.
#[derive(Debug)]
pub(crate) enum Stretch {
    Here(Bytes),
    InFile { file: Arc<dyn StoredFile>, path: Arc<Path>, position: u64, length: usize },
}

/// How the bytes are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOptions {
    /// Whether each write is followed by fsync.
    pub(crate) fsync: bool,
    /// How many bytes arrive before the disk is full, by order of a fault plan.
    pub(crate) disk_full_after: Option<usize>,
}

impl SegmentBytes {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Memory(memory) => memory.length,
            Self::File(file) => file.length,
        }
    }

    /// Appends one batch. After an error the segment is as it was before.
    pub(crate) fn append(&mut self, batch: Bytes, options: WriteOptions) -> io::Result<()> {
        match self {
            Self::Memory(memory) => memory.append(batch, options),
            Self::File(file) => file.append(&batch, options),
        }
    }

    /// A look at the headers of batches.
    pub(crate) fn frames(&self) -> io::Result<Frames<'_>> {
        Ok(match self {
            Self::Memory(memory) => Frames::Memory(memory),
            Self::File(file) => Frames::File(file.open_to_read()?),
        })
    }

    /// About `length` bytes from `position`, where a batch begins: fewer at the end of the
    /// segment, and in memory where that saves a copy, but always the whole first batch if
    /// `length` covers it.
    pub(crate) fn stretch(&mut self, position: u64, length: usize) -> io::Result<Stretch> {
        match self {
            Self::Memory(memory) => memory.read(position, length).map(Stretch::Here),
            Self::File(file) => {
                let rest = usize::try_from(file.length - position).unwrap_or(usize::MAX);
                Ok(Stretch::InFile {
                    file: file.open_to_read()?,
                    path: Arc::clone(&file.path),
                    position,
                    length: length.min(rest),
                })
            }
        }
    }

    /// The whole segment, to be read when no lock is held.
    pub(crate) fn snapshot(&self) -> io::Result<Snapshot> {
        match self {
            Self::Memory(memory) => Ok(Snapshot::Memory(
                memory.pieces.iter().map(|piece| piece.bytes.clone()).collect(),
            )),
            Self::File(file) => {
                Ok(Snapshot::File { file: file.open_to_read()?, length: file.length })
            }
        }
    }

    /// Where the bytes are, for errors.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Memory(_) => "memory".to_owned(),
            Self::File(file) => file.path.display().to_string(),
        }
    }

    /// The file, if it is one.
    pub(crate) fn path(&self) -> Option<&Arc<Path>> {
        match self {
            Self::Memory(_) => None,
            Self::File(file) => Some(&file.path),
        }
    }

    /// Removes the file, if it is one.
    pub(crate) fn delete(&self) {
        if let Self::File(file) = self {
            delete_file(&*file.files, &file.path);
        }
    }

    /// Makes the file if it is one and is not there.
    pub(crate) fn create(&mut self) -> io::Result<()> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(file) => file.open_to_write().map(drop),
        }
    }

    /// Cuts off what lies behind `position`, where a batch begins.
    pub(crate) fn truncate(&mut self, position: u64) -> io::Result<()> {
        match self {
            Self::Memory(memory) => memory.truncate(position),
            Self::File(file) => {
                file.open_to_write()?.set_length(position)?;
                file.length = position;
            }
        }
        Ok(())
    }

    /// Nothing will be appended any more, so no file need be kept open.
    pub(crate) fn seal(&mut self) {
        if let Self::File(file) = self {
            file.open = None;
        }
    }
}

/// The headers of a segment's batches.
#[derive(Debug)]
pub(crate) enum Frames<'a> {
    Memory(&'a MemoryBytes),
    File(Arc<dyn StoredFile>),
}

impl Frames<'_> {
    /// The header of the batch at `position`.
    pub(crate) fn at(&self, position: u64) -> io::Result<Frame> {
        match self {
            Self::Memory(memory) => Frame::read(&memory.rest_of_piece(position)?),
            Self::File(file) => {
                let mut header = [0; HEADER_SIZE];
                file.read_exact_at(&mut header, position)?;
                Frame::read(&header)
            }
        }
    }

    /// The batch of `size` bytes at `position`.
    pub(crate) fn batch_at(&self, position: u64, size: usize) -> io::Result<Bytes> {
        match self {
            Self::Memory(memory) => {
                let mut rest = memory.rest_of_piece(position)?;
                rest.truncate(size);
                Ok(rest)
            }
            Self::File(file) => {
                let mut bytes = BytesMut::zeroed(size);
                file.read_exact_at(&mut bytes, position)?;
                Ok(bytes.freeze())
            }
        }
    }
}

impl Stretch {
    /// The bytes.
    pub(crate) fn load(self) -> io::Result<Bytes> {
        match self {
            Self::Here(bytes) => Ok(bytes),
            Self::InFile { file, path: _, position, length } => {
                let mut bytes = BytesMut::zeroed(length);
                file.read_exact_at(&mut bytes, position)?;
                Ok(bytes.freeze())
            }
        }
    }

    /// Where the bytes are, for errors.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Here(_) => "memory".to_owned(),
            Self::InFile { path, .. } => path.display().to_string(),
        }
    }
}

/// A sealed segment as it is now.
#[derive(Debug)]
pub(crate) enum Snapshot {
    Memory(Vec<Bytes>),
    File { file: Arc<dyn StoredFile>, length: u64 },
}

impl Snapshot {
    /// Goes through the batches in order.
    pub(crate) fn for_each(&self, mut each: impl FnMut(Bytes) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Memory(pieces) => {
                for piece in pieces {
                    let mut rest = piece.clone();
                    while !rest.is_empty() {
                        let size = Frame::read(&rest)?.size.min(rest.len());
                        each(rest.split_to(size))?;
                    }
                }
            }
            Self::File { file, length } => {
                let mut position = 0;
                while position < *length {
                    let mut header = [0; HEADER_SIZE];
                    file.read_exact_at(&mut header, position)?;
                    let mut batch = BytesMut::zeroed(Frame::read(&header)?.size);
                    file.read_exact_at(&mut batch, position)?;
                    position += batch.len() as u64;
                    each(batch.freeze())?;
                }
            }
        }
        Ok(())
    }
}

/// A segment in memory. A batch is handed out as it was appended; batches that are read together
/// are put together once, so that the next reader gets them without a copy.
#[derive(Debug, Default)]
pub(crate) struct MemoryBytes {
    pieces: Vec<Piece>,
    length: u64,
}

/// One or several whole batches.
#[derive(Debug)]
struct Piece {
    position: u64,
    bytes: Bytes,
}

impl MemoryBytes {
    fn append(&mut self, batch: Bytes, options: WriteOptions) -> io::Result<()> {
        if options.disk_full_after.is_some() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let size = batch.len() as u64;
        self.pieces.push(Piece { position: self.length, bytes: batch });
        self.length += size;
        Ok(())
    }

    /// Lets go of what lies before `position`, where a batch begins.
    pub(crate) fn forget_before(&mut self, position: u64) {
        let end = |piece: &Piece| piece.position + piece.bytes.len() as u64;
        let count = self.pieces.partition_point(|piece| end(piece) <= position);
        self.pieces.drain(..count);
    }

    fn truncate(&mut self, position: u64) {
        self.pieces.retain(|piece| piece.position < position);
        if let Some(last) = self.pieces.last_mut() {
            let left = usize::try_from(position - last.position).unwrap_or(usize::MAX);
            last.bytes.truncate(left);
        }
        self.length = position;
    }

    /// The piece that `position` lies in.
    fn piece_at(&self, position: u64) -> io::Result<(usize, usize)> {
        let after = self.pieces.partition_point(|piece| piece.position <= position);
        let found = after.checked_sub(1).filter(|_| position < self.length);
        let index = found.ok_or(io::ErrorKind::UnexpectedEof)?;
        let within = usize::try_from(position - self.pieces[index].position)
            .expect("a position within a piece is within memory");
        Ok((index, within))
    }

    fn rest_of_piece(&self, position: u64) -> io::Result<Bytes> {
        let (index, within) = self.piece_at(position)?;
        Ok(self.pieces[index].bytes.slice(within..))
    }

    fn read(&mut self, position: u64, length: usize) -> io::Result<Bytes> {
        let (first, within) = self.piece_at(position)?;
        let first_bytes = &self.pieces[first].bytes;
        if within > 0 || first_bytes.len() >= length {
            return Ok(first_bytes.slice(within..));
        }
        let limit = length.min(MERGE_MAX);
        let mut size = first_bytes.len();
        let mut end = first + 1;
        while let Some(next) = self.pieces.get(end).filter(|p| size + p.bytes.len() <= limit) {
            size += next.bytes.len();
            end += 1;
        }
        if end - first > 1 {
            let mut merged = BytesMut::with_capacity(size);
            for piece in &self.pieces[first..end] {
                merged.extend_from_slice(&piece.bytes);
            }
            self.pieces[first].bytes = merged.freeze();
            self.pieces.drain(first + 1..end);
        }
        Ok(self.pieces[first].bytes.clone())
    }
}

/// A segment in a file.
#[derive(Debug)]
pub(crate) struct FileBytes {
    files: Arc<dyn Files>,
    path: Arc<Path>,
    length: u64,
    /// Kept open while the segment is written to.
    open: Option<Arc<dyn StoredFile>>,
    /// Bytes of a failed write may lie behind the end and could not be cut off yet.
    torn: bool,
}

impl FileBytes {
    /// The segment in the file at `path`, of which `length` bytes are good.
    pub(crate) fn new(files: &Arc<dyn Files>, path: PathBuf, length: u64) -> Self {
        let files = Arc::clone(files);
        Self { files, path: path.into(), length, open: None, torn: false }
    }

    fn append(&mut self, batch: &[u8], options: WriteOptions) -> io::Result<()> {
        let file = self.open_to_write()?;
        if self.torn {
            file.set_length(self.length)?;
            self.torn = false;
        }
        match write(&*file, batch, self.length, options) {
            Ok(()) => {
                self.length += batch.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.torn = file.set_length(self.length).is_err();
                Err(error)
            }
        }
    }

    fn open_to_write(&mut self) -> io::Result<Arc<dyn StoredFile>> {
        if let Some(file) = &self.open {
            return Ok(Arc::clone(file));
        }
        let is_new = !self.files.exists(&self.path);
        let file = self.files.open(&self.path, OpenMode::Write)?;
        if is_new {
            sync_directory_of(&*self.files, &self.path)?;
        }
        self.open = Some(Arc::clone(&file));
        Ok(file)
    }

    fn open_to_read(&self) -> io::Result<Arc<dyn StoredFile>> {
        match &self.open {
            Some(file) => Ok(Arc::clone(file)),
            None => self.files.open(&self.path, OpenMode::Read),
        }
    }
}

/// Makes a rename or a new file in the directory of `path` durable.
pub(crate) fn sync_directory_of(files: &dyn Files, path: &Path) -> io::Result<()> {
    files.sync_directory(path.parent().unwrap_or(path))
}

fn write(
    file: &dyn StoredFile,
    bytes: &[u8],
    position: u64,
    options: WriteOptions,
) -> io::Result<()> {
    if let Some(written) = options.disk_full_after {
        file.write_all_at(&bytes[..written.min(bytes.len())], position)?;
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.write_all_at(bytes, position)?;
    if options.fsync { file.sync() } else { Ok(()) }
}
