//! Packed captures: gzip and zstd, told by how they begin, read as what they hold.
//!
//! Any reader → one of the unpacked bytes. Memory is bounded whatever a file claims: 32 KiB for gzip, a window of
//! at most 128 MiB for zstd, which is what zstd itself unpacks without being asked for more.
//!
//! Units: bytes.
//! Source: RFC 1952 (gzip), RFC 8878 (zstd).

use std::error::Error;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes that are read at once.
const READ_LEN: usize = 1 << 16;
/// How a file of each kind begins.
const GZIP: &[u8] = &[0x1F, 0x8B];
const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];
/// Packers that are not read, by how their files begin, and what unpacks them.
const OTHERS: [(&[u8], &str); 4] = [
    (&[0xFD, b'7', b'z', b'X', b'Z'], "xz -d"),
    (b"BZh", "bzip2 -d"),
    (&[0x04, 0x22, 0x4D, 0x18], "lz4 -d"),
    (b"PK\x03\x04", "unzip"),
];

/// What a file turned out to be.
pub(super) enum Unpacked {
    /// Its bytes, unpacked if they were packed.
    Bytes(Box<dyn Read + Send>),
    /// Packed by something else; this unpacks it.
    Other(&'static str),
}

/// Looks at how `input` begins.
///
/// # Errors
/// It cannot be read.
pub(super) fn unpack(mut input: impl Read + Send + 'static) -> io::Result<Unpacked> {
    let mut head = Vec::new();
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

/// Whether a zstd frame begins that is to be passed over.
fn is_skippable(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..])
}

/// What `error` means to a reader: that the file is cut off, where bytes were missing at its end, or damaged.
fn told(error: FrameDecoderError) -> io::Error {
    let mut kind = io::ErrorKind::InvalidData;
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(of) = cause {
        let read = of.downcast_ref::<io::Error>();
        if read.is_some_and(|read| read.kind() == io::ErrorKind::UnexpectedEof) {
            kind = io::ErrorKind::UnexpectedEof;
        }
        cause = of.source();
    }
    io::Error::new(kind, error)
}

/// An empty last block, and room for a checksum. The decoder keeps a window back until it has seen the last block: this
/// makes it give out all that it has unpacked of a file that is cut off.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// A reader of what zstd has packed, frame after frame.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    /// What is told when all that was unpacked has been read.
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

    /// Begins the next frame, if there is one.
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

    /// Unpacks another block.
    fn advance(&mut self) {
        if let Err(error) =
            self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
        {
            self.error = Some(told(error));
            let ended = self.decoder.decode_blocks(&LAST_BLOCK[..], BlockDecodingStrategy::All);
            self.is_over = true;
            drop(ended); // the first error is the one that counts
        }
    }

    /// Holds what was unpacked of a frame against its checksum, if it has one.
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
