//! Packed captures: recognises gzip and zstd by their first bytes and reads the unpacked data.
//!
//! Memory is bounded whatever a file claims: 32 KiB for gzip, and for zstd a window of at most 128 MiB, zstd's own
//! limit unless it is told otherwise.
//!
//! Source: RFC 1952 (gzip), RFC 8878 (zstd).

use std::error::Error;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Buffer size in bytes.
const READ_LEN: usize = 1 << 16;
/// First bytes of each kind of file.
const GZIP: &[u8] = &[0x1F, 0x8B];
const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];
/// Packers that weft does not read: first bytes of their files, and the program that unpacks them.
const OTHERS: [(&[u8], &str); 4] = [
    (&[0xFD, b'7', b'z', b'X', b'Z'], "xz -d"),
    (b"BZh", "bzip2 -d"),
    (&[0x04, 0x22, 0x4D, 0x18], "lz4 -d"),
    (b"PK\x03\x04", "unzip"),
];

/// Kind of a file, by its first bytes.
pub(super) enum Unpacked {
    /// The file's bytes, unpacked if need be.
    Bytes(Box<dyn Read + Send>),
    /// Packed by another program; this one unpacks it.
    Other(&'static str),
}

/// Recognises how `input` is packed, and returns a reader of its unpacked bytes.
///
/// # Errors
/// `input` cannot be read.
pub(super) fn unpack(mut input: impl Read + Send + 'static) -> io::Result<Unpacked> {
    let mut head = Vec::new();
    // Not peeked: a pipe cannot go back, so these bytes are put in front again below.
    (&mut input).take(6).read_to_end(&mut head)?;
    if let Some((_, tool)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Ok(Unpacked::Other(tool));
    }
    let is_gzip = head.starts_with(GZIP);
    let is_zstd = head.starts_with(ZSTD) || is_skippable(&head);
    let whole = BufReader::with_capacity(READ_LEN, Cursor::new(head).chain(input));
    Ok(Unpacked::Bytes(if is_gzip {
        Box::new(BufReader::with_capacity(READ_LEN, MultiGzDecoder::new(whole)))
    } else if is_zstd {
        Box::new(BufReader::with_capacity(READ_LEN, Zstd::new(whole)))
    } else {
        Box::new(whole)
    }))
}

/// Whether the bytes start one of zstd's skippable frames.
fn is_skippable(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..])
}

/// Turns a decoder's error into `UnexpectedEof` if the file ends too early, else into `InvalidData`.
fn told(error: FrameDecoderError) -> io::Error {
    let mut kind = io::ErrorKind::InvalidData;
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(of) = cause {
        // The decoder wraps the reader's error several deep, depending on the header or block that was cut off.
        let read = of.downcast_ref::<io::Error>();
        if read.is_some_and(|read| read.kind() == io::ErrorKind::UnexpectedEof) {
            kind = io::ErrorKind::UnexpectedEof;
        }
        cause = of.source();
    }
    io::Error::new(kind, error)
}

/// An empty last block, and room for a checksum. The decoder holds back a window until it has seen the last block, so
/// this makes it release all that it unpacked from a file that is cut off.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// Reads zstd data, frame after frame.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    /// Returned once all unpacked bytes have been read.
    error: Option<io::Error>,
    is_over: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), error: None, is_over: false }
    }

    /// Whether the source has no more bytes.
    fn is_at_end(&mut self) -> bool {
        self.source.fill_buf().is_ok_and(<[u8]>::is_empty)
    }

    /// Begins the next frame, or ends the file.
    fn begin(&mut self) -> io::Result<()> {
        while !self.is_at_end() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(()),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(told(error)),
            }
        }
        self.is_over = true;
        Ok(())
    }

    /// Unpacks the next block.
    fn advance(&mut self) {
        if let Err(error) =
            self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
        {
            self.error = Some(told(error));
            let ended = self.decoder.decode_blocks(&LAST_BLOCK[..], BlockDecodingStrategy::All);
            self.is_over = true;
            drop(ended); // the first error is the one to report
        }
    }

    /// Compares a finished frame with its checksum, if it has one.
    fn check(&self) -> io::Result<()> {
        let claimed = self.decoder.get_checksum_from_data();
        if claimed.is_some() && claimed != self.decoder.get_calculated_checksum() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "checksum of zstd is wrong"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buf);
            }
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            if self.is_over {
                return Ok(0);
            }
            if self.decoder.is_finished() {
                self.check()?;
                self.begin()?;
            } else {
                self.advance();
            }
        }
    }
}
