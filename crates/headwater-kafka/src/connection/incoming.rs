//! The reading task: cuts what arrives into answers.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use super::transport::{Incoming, end_of};
use super::{End, Shared};

/// Answers up to this size are cut from one buffer, several with one system call. A larger one is
/// read into a buffer of its own size, where it stays: only what came with its length is copied.
const BUFFER: usize = 8 * 1024;

/// No answer is larger: a fetch is bounded by its limits and one batch, and all else is small.
/// Room is reserved for what an answer says is its size, so this is what a lie can cost.
const ANSWER_MAX: usize = 256 * 1024 * 1024;

/// Hands answers over until the stream ends, and tells why it did.
pub(super) async fn read_answers(mut stream: Incoming, shared: &Shared) -> End {
    let mut buffer = BytesMut::with_capacity(BUFFER);
    loop {
        let given = match next_answer(&mut stream, &mut buffer).await {
            Ok(answer) => shared.answer(answer).map_err(End::Foreign),
            Err(end) => Err(end),
        };
        if let Err(end) = given {
            return end;
        }
    }
}

async fn next_answer(stream: &mut Incoming, buffer: &mut BytesMut) -> Result<Bytes, End> {
    fill(stream, buffer, 4).await?;
    let size = size_of(buffer.get_u32()).map_err(End::Foreign)?;
    if size <= BUFFER {
        fill(stream, buffer, size).await?;
        return Ok(buffer.split_to(size).freeze());
    }
    let mut answer = BytesMut::with_capacity(size);
    let here = buffer.len().min(size);
    answer.put_slice(&buffer.split_to(here));
    while answer.len() < size {
        let missing = size - answer.len();
        read(stream, &mut (&mut answer).limit(missing)).await?;
    }
    Ok(answer.freeze())
}

/// Reads until the buffer holds `size` bytes.
async fn fill(stream: &mut Incoming, buffer: &mut BytesMut, size: usize) -> Result<(), End> {
    while buffer.len() < size {
        buffer.reserve(BUFFER.saturating_sub(buffer.len()).max(1));
        read(stream, buffer).await?;
    }
    Ok(())
}

async fn read(stream: &mut Incoming, to: &mut impl BufMut) -> Result<(), End> {
    match stream.read_buf(to).await {
        Ok(0) => Err(End::Lost("the server closed the connection".to_owned())),
        Ok(_) => Ok(()),
        Err(error) => Err(end_of(&error)),
    }
}

/// The size an answer begins with, if it can be one.
fn size_of(word: u32) -> Result<usize, String> {
    match &word.to_be_bytes() {
        b"HTTP" => return Err("the server answers in HTTP".to_owned()),
        text if text.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') => {
            let text = String::from_utf8_lossy(text);
            return Err(format!("the server answers in text, beginning with `{text}`"));
        }
        // A TLS alert: record type 21, version 3.x.
        [21, 3, ..] => return Err("the server wants TLS (security.protocol)".to_owned()),
        _ => {}
    }
    let size = usize::try_from(word).unwrap_or(usize::MAX);
    if (4..=ANSWER_MAX).contains(&size) {
        Ok(size)
    } else {
        Err(format!("an answer of {size} bytes is announced, which is none of Kafka's"))
    }
}
