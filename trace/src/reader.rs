//! Gives the records of a trace one after the other, whatever its format, from a file, a folder or any reader.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bad::{Bad, Complaint, Error};
use crate::detect::{Guess, LOOKED_AT, guess};
use crate::field::found;
use crate::format::Format;
use crate::formats::{self, Out, Parser, Unit};
use crate::lines::{self, LONGEST, Piece};

/// An iterator over the records of a trace. After a bad record it goes on with the next one; after an input that cannot
/// be read it ends. Holds one line, or one file of a format that is not made of lines, of at most [`LONGEST`] bytes, and
/// what sessions need to be put together.
pub struct Reader {
    format: Format,
    parser: Box<dyn Parser>,
    out: Out,
    /// Files that come after this one.
    files: VecDeque<PathBuf>,
    input: Option<Input>,
    /// Whether messages name the file.
    several: bool,
    buffer: Vec<u8>,
    n_bytes: u64,
}

struct Input {
    from: Box<dyn BufRead>,
    path: PathBuf,
    line: u64,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("format", &self.format).field("files", &self.files).finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens a file, `-` for the standard input, or a folder of which the files that end in `.json`, in the order of their
    /// names, are the sessions of one trace. Without a format it is told by the first bytes.
    ///
    /// # Errors
    /// If it cannot be opened, is no trace, or is of no format that its first bytes tell.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, Error> {
        if path == Path::new("-") {
            return Self::new(Box::new(BufReader::with_capacity(LOOKED_AT, std::io::stdin())), format);
        }
        let unreadable = |why| Error::Unreadable { path: path.into(), why };
        let several = std::fs::metadata(path).map_err(unreadable)?.is_dir();
        let mut files = VecDeque::from([path.to_owned()]);
        if several {
            files = files_of(path).map_err(unreadable)?;
        }
        let Some(first) = files.pop_front() else {
            return Err(Error::NoTrace("a folder without a file that ends in .json".into()));
        };
        let mut input = open(first)?;
        let format = told(&mut input, format)?;
        let mut reader = Self::of(format, input);
        (reader.files, reader.several) = (files, several);
        Ok(reader)
    }

    /// Reads what this gives. Without a format it is told by the first bytes.
    ///
    /// # Errors
    /// If it cannot be read, is no trace, or is of no format that its first bytes tell.
    pub fn new(from: Box<dyn BufRead>, format: Option<Format>) -> Result<Self, Error> {
        let mut input = Input { from, path: "-".into(), line: 0 };
        let format = told(&mut input, format)?;
        Ok(Self::of(format, input))
    }

    /// What is read.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How much has been read so far, about: what ends a line counts as one byte, and lines that are too long as nothing.
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    fn of(format: Format, input: Input) -> Self {
        Self {
            format,
            parser: formats::parser(format),
            out: Out::default(),
            files: VecDeque::new(),
            input: Some(input),
            several: false,
            buffer: Vec::new(),
            n_bytes: 0,
        }
    }

    fn bad(&self, Complaint { field, what }: Complaint) -> Bad {
        let (file, line) = match &self.input {
            Some(Input { path, line, .. }) => {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                (self.several.then(|| Arc::from(&*file)), (self.parser.unit() == Unit::Line).then_some(*line))
            }
            None => (None, None),
        };
        Bad { file, line, field, what }
    }

    /// Reads one more piece of the input, or turns to the next file; false if there is none.
    fn advance(&mut self) -> Result<bool, Error> {
        let Some(input) = &mut self.input else {
            return Ok(false);
        };
        let read = match self.parser.unit() {
            Unit::Line => lines::line(&mut input.from, LONGEST, &mut self.buffer),
            Unit::File => lines::whole(&mut input.from, LONGEST, &mut self.buffer),
        };
        let piece = match read {
            Ok(piece) => piece,
            Err(why) => {
                let path = std::mem::take(&mut input.path);
                self.input = None;
                return Err(Error::Unreadable { path, why });
            }
        };
        match piece {
            Some(piece) => {
                input.line += 1;
                self.n_bytes += self.buffer.len() as u64 + 1;
                let first = input.line == 1;
                self.take(&piece, first);
            }
            None => {
                self.input = None;
                self.input = self.files.pop_front().map(open).transpose()?;
            }
        }
        Ok(true)
    }

    fn take(&mut self, piece: &Piece, first: bool) {
        if *piece == Piece::TooLong {
            let what = format!("expected at most {} MiB, found more", LONGEST >> 20);
            return self.out.complain(Complaint::new("", what));
        }
        let bytes = match self.buffer.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) if first => rest,
            Some(_) | None => &self.buffer,
        };
        match std::str::from_utf8(bytes) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => {
                if let Err(complaint) = self.parser.take(text, &mut self.out) {
                    self.out.complain(complaint);
                }
            }
            Err(why) => {
                let good = String::from_utf8_lossy(&bytes[..why.valid_up_to()]);
                let what = format!("expected UTF-8, found other bytes after {}", found(Some(&good)));
                self.out.complain(Complaint::new("", what));
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Result<crate::record::Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.out.pop() {
                return Some(found.map_err(|complaint| Error::Bad(self.bad(complaint))));
            }
            self.parser.more(&mut self.out);
            if !self.out.is_empty() {
                continue;
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(why) => return Some(Err(why)),
            }
        }
    }
}

fn open(path: PathBuf) -> Result<Input, Error> {
    match File::open(&path) {
        Ok(file) => Ok(Input { from: Box::new(BufReader::with_capacity(LOOKED_AT, file)), path, line: 0 }),
        Err(why) => Err(Error::Unreadable { path, why }),
    }
}

/// The files of a folder that may be sessions.
fn files_of(folder: &Path) -> std::io::Result<VecDeque<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "json") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files.into())
}

/// The format, which the first bytes tell unless someone has said it. What is no trace is refused in either case.
fn told(input: &mut Input, said: Option<Format>) -> Result<Format, Error> {
    let begin = match input.from.fill_buf() {
        Ok(bytes) => bytes,
        Err(why) => return Err(Error::Unreadable { path: std::mem::take(&mut input.path), why }),
    };
    match (guess(&begin[..begin.len().min(LOOKED_AT)]), said) {
        (Guess::NoTrace(what), _) => Err(Error::NoTrace(what.into())),
        (_, Some(format)) | (Guess::Format(format), None) => Ok(format),
        (Guess::Unknown, None) if begin.is_empty() => Err(Error::NoTrace("an empty file".into())),
        (Guess::Unknown, None) => Err(Error::UnknownFormat),
    }
}
